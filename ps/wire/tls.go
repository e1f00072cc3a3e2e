package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc/credentials"
)

// TLS names the files, in PEM, that one side of an encrypted connection needs. Version 1.3 is spoken.
type TLS struct {
	// CertFile and KeyFile are this side's certificate and key. A server needs them; a client only if the server asks.
	CertFile, KeyFile string
	// CAFile is whom this side trusts to certify the other one. Empty: a client trusts the system's authorities, a server
	// asks for no certificate.
	CAFile string
	// ServerName is the name that the server's certificate must be of; empty: the host of the address. Clients only.
	ServerName string
}

func (t *TLS) server() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS13}
	if t.CertFile == "" || t.KeyFile == "" {
		return nil, errors.New("wire: a TLS server needs a certificate file and a key file")
	}
	if err := t.load(c); err != nil {
		return nil, err
	}
	if t.CAFile != "" {
		pool, err := t.pool()
		if err != nil {
			return nil, err
		}
		c.ClientCAs, c.ClientAuth = pool, tls.RequireAndVerifyClientCert
	}
	return c, nil
}

func (t *TLS) client() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: t.ServerName}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("wire: a client certificate needs both its file and its key's")
	}
	if t.CertFile != "" {
		if err := t.load(c); err != nil {
			return nil, err
		}
	}
	if t.CAFile != "" {
		pool, err := t.pool()
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool
	}
	return c, nil
}

func (t *TLS) load(c *tls.Config) error {
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return fmt.Errorf("wire: certificate %s with key %s: %w", t.CertFile, t.KeyFile, err)
	}
	c.Certificates = []tls.Certificate{cert}
	return nil
}

func (t *TLS) pool() (*x509.CertPool, error) {
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("wire: no certificate in %s", t.CAFile)
	}
	return pool, nil
}

// serverCreds are TLS credentials that tell a client without TLS what is wrong. TLS alone would just hang up, which looks
// like a server that is being started.
type serverCreds struct {
	credentials.TransportCredentials
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
	held := &heldConn{Conn: raw, hold: true}
	conn, info, err := c.TransportCredentials.ServerHandshake(held)
	held.hold = false
	if err == nil {
		return conn, info, nil
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

// Clone implements [credentials.TransportCredentials].
func (c *serverCreds) Clone() credentials.TransportCredentials {
	return &serverCreds{c.TransportCredentials.Clone()}
}

// heldConn stays open while hold is set.
type heldConn struct {
	net.Conn
	hold bool
}

// Close implements [net.Conn].
func (c *heldConn) Close() error {
	if c.hold {
		return nil
	}
	return c.Conn.Close()
}
