package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"

	"github.com/monolith-go/monolith/internal/secure"
)

// ClientConfig describes how a server is reached. The zero value connects without encryption.
type ClientConfig struct {
	// TLS, if not nil, encrypts.
	TLS *TLS
	// Token, if not nil, is where to ask what goes with every call; it may change. Without TLS it goes to this machine only.
	Token secure.Token
	// Dial, if not nil, makes connections in place of package net, to a tcp or unix address.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client is a gRPC client of a server, which can open the lines of streams to it; see [Dial].
type Client struct {
	*grpc.ClientConn
	addr string
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	tls  func() *tls.Config // of a line; nil: plain text
	// silence is that of the connections that began with this client.
	silence silence
}

// NewClient makes a client of the server at addr, one for each process and shard; the caller closes it. It keeps connections alive, makes
// broken ones again without long waits, and goes to the server itself, whatever proxies the environment names. It does no I/O. Errors: a token that
// would go over the network unencrypted, those of reading certificates and of [Target].
func NewClient(addr string, c ClientConfig) (*Client, error) {
	target, err := Target(addr)
	if err != nil {
		return nil, err
	}
	network, address, err := split(addr)
	if err != nil {
		return nil, err
	}
	out := &Client{addr: addr, dial: c.Dial}
	opts := []grpc.DialOption{
		grpc.WithReadBufferSize(bufferSize), grpc.WithWriteBufferSize(bufferSize),
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 2, Jitter: 0.5, MaxDelay: maxReconnect},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithNoProxy(), // which lines do not go through either
	}
	if dial := c.Dial; dial != nil {
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, network, address) }))
	} else {
		out.dial = (&net.Dialer{}).DialContext
	}
	if c.TLS == nil {
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	} else {
		conf, err := c.TLS.Client(&tls.Config{MinVersion: tls.VersionTLS13})
		if err != nil {
			return nil, fmt.Errorf("wire: %w", err)
		}
		opts = append(opts, grpc.WithTransportCredentials(&clientCreds{credentials.NewTLS(conf()), conf}))
		out.tls = func() *tls.Config { return lineTLS(conf(), network, address) }
	}
	if c.Token != nil {
		local := IsLocal(addr)
		if c.TLS == nil && !local {
			return nil, fmt.Errorf("wire: %s: a token is not sent over the network without TLS; set TLS, or use loopback or a unix socket", addr)
		}
		opts = append(opts, grpc.WithPerRPCCredentials(&bearer{token: secure.NewFresh(c.Token), local: local}))
	}
	if out.ClientConn, err = grpc.NewClient(target, opts...); err != nil {
		return nil, fmt.Errorf("wire: %s: %w", addr, err)
	}
	return out, nil
}

// lineProtocol is the name of a line's protocol in a TLS handshake (ALPN), beside HTTP/2's.
const lineProtocol = "monolith-ps"

// lineTLS makes the configuration of a line's client of that of gRPC's, which finds the server's name itself.
func lineTLS(c *tls.Config, network, address string) *tls.Config {
	c.NextProtos = []string{lineProtocol}
	c.DynamicRecordSizingDisabled = true // frames are read as a whole
	if c.ServerName == "" {
		c.ServerName = "localhost" // as gRPC has it for unix sockets
		if host, _, err := net.SplitHostPort(address); err == nil && network == "tcp" {
			c.ServerName = host
		}
	}
	return c
}

// line opens the line of a stream, to the process that serves that.
func (c *Client) line(ctx context.Context, stream grpc.ClientStream, t ticket) (_ net.Conn, err error) {
	network, address, err := split(c.addr)
	if err != nil {
		return nil, err
	}
	if p, ok := peer.FromContext(stream.Context()); ok && network == "tcp" && p.Addr.Network() == network {
		address = p.Addr.String() // a name may stand for several
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lineTimeout, errLineTimeout)
	defer cancel()
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, conn.Close())
		}
	}()
	if c.tls != nil {
		encrypted := tls.Client(&batch{Conn: conn}, c.tls())
		if err := encrypted.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("wire: %w", err)
		}
		conn = encrypted
	}
	if _, err := conn.Write(append([]byte(lineMagic), t[:]...)); err != nil { // which waits for nobody: it is little
		return nil, fmt.Errorf("wire: %w", err)
	}
	return conn, nil
}

var errLineTimeout = errors.New("the server has not taken the stream's line in time")
