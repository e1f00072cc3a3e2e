package wire_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/ps/wire"
)

// bearing lets the bearer of a token do everything.
func bearing(token string) []secure.Rule {
	return []secure.Rule{{Right: secure.Coordinate, Token: secure.Fixed(token)}}
}

// TestWhoMayConnect distinguishes the cases, at once and by name.
func TestWhoMayConnect(t *testing.T) {
	t.Parallel()
	ca, other := testbed.NewAuthority(t, t.TempDir(), "ca"), testbed.NewAuthority(t, t.TempDir(), "other")
	serverCert, serverKey := ca.Issue(t, "shard")
	clientCert, clientKey := ca.Issue(t, "worker")
	strangeCert, strangeKey := other.Issue(t, "stranger")
	plain := wire.ServerConfig{}
	encrypted := wire.ServerConfig{TLS: &wire.TLS{Cert: serverCert, Key: serverKey}, Rules: bearing("secret")}
	mutual := wire.ServerConfig{TLS: &wire.TLS{Cert: serverCert, Key: serverKey, CA: ca.File}}
	named := mutual
	named.Rules = []secure.Rule{{Right: secure.Train, Names: []string{"worker"}}}
	for _, x := range []struct {
		name   string
		server wire.ServerConfig
		client wire.ClientConfig
		want   string // of the error; empty: none
	}{
		{"plain", plain, wire.ClientConfig{}, ""},
		{"token", wire.ServerConfig{Rules: bearing("secret")}, wire.ClientConfig{Token: secure.Fixed("secret")}, ""},
		{"wrong token", wire.ServerConfig{Rules: bearing("secret")}, wire.ClientConfig{Token: secure.Fixed("Secret")}, "the token is not the server's"},
		{"no token", wire.ServerConfig{Rules: bearing("secret")}, wire.ClientConfig{}, "none was sent"},
		{"tls and token", encrypted, wire.ClientConfig{TLS: &wire.TLS{CA: ca.File}, Token: secure.Fixed("secret")}, ""},
		{"tls and wrong token", encrypted, wire.ClientConfig{TLS: &wire.TLS{CA: ca.File}, Token: secure.Fixed("no")}, "the token is not the server's"},
		{"server of another authority", encrypted, wire.ClientConfig{TLS: &wire.TLS{CA: other.File}, Token: secure.Fixed("secret")}, "the server's certificate is not trusted"},
		{"server of another name", encrypted, wire.ClientConfig{TLS: &wire.TLS{CA: ca.File, ServerName: "elsewhere"}}, "the server's certificate is not trusted"},
		{"server of a given name", encrypted, wire.ClientConfig{TLS: &wire.TLS{CA: ca.File, ServerName: "shard"}, Token: secure.Fixed("secret")}, ""},
		{"client without tls", encrypted, wire.ClientConfig{Token: secure.Fixed("secret")}, "the server wants TLS"},
		{"server without tls", plain, wire.ClientConfig{TLS: &wire.TLS{CA: ca.File}}, "the server does not speak TLS"},
		{"mutual", mutual, wire.ClientConfig{TLS: &wire.TLS{CA: ca.File, Cert: clientCert, Key: clientKey}}, ""},
		{"certificate of a known name", named, wire.ClientConfig{TLS: &wire.TLS{CA: ca.File, Cert: clientCert, Key: clientKey}}, ""},
		{"certificate of another name", named, wire.ClientConfig{TLS: &wire.TLS{CA: ca.File, Cert: serverCert, Key: serverKey}}, "no rule (ps.allow) for the client's certificate"},
		{"no client certificate", mutual, wire.ClientConfig{TLS: &wire.TLS{CA: ca.File}}, "the server wants another client certificate"},
		{
			"client of another authority", mutual,
			wire.ClientConfig{TLS: &wire.TLS{CA: ca.File, Cert: strangeCert, Key: strangeKey}},
			"the server wants another client certificate",
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			r := serve(t, newHost(), remoteOptions{server: x.server, client: x.client})
			defer r.close(t)
			f := &fakeConn{}
			// Who is not admitted is told at once: it does not try for an hour.
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			c, err := wire.Dial(ctx, r.cc, wire.Hello{Session: r.host.add(f)}, wire.ConnOptions{MinBackoff: time.Millisecond, RetryFor: time.Hour})
			if x.want != "" {
				if !errors.Is(err, wire.ErrNotAdmitted) || !strings.Contains(err.Error(), x.want) {
					t.Errorf("Dial: %v, want %q", err, x.want)
				}
				if ctx.Err() != nil {
					t.Error("it took five minutes to say so")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Control(t.Context(), nil); err != nil {
				t.Error(err)
			}
			want := secure.Coordinate
			if len(x.server.Rules) > 0 {
				want = x.server.Rules[0].Right
			}
			if got := secure.Right(r.host.granted.Load()); got != want {
				t.Errorf("the host is told that the caller may %v, want %v", got, want)
			}
			if err := c.Close(t.Context(), true); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAuthorityIsReplaced: a client that trusts another authority by now than when it was made, as its file says, reaches a server of that one, over gRPC and with the line of its stream.
func TestAuthorityIsReplaced(t *testing.T) {
	t.Parallel()
	then, now := testbed.NewAuthority(t, t.TempDir(), "then"), testbed.NewAuthority(t, t.TempDir(), "now")
	cert, key := now.Issue(t, "shard")
	trusted, err := os.ReadFile(now.File)
	if err != nil {
		t.Fatal(err)
	}
	r := serve(t, newHost(), remoteOptions{server: wire.ServerConfig{TLS: &wire.TLS{Cert: cert, Key: key}}, client: wire.ClientConfig{TLS: &wire.TLS{CA: then.File}}})
	defer r.close(t)
	dial := func() (*wire.Conn, error) {
		return wire.Dial(t.Context(), r.cc, wire.Hello{Session: r.host.add(&fakeConn{})}, wire.ConnOptions{MinBackoff: time.Millisecond})
	}
	if _, err := dial(); !errors.Is(err, wire.ErrNotAdmitted) {
		t.Fatalf("a server of an authority that is not trusted yet: %v", err)
	}
	next := then.File + ".next"
	if err := errors.Join(os.WriteFile(next, trusted, 0o600), os.Rename(next, then.File)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		c, err := dial()
		if err == nil {
			if _, err := c.Control(t.Context(), nil); err != nil {
				t.Error(err)
			}
			if err := c.Close(t.Context(), true); err != nil {
				t.Error(err)
			}
			return
		}
		if !errors.Is(err, wire.ErrNotAdmitted) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestTokenStaysHere refuses to send a token over a network in the clear.
func TestTokenStaysHere(t *testing.T) {
	t.Parallel()
	for addr, ok := range map[string]bool{
		"127.0.0.1:7000": true, "[::1]:7000": true, "localhost:7000": true, "unix:/run/ps": true, "unix:///run/ps": true,
		"ps-0:7000": false, "10.0.0.1:7000": false, "localhost.example.com:1": false, ":7000": false,
	} {
		cc, err := wire.NewClient(addr, wire.ClientConfig{Token: secure.Fixed("secret")})
		if err == nil {
			err = cc.Close()
		}
		if (err == nil) != ok || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want allowed %v", addr, err, ok)
		}
	}
}

// TestAddresses has the forms that are allowed and those that are not.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"ps-0:7000": "passthrough:///ps-0:7000", "[::1]:7000": "passthrough:///[::1]:7000", "unix:a/b": "unix:a/b", "unix:/a": "unix:/a", "unix:///a": "unix:/a",
		"ps-0": "", "unix:": "", "unix://a": "", "": "", "ps-0:": "", ":7000": "",
	} {
		if got, err := wire.Target(addr); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", addr, got, err, want)
		}
	}
	path := "unix:" + filepath.Join(t.TempDir(), "s")
	l, err := wire.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wire.Listen(path); err == nil {
		t.Error("two listen at one socket")
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as if the process had been killed
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err = wire.Listen(path)
	if err != nil {
		t.Fatalf("a socket that was left behind: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestOtherServices live on the same server, in protobuf, and health is open to all.
func TestOtherServices(t *testing.T) {
	t.Parallel()
	srv, err := wire.NewServer(wire.ServerConfig{Rules: bearing("secret")})
	if err != nil {
		t.Fatal(err)
	}
	wire.RegisterServer(srv, newHost(), wire.HostOptions{})
	healthpb.RegisterHealthServer(srv, health.NewServer())
	l, err := wire.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	cc, err := wire.NewClient(l.Addr().String(), wire.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || reply.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", reply, err)
	}
	if err := cc.Invoke(t.Context(), "/x.Y/Z", &healthpb.HealthCheckRequest{}, reply); status.Code(err) != codes.Unauthenticated {
		t.Errorf("unknown service, for a stranger: %v", err)
	}
	known, err := wire.NewClient(l.Addr().String(), wire.ClientConfig{Token: secure.Fixed("secret")})
	if err != nil {
		t.Fatal(err)
	}
	if err := known.Invoke(t.Context(), "/x.Y/Z", &healthpb.HealthCheckRequest{}, reply); status.Code(err) != codes.Unimplemented {
		t.Errorf("unknown service: %v", err)
	}
	srv.Stop()
	if err := errors.Join(<-done, cc.Close(), known.Close()); err != nil {
		t.Error(err)
	}
}

// TestServerWithoutTheService is an error at once.
func TestServerWithoutTheService(t *testing.T) {
	t.Parallel()
	srv := grpc.NewServer()
	l, err := wire.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	cc, err := wire.NewClient(l.Addr().String(), wire.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if _, err := wire.Dial(ctx, cc, wire.Hello{}, wire.ConnOptions{}); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("%v, want ErrProtocol", err)
	}
	srv.Stop()
	if err := errors.Join(<-done, cc.Close()); err != nil {
		t.Error(err)
	}
}
