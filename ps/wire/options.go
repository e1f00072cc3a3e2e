package wire

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/ps"
)

const (
	// maxGRPCMessage is more than any chunk.
	maxGRPCMessage = 1 << 20
	// bufferSize is that of gRPC's reads and writes of a connection, bytes.
	bufferSize = 128 << 10
	// Windows that are never the reason why a stream waits; fixed ones save the pings that would measure them. On one machine a
	// sender that runs far ahead only drives out of the processor's cache what the receiver is about to read: the bytes of
	// 1 MiB cost a fifth less when half of it is under way at a time.
	streamWindow = 16 << 20
	localWindow  = 512 << 10
	connWindow   = 32 << 20

	pingEvery       = 10 * time.Second
	pingTimeout     = 5 * time.Second
	serverPingEvery = 20 * time.Second
	connectTimeout  = 5 * time.Second

	// maxStreams bounds the calls and streams of a connection, which is one process's to one shard; a client waits when it
	// has as many. maxCalls bounds those of all connections of a server, which refuses more.
	maxStreams = 1024
	maxCalls   = 16 * maxStreams
	// maxConns bounds the connections of a listener; more wait to be taken.
	maxConns = 4096
	// maxHeaders bounds the headers of a call, bytes.
	maxHeaders = 256 << 10
	// idleTimeout is after how long a connection without a call is closed; its client opens another when it makes one.
	idleTimeout = 5 * time.Minute
)

// ServerConfig describes how a server is reached. The zero value serves anybody without encryption, which is for loopback and
// unix sockets.
type ServerConfig struct {
	// TLS, if not nil, encrypts; its CA makes client certificates required.
	TLS *TLS
	// Rules say what callers may do, the health service apart; without any, everybody who gets through may do everything. Their tokens may
	// change; a stream keeps what it was granted when it began.
	Rules []secure.Rule
	// Admit, if not nil, is asked about every call that a rule lets in, the health service's apart, by what the caller may do, the method and
	// headers; the caller gets its error, a gRPC status. It is called before the call's message is received and must not wait.
	Admit func(may secure.Right, method string, md metadata.MD) error
	// Logger gets what a handler panicked with; nil discards.
	Logger *slog.Logger
	// Local says that clients are on this machine ([IsLocal] of the address), where less is under way at a time.
	Local bool
}

// window is how much of a stream may be under way, bytes.
func window(local bool) int32 {
	if local {
		return localWindow
	}
	return streamWindow
}

// ServerOptions are the options of a gRPC server for [RegisterServer]: codec, buffers, windows, keep-alive, TLS, token,
// and the limits of what strangers can make it keep. A handler that panics is an Internal error to its caller. Protobuf
// services may be registered on the same server. Errors: of reading certificates.
func ServerOptions(c ServerConfig) ([]grpc.ServerOption, error) {
	out := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.ReadBufferSize(bufferSize), grpc.WriteBufferSize(bufferSize), experimental.BufferPool(&bufferPool{}),
		grpc.StaticStreamWindowSize(window(c.Local)), grpc.StaticConnWindowSize(connWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery / 2, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: serverPingEvery, Timeout: pingTimeout, MaxConnectionIdle: idleTimeout}),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaders),
		grpc.InTapHandle(newGate(c).tap),
	}
	r := recovery{c.Logger}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	out = append(out, grpc.ChainUnaryInterceptor(r.unary), grpc.ChainStreamInterceptor(r.stream))
	if c.TLS != nil {
		conf, err := c.TLS.Server(tls.VersionTLS13)
		if err != nil {
			return nil, fmt.Errorf("wire: %w", err)
		}
		out = append(out, grpc.Creds(&serverCreds{credentials.NewTLS(conf)}))
	}
	return out, nil
}

// Authenticates reports whether each admitted client is authenticated: by a token, or by a certificate.
func (c ServerConfig) Authenticates() bool {
	return len(c.Rules) > 0 || c.TLS != nil && c.TLS.CA != ""
}

// ClientConfig describes how a server is reached. The zero value connects without encryption.
type ClientConfig struct {
	// TLS, if not nil, encrypts.
	TLS *TLS
	// Token, if not nil, is where to ask what goes with every call; it may change. Without TLS it goes to this machine only.
	Token secure.Token
}

// DialOptions are the options of a gRPC client to addr for [Dial]: buffers, windows, keep-alive, reconnects without long
// waits, TLS and token. Errors: a token that would go over the network unencrypted, those of reading certificates and of
// [Target].
func DialOptions(addr string, c ClientConfig) ([]grpc.DialOption, error) {
	if _, err := Target(addr); err != nil {
		return nil, err
	}
	out := []grpc.DialOption{
		grpc.WithReadBufferSize(bufferSize), grpc.WithWriteBufferSize(bufferSize), experimental.WithBufferPool(&bufferPool{}),
		grpc.WithStaticStreamWindowSize(window(IsLocal(addr))), grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 2, Jitter: 0.5, MaxDelay: 2 * time.Second},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
	}
	if c.TLS == nil {
		out = append(out, grpc.WithTransportCredentials(insecure.NewCredentials()))
	} else {
		conf, err := c.TLS.Client(tls.VersionTLS13)
		if err != nil {
			return nil, fmt.Errorf("wire: %w", err)
		}
		out = append(out, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	}
	if c.Token != nil {
		local := IsLocal(addr)
		if c.TLS == nil && !local {
			return nil, fmt.Errorf("wire: %s: a token is not sent over the network without TLS; set TLS, or use loopback or a unix socket", addr)
		}
		out = append(out, grpc.WithPerRPCCredentials(&bearer{token: secure.NewFresh(c.Token), local: local}))
	}
	return out, nil
}

// NewClient makes a gRPC client of the server at addr, one for each process and shard; the caller closes it. It does no
// I/O. Errors: those of [DialOptions].
func NewClient(addr string, c ClientConfig) (*grpc.ClientConn, error) {
	target, err := Target(addr)
	if err != nil {
		return nil, err
	}
	opts, err := DialOptions(addr, c)
	if err != nil {
		return nil, err
	}
	cc, err := grpc.NewClient(target, opts...)
	if err != nil {
		return nil, fmt.Errorf("wire: %s: %w", addr, err)
	}
	return cc, nil
}

// Target returns gRPC's name for an address host:port, unix:path or unix:///path. A host's name is looked up at every
// connect, so that a shard may come back elsewhere.
func Target(addr string) (string, error) {
	if _, ok := strings.CutPrefix(addr, "unix:"); ok {
		_, path, err := split(addr)
		if err != nil {
			return "", err
		}
		return "unix:" + path, nil
	}
	if _, _, err := split(addr); err != nil {
		return "", err
	}
	return "passthrough:///" + addr, nil
}

// Listen listens at an address host:port, unix:path or unix:///path. The caller closes the listener. A unix socket that
// nobody listens at is replaced.
func Listen(addr string) (net.Listener, error) {
	network, address, err := split(addr)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		if err := removeStale(address); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	return l, nil
}

// split returns the network and address of addr.
func split(addr string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		if rest, ok := strings.CutPrefix(path, "//"); ok {
			if path = rest; !strings.HasPrefix(path, "/") {
				return "", "", fmt.Errorf("wire: address %q: unix:// wants an absolute path; unix:path takes a relative one", addr)
			}
		}
		if path == "" {
			return "", "", fmt.Errorf("wire: address %q has no path", addr)
		}
		return "unix", path, nil
	}
	host, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil || port == "":
		return "", "", fmt.Errorf("wire: address %q is neither host:port nor unix:path", addr)
	case host == "": // which would be every network that the machine is in
		return "", "", fmt.Errorf("wire: address %q has no host; write 127.0.0.1%s for this machine alone, 0.0.0.0%s for every network it is in", addr, addr, addr)
	}
	return "tcp", addr, nil
}

// Bound takes no more connections of a listener at a time than a server is made for; more wait to be taken.
func Bound(l net.Listener) net.Listener { return netutil.LimitListener(l, maxConns) }

// CheckAddress returns what is wrong with an address for [Listen].
func CheckAddress(addr string) error {
	network, address, err := split(addr)
	if err == nil && strings.Contains(addr, ps.AddrSep) {
		err = fmt.Errorf("wire: address %q has %q in it", addr, ps.AddrSep)
	}
	if err != nil || network == "unix" {
		return err
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("wire: address %q is neither host:port nor unix:path", addr)
	}
	return nil
}

// IsLocal reports whether what is sent to an address stays on this machine: it is of loopback or a unix socket.
func IsLocal(addr string) bool {
	network, address, err := split(addr)
	if err != nil || network == "unix" {
		return err == nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
