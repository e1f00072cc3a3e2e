package kafkawire

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go/sasl"
)

// Network is how to connect.
type Network struct {
	ClientID string
	Timeout  time.Duration
	TLS      func() *tls.Config // of a connection, which owns it; nil: plain text
	SASL     sasl.Mechanism     // nil: anonymous
	// Config is wrapped by errors that only a change of the configuration fixes.
	Config error
	// Keys is what the keys tls and brokers of the configuration begin with, for errors that name them.
	Keys string
}

// Conn is one connection to a broker. It is not for concurrent use and starts no goroutine. kafka-go's Transport would
// route requests, but hides why a connection failed, refreshes its picture of the cluster when it likes, and keeps
// goroutines that nobody can join.
type Conn struct {
	net      Network
	addr     string
	nc       net.Conn
	rd       *bufio.Reader
	versions map[APIKey][2]int16 // what the broker speaks
	seq      int32
	answered bool // a request behind the greeting had its answer
	broken   bool // an exchange was interrupted: no more can be sent
}

// dial connects, negotiates versions and authenticates. Errors: Network.Config for certificates and credentials
// that are refused; others may pass.
func dial(ctx context.Context, n Network, addr string) (*Conn, error) {
	d := net.Dialer{Timeout: n.Timeout}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("broker %s: %w", addr, err)
	}
	if n.TLS != nil {
		tc := n.TLS()
		if tc.ServerName == "" {
			tc.ServerName, _, _ = net.SplitHostPort(addr)
		}
		nc = tls.Client(nc, tc)
	}
	c := &Conn{net: n, addr: addr, nc: nc, rd: bufio.NewReaderSize(nc, 64<<10)}
	if err := c.hello(ctx); err != nil {
		_ = c.Close() // the first error is the one that matters
		return nil, err
	}
	return c, nil
}

// Close ends the connection.
func (c *Conn) Close() error {
	c.broken = true
	return c.nc.Close()
}

// during runs one exchange. It ends early, and the connection with it, when ctx ends or the time is up.
func (c *Conn) during(ctx context.Context, limit time.Duration, exchange func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := c.nc.SetDeadline(time.Now().Add(limit))
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = c.nc.SetDeadline(time.Unix(1, 0)) })
		err = exchange()
		if !stop() {
			c.broken = true // its deadline is past, or soon will be
			if err != nil {
				return context.Cause(ctx)
			}
		}
	}
	if err != nil {
		c.broken = true
		return fmt.Errorf("broker %s: %w", c.addr, err)
	}
	return nil
}

func (c *Conn) hello(ctx context.Context) error {
	if tc, ok := c.nc.(*tls.Conn); ok {
		err := c.during(ctx, c.net.Timeout, func() error { return tc.HandshakeContext(ctx) })
		// A broker takes the greeting of TLS for a request of absurd size, and hangs up or waits for the rest of it.
		if hungUp(err) || errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("%w (no answer to TLS: if the listener is one of plain text, take %stls out, or name the port of the listener with TLS)", err, c.net.Keys)
		}
		if err != nil {
			return c.certFault(err)
		}
	}
	body, err := c.Exchange(ctx, Versions, 0, false, nil, 0, nil, 1<<20)
	var size TooLarge
	switch plain := c.net.TLS == nil; {
	case errors.As(err, &size) && size == sizeOfHTTP:
		return fmt.Errorf("broker %s: an HTTP server answers here, no Kafka broker: name the port of Kafka's listener in %sbrokers", c.addr, c.net.Keys)
	case errors.As(err, &size) && size>>16 == sizeOfAlert && plain:
		return fmt.Errorf("broker %s: the listener wants TLS: set %stls: %w", c.addr, c.net.Keys, c.net.Config)
	case errors.As(err, &size), errors.Is(err, ErrWire), hungUp(err), errors.Is(err, os.ErrDeadlineExceeded):
		hint := "is this the port of a Kafka listener?"
		if plain {
			hint = fmt.Sprintf("does the listener want TLS (%stls), or is it none of Kafka's?", c.net.Keys)
		}
		return fmt.Errorf("%s (%s)", err, hint) //nolint:errorlint // what answers may change, so its size alone is no fault
	}
	if err != nil {
		return c.certFault(err) // in TLS 1.3 the verdict on our certificate comes with the first answer
	}
	if c.versions, err = decodeVersions(body); err != nil {
		return fmt.Errorf("broker %s: versions: %w", c.addr, err)
	}
	if c.net.SASL == nil {
		return nil
	}
	return c.authenticate(ctx)
}

// What the first bytes of other protocols are as the size of an answer: "HTTP", and a TLS alert of any version 3.
const (
	sizeOfHTTP  = TooLarge(0x48545450)
	sizeOfAlert = TooLarge(0x1503)
)

// hungUp reports whether the other side ended the connection.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// certFault marks what waiting does not fix.
func (c *Conn) certFault(err error) error {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		alert     *net.OpError
		header    tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &header):
		return fmt.Errorf("%w (the listener speaks no TLS: take %stls out, or name the port of the listener with TLS): %w", err, c.net.Keys, c.net.Config)
	case errors.As(err, &authority):
		return fmt.Errorf("%w; name the authority's certificate in %stls.ca: %w", err, c.net.Keys, c.net.Config)
	case errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &verify),
		errors.As(err, &alert) && alert.Op == "remote error": // how crypto/tls marks the other side's alerts
		return fmt.Errorf("%w: %w", err, c.net.Config)
	}
	return err
}

// authenticate runs the SASL exchange, https://kafka.apache.org/protocol#sasl_handshake.
func (c *Conn) authenticate(ctx context.Context) error {
	name := c.net.SASL.Name()
	b, err := c.Call(ctx, SASLHandshake, saslHandshakeVersion, encodeSASLHandshake(name))
	if err != nil {
		return err
	}
	offers, code, err := decodeSASLHandshake(b)
	switch {
	case err != nil:
		return c.Malformed(SASLHandshake, err)
	case code != 0 && len(offers) == 0:
		return fmt.Errorf("broker %s: the listener takes no log-in: take %ssasl out, or name the port of the listener with one: %w", c.addr, c.net.Keys, c.net.Config)
	case code != 0:
		return fmt.Errorf("broker %s: it offers %q for authentication, not %q: choose one of them in %ssasl.mechanism: %w", c.addr, offers, name, c.net.Keys, c.net.Config)
	}
	host, _, _ := net.SplitHostPort(c.addr)
	machine, state, err := c.net.SASL.Start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: host}))
	for done := false; err == nil && !done; {
		b, err = c.Call(ctx, SASLAuthenticate, saslAuthenticatePlain, encodeSASLAuthenticate(state))
		if err != nil {
			// Brokers, and kfake, may close the connection instead of answering.
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return fmt.Errorf("broker %s: it closed the connection during %s authentication; check user and password in %ssasl: %w", c.addr, name, c.net.Keys, c.net.Config)
			}
			return err
		}
		data, message, code, err2 := decodeSASLAuthenticate(b)
		switch {
		case err2 != nil:
			return c.Malformed(SASLAuthenticate, err2)
		case code != 0:
			return fmt.Errorf("broker %s: %s authentication: %w: %s; check user, password and mechanism in %ssasl: %w", c.addr, name, code, message, c.net.Keys, c.net.Config)
		}
		done, state, err = machine.Next(ctx, data)
	}
	if err != nil {
		return fmt.Errorf("broker %s: %s authentication: %w: %w", c.addr, name, err, c.net.Config)
	}
	return nil
}

// Addr is where the broker is.
func (c *Conn) Addr() string { return c.addr }

// Range returns the versions of a request that the broker has; both are 0 where it has none.
func (c *Conn) Range(key APIKey) (low, high int16) {
	have := c.versions[key]
	return have[0], have[1]
}

// Version chooses the last of the given versions of a request that the broker has.
func (c *Conn) Version(key APIKey, versions ...int16) (int16, error) {
	have, ok := c.versions[key]
	for _, v := range slices.Backward(versions) {
		if ok && have[0] <= v && v <= have[1] {
			return v, nil
		}
	}
	return 0, fmt.Errorf("broker %s: no common version of the %s request: %w", c.addr, key, c.net.Config)
}

// maxAnswer bounds answers to everything but fetches: more than the largest clusters need.
const maxAnswer = 64 << 20

// Call sends the body of a request of the older layout and returns that of the answer.
func (c *Conn) Call(ctx context.Context, key APIKey, version int16, body []byte) ([]byte, error) {
	return c.Send(ctx, key, version, false, body)
}

// Send is [Conn.Call] for either layout; flex: the flexible one.
func (c *Conn) Send(ctx context.Context, key APIKey, version int16, flex bool, body []byte) ([]byte, error) {
	if _, err := c.Version(key, version); err != nil {
		return nil, err
	}
	b, err := c.Exchange(ctx, key, version, flex, body, 0, nil, maxAnswer)
	if _, ok := errors.AsType[TooLarge](err); ok {
		return nil, c.Malformed(key, fmt.Errorf("%w: %s", ErrWire, err)) //nolint:errorlint // not the verdict on a batch
	}
	return b, err
}

// Malformed makes an error of an answer that cannot be decoded, after which the connection is not used again.
func (c *Conn) Malformed(key APIKey, err error) error {
	c.broken = true
	return fmt.Errorf("broker %s: %s: %w", c.addr, key, err)
}

// Answer returns a function that passes a decoded answer on and says of an error whose it was.
func Answer[T any](m T, err error) func(c *Conn, key APIKey) (T, error) {
	return func(c *Conn, key APIKey) (T, error) {
		if err != nil {
			err = c.Malformed(key, err)
		}
		return m, err
	}
}

// TooLarge describes how large an answer is that exceeds the limit.
type TooLarge int64

// peekBytes is how much is read of an answer that is too large: enough for the header of its first batch.
const peekBytes = 4 << 10

func (e TooLarge) Error() string { return fmt.Sprintf("answer of %d bytes", int64(e)) }

// Exchange sends a request whose body is encoded already and returns the body of the answer, in buf if that is large
// enough. Waiting takes up to wait beyond the usual time. Errors: TooLarge for answers of more than limit bytes, with the
// beginning of the answer.
func (c *Conn) Exchange(ctx context.Context, key APIKey, version int16, flex bool, body []byte, wait time.Duration, buf []byte, limit int64) ([]byte, error) {
	large := TooLarge(0)
	err := c.during(ctx, c.net.Timeout+wait, func() error {
		c.seq++
		e := Encoder{B: make([]byte, 4, 64+len(body))}
		e.Int16(int16(key))
		e.Int16(version)
		e.Int32(c.seq)
		e.Text(c.net.ClientID) // never compact, also in flexible headers
		e.Flex = flex
		e.Tags()
		e.Bytes(body)
		binary.BigEndian.PutUint32(e.B, uint32(len(e.B)-4))
		if _, err := c.nc.Write(e.B); err != nil {
			return err
		}
		var head [4]byte
		if _, err := io.ReadFull(c.rd, head[:]); err != nil {
			return err
		}
		size := int64(int32(binary.BigEndian.Uint32(head[:])))
		if size > limit {
			large, size = TooLarge(size), peekBytes
		}
		if size < 4 {
			return ErrWire
		}
		// Memory follows what has come, not what was announced.
		for buf = buf[:0]; int64(len(buf)) < size; {
			have := len(buf)
			n := int(min(size, max(int64(cap(buf)), int64(2*have), 1<<20)))
			buf = slices.Grow(buf, n-have)[:n]
			if _, err := io.ReadFull(c.rd, buf[have:]); err != nil {
				return err
			}
		}
		d := Decoder{B: buf, Flex: flex}
		if d.Int32() != c.seq {
			return fmt.Errorf("%w: it answers another request", ErrWire)
		}
		d.Tags(nil)
		buf = d.B
		return d.Err
	})
	if large > 0 { // its rest is still on its way
		c.broken = true
		return buf, fmt.Errorf("broker %s: %w", c.addr, large)
	}
	if err != nil {
		// Brokers say which versions they have to anybody, and hang up at the next request of who should have logged in.
		if c.versions != nil && !c.answered && c.net.SASL == nil && hungUp(err) {
			err = fmt.Errorf("%w (it hung up at the first request: if the listener wants a log-in, set %ssasl)", err, c.net.Keys)
		}
		return nil, err
	}
	c.answered = c.versions != nil
	return buf, nil
}
