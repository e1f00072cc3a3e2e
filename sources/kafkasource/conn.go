package kafkasource

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

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/monolith-go/monolith/pipeline"
)

// network is how to connect: the options with their files read.
type network struct {
	clientID string
	timeout  time.Duration
	tls      *tls.Config
	sasl     sasl.Mechanism
}

// conn is one connection to a broker. It is not for concurrent use and starts no goroutine. kafka-go's Transport would
// route requests, but hides why a connection failed, refreshes its picture of the cluster when it likes, and keeps
// goroutines that nobody can join.
type conn struct {
	net      network
	addr     string
	nc       net.Conn
	rd       *bufio.Reader
	versions map[apiKey][2]int16 // what the broker speaks
	seq      int32
	broken   bool // an exchange was interrupted: no more can be sent
}

// dial connects, negotiates versions and authenticates. Errors: [pipeline.ErrConfig] for certificates and credentials
// that are refused; others may pass.
func dial(ctx context.Context, n network, addr string) (*conn, error) {
	d := net.Dialer{Timeout: n.timeout}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("broker %s: %w", addr, err)
	}
	if n.tls != nil {
		tc := n.tls
		if tc.ServerName == "" {
			tc = tc.Clone()
			tc.ServerName, _, _ = net.SplitHostPort(addr)
		}
		nc = tls.Client(nc, tc)
	}
	c := &conn{net: n, addr: addr, nc: nc, rd: bufio.NewReaderSize(nc, 64<<10)}
	if err := c.hello(ctx); err != nil {
		_ = c.close() // the first error is the one that matters
		return nil, err
	}
	return c, nil
}

func (c *conn) close() error {
	c.broken = true
	return c.nc.Close()
}

// during runs one exchange. It ends early, and the connection with it, when ctx ends or the time is up.
func (c *conn) during(ctx context.Context, limit time.Duration, exchange func() error) error {
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

func (c *conn) hello(ctx context.Context) error {
	if tc, ok := c.nc.(*tls.Conn); ok {
		err := c.during(ctx, c.net.timeout, func() error { return tc.HandshakeContext(ctx) })
		// A broker takes the greeting of TLS for a request of absurd size, and hangs up or waits for the rest of it.
		if hungUp(err) || errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("%w (no answer to TLS: if the listener is one of plain text, take source.kafka.tls out, or name the port of the listener with TLS)", err)
		}
		if err != nil {
			return certFault(err)
		}
	}
	body, err := c.exchange(ctx, apiVersions, 0, false, nil, 0, nil, 1<<20)
	var size errTooLarge
	switch plain := c.net.tls == nil; {
	case errors.As(err, &size) && size == sizeOfHTTP:
		return fmt.Errorf("broker %s: an HTTP server answers here, no Kafka broker: name the port of Kafka's listener in source.kafka.brokers", c.addr)
	case errors.As(err, &size) && size>>16 == sizeOfAlert && plain:
		return fmt.Errorf("broker %s: the listener wants TLS: set source.kafka.tls", c.addr)
	case errors.As(err, &size), errors.Is(err, errWire), hungUp(err):
		hint := "is this the port of a Kafka listener?"
		if plain {
			hint = "does the listener want TLS (source.kafka.tls), or is it none of Kafka's?"
		}
		return fmt.Errorf("%s (%s)", err, hint) //nolint:errorlint // what answers may change, so its size is no reason to give up
	}
	if err != nil {
		return certFault(err) // in TLS 1.3 the verdict on our certificate comes with the first answer
	}
	d := decoder{b: body}
	if code := kafka.Error(d.int16()); code != 0 {
		return fmt.Errorf("broker %s: versions: %w", c.addr, code)
	}
	c.versions = map[apiKey][2]int16{}
	for n := d.array(6); n > 0; n-- {
		c.versions[apiKey(d.int16())] = [2]int16{d.int16(), d.int16()}
	}
	if d.err != nil {
		return fmt.Errorf("broker %s: versions: %w", c.addr, d.err)
	}
	if c.net.sasl == nil {
		return nil
	}
	return c.authenticate(ctx)
}

// What the first bytes of other protocols are as the size of an answer: "HTTP", and a TLS alert of any version 3.
const (
	sizeOfHTTP  = errTooLarge(0x48545450)
	sizeOfAlert = errTooLarge(0x1503)
)

// hungUp tells that the other side ended the connection.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// certFault marks what waiting does not mend.
func certFault(err error) error {
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
		return fmt.Errorf("%w (the listener speaks no TLS: take source.kafka.tls out, or name the port of the listener with TLS): %w", err, pipeline.ErrConfig)
	case errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &verify),
		errors.As(err, &alert) && alert.Op == "remote error": // how crypto/tls marks the other side's alerts
		return fmt.Errorf("%w: %w", err, pipeline.ErrConfig)
	}
	return err
}

// authenticate runs the SASL exchange, https://kafka.apache.org/protocol#sasl_handshake.
func (c *conn) authenticate(ctx context.Context) error {
	name := c.net.sasl.Name()
	b, err := c.call(ctx, apiSASLHandshake, saslHandshakeVersion, encodeSASLHandshake(name))
	if err != nil {
		return err
	}
	offers, code, err := decodeSASLHandshake(b)
	switch {
	case err != nil:
		return c.malformed(apiSASLHandshake, err)
	case code != 0:
		return fmt.Errorf("broker %s: it offers %q for authentication, not %q: %w", c.addr, offers, name, pipeline.ErrConfig)
	}
	host, _, _ := net.SplitHostPort(c.addr)
	machine, state, err := c.net.sasl.Start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: host}))
	for done := false; err == nil && !done; {
		b, err = c.call(ctx, apiSASLAuthenticate, saslAuthenticatePlain, encodeSASLAuthenticate(state))
		if err != nil {
			// Brokers, and kfake, may close the connection instead of answering.
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return fmt.Errorf("broker %s: it closed the connection during %s authentication; check user and password: %w", c.addr, name, pipeline.ErrConfig)
			}
			return err
		}
		data, message, code, err2 := decodeSASLAuthenticate(b)
		switch {
		case err2 != nil:
			return c.malformed(apiSASLAuthenticate, err2)
		case code != 0:
			return fmt.Errorf("broker %s: %s authentication: %w: %s: %w", c.addr, name, code, message, pipeline.ErrConfig)
		}
		done, state, err = machine.Next(ctx, data)
	}
	if err != nil {
		return fmt.Errorf("broker %s: %s authentication: %w: %w", c.addr, name, err, pipeline.ErrConfig)
	}
	return nil
}

// version chooses the last of the given versions of a request that the broker has.
func (c *conn) version(key apiKey, versions ...int16) (int16, error) {
	have, ok := c.versions[key]
	for _, v := range slices.Backward(versions) {
		if ok && have[0] <= v && v <= have[1] {
			return v, nil
		}
	}
	return 0, fmt.Errorf("broker %s: no common version of the %s request: %w", c.addr, key, pipeline.ErrConfig)
}

// maxAnswer bounds answers to everything but fetches: more than the largest clusters need.
const maxAnswer = 64 << 20

// call sends the body of a request of the older layout and returns that of the answer.
func (c *conn) call(ctx context.Context, key apiKey, version int16, body []byte) ([]byte, error) {
	if _, err := c.version(key, version); err != nil {
		return nil, err
	}
	b, err := c.exchange(ctx, key, version, false, body, 0, nil, maxAnswer)
	if _, ok := errors.AsType[errTooLarge](err); ok {
		return nil, c.malformed(key, fmt.Errorf("%w: %s", errWire, err)) //nolint:errorlint // not the verdict on a batch
	}
	return b, err
}

func (c *conn) malformed(key apiKey, err error) error {
	c.broken = true
	return fmt.Errorf("broker %s: %s: %w", c.addr, key, err)
}

// answer returns a function that passes a decoded answer on and says of an error whose it was.
func answer[T any](m T, err error) func(c *conn, key apiKey) (T, error) {
	return func(c *conn, key apiKey) (T, error) {
		if err != nil {
			err = c.malformed(key, err)
		}
		return m, err
	}
}

// errTooLarge says how large an answer is that exceeds the limit.
type errTooLarge int64

// peekBytes is how much is read of an answer that is too large: enough for the header of its first batch.
const peekBytes = 4 << 10

func (e errTooLarge) Error() string { return fmt.Sprintf("answer of %d bytes", int64(e)) }

// exchange sends a request whose body is encoded already and returns the body of the answer, in buf if that is large
// enough. Waiting takes up to wait beyond the usual time. Errors: errTooLarge for answers of more than limit bytes, with the
// beginning of the answer.
func (c *conn) exchange(ctx context.Context, key apiKey, version int16, flex bool, body []byte, wait time.Duration, buf []byte, limit int64) ([]byte, error) {
	large := errTooLarge(0)
	err := c.during(ctx, c.net.timeout+wait, func() error {
		c.seq++
		e := encoder{b: make([]byte, 4, 64+len(body))}
		e.int16(int16(key))
		e.int16(version)
		e.int32(c.seq)
		e.string(c.net.clientID) // never compact, also in flexible headers
		e.flex = flex
		e.tags()
		e.bytes(body)
		binary.BigEndian.PutUint32(e.b, uint32(len(e.b)-4))
		if _, err := c.nc.Write(e.b); err != nil {
			return err
		}
		var head [4]byte
		if _, err := io.ReadFull(c.rd, head[:]); err != nil {
			return err
		}
		size := int64(int32(binary.BigEndian.Uint32(head[:])))
		if size > limit {
			large, size = errTooLarge(size), peekBytes
		}
		if size < 4 {
			return errWire
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
		d := decoder{b: buf, flex: flex}
		if d.int32() != c.seq {
			return fmt.Errorf("%w: it answers another request", errWire)
		}
		d.tags(nil)
		buf = d.b
		return d.err
	})
	if large > 0 { // its rest is still on its way
		c.broken = true
		return buf, fmt.Errorf("broker %s: %w", c.addr, large)
	}
	if err != nil {
		return nil, err
	}
	return buf, nil
}
