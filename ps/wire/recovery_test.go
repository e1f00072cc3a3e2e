package wire_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/wire"
)

// panicConn panics when it is asked to.
type panicConn struct {
	fakeConn
	on atomic.Bool
}

func (c *panicConn) Control(ctx context.Context, ctl []ps.Control) (ps.Reply, error) {
	if c.on.Load() {
		panic("secret")
	}
	return c.fakeConn.Control(ctx, ctl)
}

// TestPanicEndsItsCallOnly: the caller is notified of a fault without its value, the session is given back, and others continue.
func TestPanicEndsItsCallOnly(t *testing.T) {
	t.Parallel()
	r := serve(t, newHost(), remoteOptions{})
	defer r.close(t)
	bad, good := &panicConn{}, &fakeConn{}
	one, err := wire.Dial(t.Context(), r.cc, wire.Hello{Session: r.host.add(bad)}, wire.ConnOptions{RetryFor: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	two, err := wire.Dial(t.Context(), r.cc, wire.Hello{Session: r.host.add(good)}, wire.ConnOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bad.on.Store(true)
	if _, err := one.Control(t.Context(), nil); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "fault of its own") {
		t.Errorf("the call that panicked: %v", err)
	}
	if _, err := two.Control(t.Context(), nil); err != nil {
		t.Errorf("another stream: %v", err)
	}
	r.host.check(t)
	if err := errors.Join(two.Close(t.Context(), true)); err != nil {
		t.Error(err)
	}
	_ = one.Close(t.Context(), false) // its stream is gone
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	for session, used := range r.host.inUse {
		if used {
			t.Errorf("session %d was not given back", session)
		}
	}
}

// TestPanicInOpen: a session whose opening panicked is opened again.
func TestPanicInOpen(t *testing.T) {
	t.Parallel()
	h := newHost()
	first := true
	h.open = func(wire.Hello) error {
		if first {
			first = false
			panic("secret")
		}
		return nil
	}
	r := serve(t, h, remoteOptions{})
	defer r.close(t)
	// Dial tries again what the server met a fault of its own in.
	c, err := wire.Dial(t.Context(), r.cc, wire.Hello{Session: h.add(&fakeConn{})}, wire.ConnOptions{MinBackoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if first {
		t.Error("nothing has panicked")
	}
	if err := c.Close(t.Context(), true); err != nil {
		t.Error(err)
	}
}
