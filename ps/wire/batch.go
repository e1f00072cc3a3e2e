package wire

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"
)

// batchSize is how much a batch holds, bytes.
const batchSize = 128 << 10

// batch is the connection below TLS, which writes each of its records, of 16 KiB at most, by a call of the kernel of its own: what is written between gather and flush goes in few. The zero value
// with a connection is ready. It holds nothing outside of these calls, so that what TLS writes by itself (a handshake, an alert, an update of keys) needs nobody.
type batch struct {
	net.Conn

	mu     sync.Mutex // writers are in turn by TLS's own lock; this one is against gather and flush
	gather bool
	buf    []byte
	err    error
}

// batchOf finds the batch below a connection over TLS; nil where there is none.
func batchOf(c net.Conn) *batch {
	encrypted, ok := c.(*tls.Conn)
	if !ok {
		return nil
	}
	switch below := encrypted.NetConn().(type) {
	case *batch:
		return below
	case *heldConn:
		return &below.batch
	}
	return nil
}

// begin keeps what is written from now on until flush, or until it is a batch.
func (b *batch) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buf == nil {
		b.buf = make([]byte, 0, batchSize)
	}
	b.gather = true
}

// flush writes what was kept. Errors: of all writes since begin.
func (b *batch) flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gather = false
	b.out()
	err := b.err
	b.err = nil
	return err
}

// out writes what was kept, unless a write has failed.
func (b *batch) out() {
	if len(b.buf) > 0 && b.err == nil {
		if _, err := b.Conn.Write(b.buf); err != nil {
			b.err = fmt.Errorf("wire: %w", err)
		}
	}
	b.buf = b.buf[:0]
}

// Write implements [net.Conn].
func (b *batch) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.gather {
		return b.Conn.Write(p)
	}
	if len(b.buf)+len(p) > cap(b.buf) {
		b.out()
	}
	if b.err != nil {
		return 0, b.err
	}
	if len(p) > cap(b.buf) {
		return b.Conn.Write(p)
	}
	b.buf = append(b.buf, p...)
	return len(p), nil
}
