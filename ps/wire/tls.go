package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/monolith-go/monolith/internal/secure"
)

// TLS names the files, in PEM, that one side of an encrypted connection needs; see [secure.TLS]. Version 1.3 is spoken.
type TLS = secure.TLS

// serverCreds are credentials, of TLS or none, that give the lines of streams away, and answer a client without TLS with what is wrong. TLS alone
// would just hang up, which looks like a server that is being started.
type serverCreds struct {
	credentials.TransportCredentials
	lines *lines
}

const (
	// preface is how an HTTP/2 client without TLS begins.
	preface = "PRI *"
	// wantsTLS is how a client of gRPC words its surprise at wantsTLSFrame, which no other server sends first.
	wantsTLS = "is not a settings frame: *http2.GoAwayFrame"
	// wantsTLSFrame is a GOAWAY of last stream 0 with code INADEQUATE_SECURITY (RFC 9113, 6.8 and 7) and a text.
	wantsTLSFrame = "\x00\x00\x1d\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x0c" + "this server wants TLS"
	hangUpAfter   = time.Second
	maxPlain      = 64 << 10
)

// ServerHandshake implements [credentials.TransportCredentials].
func (c *serverCreds) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c.Info().SecurityProtocol != "tls" {
		_, info, err := c.TransportCredentials.ServerHandshake(raw)
		if err != nil {
			return nil, nil, errors.Join(err, raw.Close())
		}
		return c.sort(raw, info)
	}
	held := &heldConn{batch: batch{Conn: raw}, hold: true}
	conn, info, err := c.TransportCredentials.ServerHandshake(held)
	held.hold = false
	if err == nil {
		return c.sort(conn, info)
	}
	if rh, ok := errors.AsType[tls.RecordHeaderError](err); ok && string(rh.RecordHeader[:]) == preface {
		_ = raw.SetDeadline(time.Now().Add(hangUpAfter)) // if it cannot be set, the server's own deadline holds
		if _, werr := io.WriteString(raw, wantsTLSFrame); werr == nil {
			// What the client has sent is read, or its end would see a reset in place of the frame.
			_, _ = io.CopyN(io.Discard, raw, maxPlain)
		}
	}
	return nil, nil, errors.Join(err, raw.Close())
}

// sort keeps what is a line from gRPC.
func (c *serverCreds) sort(conn net.Conn, info credentials.AuthInfo) (net.Conn, credentials.AuthInfo, error) {
	other, err := c.lines.sort(conn)
	switch {
	case err != nil:
		return nil, nil, errors.Join(err, conn.Close())
	case other == nil:
		return nil, nil, credentials.ErrConnDispatched
	}
	return other, info, nil
}

// Clone implements [credentials.TransportCredentials].
func (c *serverCreds) Clone() credentials.TransportCredentials {
	return &serverCreds{c.TransportCredentials.Clone(), c.lines}
}

// clientCreds are credentials of TLS whose configuration is asked for at each connection.
type clientCreds struct {
	credentials.TransportCredentials
	conf func() *tls.Config
}

// ClientHandshake implements [credentials.TransportCredentials].
func (c *clientCreds) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(c.conf()).ClientHandshake(ctx, authority, raw)
}

// Clone implements [credentials.TransportCredentials].
func (c *clientCreds) Clone() credentials.TransportCredentials {
	return &clientCreds{c.TransportCredentials.Clone(), c.conf}
}

// heldConn stays open while hold is set.
type heldConn struct {
	batch
	hold bool
}

// Close implements [net.Conn].
func (c *heldConn) Close() error {
	if c.hold {
		return nil
	}
	return c.batch.Close()
}
