package testbed

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Relay passes connections on to an address: late, where a slow peer is wanted, or not at all, as a cable that was cut. Its methods may overlap. It owns
// goroutines, which Close joins.
type Relay struct {
	l        net.Listener
	addr, to string
	delay    atomic.Int64

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

// NewRelay listens at an address, host:port or unix:path, for another one.
func NewRelay(addr, to string) (*Relay, error) {
	l, err := net.Listen(network(addr))
	if err != nil {
		return nil, fmt.Errorf("testbed: %w", err)
	}
	r := &Relay{l: l, addr: addr, to: to, conns: map[net.Conn]bool{}}
	r.wg.Go(r.accept)
	return r, nil
}

// Addr is where it listens.
func (r *Relay) Addr() string { return r.addr }

// network splits an address for package net.
func network(addr string) (name, address string) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return "unix", path
	}
	return "tcp", addr
}

// Delay makes every byte arrive so much later, either way. Those under way keep the delay that they have.
func (r *Relay) Delay(d time.Duration) { r.delay.Store(int64(d)) }

// Cut breaks all connections and lets none be made until it is called with false.
func (r *Relay) Cut(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	for c := range r.conns {
		_ = c.Close() // who reads from it takes it off the list
	}
}

// Close breaks all connections and stops listening.
func (r *Relay) Close() error {
	err := r.l.Close()
	r.Cut(true)
	r.wg.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("testbed: %w", err)
	}
	return nil
}

func (r *Relay) accept() {
	for {
		in, err := r.l.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { // one who does not answer keeps nobody else waiting
			out, err := net.Dial(network(r.to))
			if err != nil {
				_ = in.Close()
				return
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.cut {
				_, _ = in.Close(), out.Close()
				return
			}
			r.conns[in], r.conns[out] = true, true
			r.wg.Go(func() { r.pass(out, in) })
			r.wg.Go(func() { r.pass(in, out) })
		})
	}
}

// chunk is what has arrived and is passed on when it is due.
type chunk struct {
	b   []byte
	due time.Time
}

// pass carries what one side sends to the other, and ends both when one has ended.
func (r *Relay) pass(to, from net.Conn) {
	queue := make(chan chunk, 64)
	var wg sync.WaitGroup
	wg.Go(func() {
		broken := false
		for c := range queue {
			if !broken {
				time.Sleep(time.Until(c.due))
				_, err := to.Write(c.b)
				broken = err != nil
			}
		}
		_ = to.Close()
	})
	for {
		b := make([]byte, 16<<10)
		n, err := from.Read(b)
		queue <- chunk{b[:n], time.Now().Add(time.Duration(r.delay.Load()))}
		if err != nil {
			break
		}
	}
	close(queue)
	wg.Wait()
	_ = from.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, from)
}
