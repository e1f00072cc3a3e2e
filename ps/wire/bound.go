package wire

import (
	"net"
	"sync"
)

// Bound takes no more connections of a listener at a time than a server is made for; more wait to be taken.
func Bound(l net.Listener) net.Listener {
	return &bound{Listener: l, room: make(chan struct{}, maxConns), closed: make(chan struct{})}
}

// bound is a listener of so many connections at a time as room has places. Unlike that of package netutil, its connections give what is
// in them, which takes several buffers in one call of the kernel.
type bound struct {
	net.Listener
	room   chan struct{}
	once   sync.Once
	closed chan struct{}
}

// Accept implements [net.Listener].
func (b *bound) Accept() (net.Conn, error) {
	select {
	case b.room <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.room
		return nil, err // gRPC looks at what it is
	}
	return &boundConn{Conn: c, b: b}, nil
}

// Close implements [net.Listener].
func (b *bound) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

// boundConn gives its place back when it is closed.
type boundConn struct {
	net.Conn
	b    *bound
	once sync.Once
}

// Close implements [net.Conn].
func (c *boundConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.b.room })
	return err
}
