package wire

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/ps"
)

const (
	// bufferSize is that of gRPC's reads and writes of a connection, bytes.
	bufferSize = 128 << 10
	// Windows of calls that are never the reason why one waits; fixed ones save the pings that would measure them.
	streamWindow = 16 << 20
	connWindow   = 32 << 20

	pingEvery       = 10 * time.Second
	pingTimeout     = 5 * time.Second
	serverPingEvery = 20 * time.Second
	connectTimeout  = 5 * time.Second
	// maxReconnect is how long a client that found nobody waits at most before it tries to connect again; calls fail with what it has found meanwhile. It is
	// as short as what callers with two processes to choose from wait at most, for they cannot hurry it: grpc-go's ResetConnectBackoff ranges over a map that others write (1.85.0), which ends the process.
	maxReconnect = 200 * time.Millisecond
	// lineTimeout is how long the other side is waited for while the line of a stream is opened, at either end.
	lineTimeout = connectTimeout
	// reasonFor is how long a client whose line broke waits for the server to say why the stream ended.
	reasonFor = time.Second

	// maxStreams bounds the calls and streams of a connection, which is one process's to one shard; a client waits when it
	// has as many. maxCalls bounds those of all connections of a server, which refuses more.
	maxStreams = 1024
	maxCalls   = 16 * maxStreams
	// maxConns bounds the connections of a listener, of which a worker has one and a line for each stream; more wait to be taken.
	maxConns = 8192
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
}

// Server is a gRPC server whose listeners take the lines of streams beside gRPC's connections; see [RegisterServer].
type Server struct {
	*grpc.Server
	lines *lines
}

// NewServer makes a server: windows, keep-alive, TLS, tokens, and the limits of what strangers can make it keep. A handler that panics is an
// Internal error to its caller. more are further options of it. Errors: of reading certificates.
func NewServer(c ServerConfig, more ...grpc.ServerOption) (*Server, error) {
	l := &lines{waiting: map[ticket]chan net.Conn{}}
	creds := &serverCreds{insecure.NewCredentials(), l}
	if c.TLS != nil {
		conf, err := c.TLS.Server(&tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", lineProtocol},
			DynamicRecordSizingDisabled: true, // frames are read as a whole
		})
		if err != nil {
			return nil, fmt.Errorf("wire: %w", err)
		}
		creds.TransportCredentials = credentials.NewTLS(conf)
	}
	r := recovery{c.Logger}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return &Server{grpc.NewServer(append([]grpc.ServerOption{
		grpc.ReadBufferSize(bufferSize), grpc.WriteBufferSize(bufferSize),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery / 2, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: serverPingEvery, Timeout: pingTimeout, MaxConnectionIdle: idleTimeout}),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaders),
		grpc.InTapHandle(newGate(c).tap),
		grpc.ChainUnaryInterceptor(r.unary), grpc.ChainStreamInterceptor(r.stream),
		grpc.Creds(creds),
	}, more...)...), l}, nil
}

// Authenticates reports whether each admitted client is authenticated: by a token, or by a certificate.
func (c ServerConfig) Authenticates() bool {
	return len(c.Rules) > 0 || c.TLS != nil && c.TLS.CA != ""
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
