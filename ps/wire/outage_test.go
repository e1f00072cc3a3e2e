package wire_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/wire"
)

// TestLongCallsAreShownAlive waits longer than CallTimeout for an answer.
func TestLongCallsAreShownAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeConn{control: func(ctx context.Context, _ []ps.Control) (ps.Reply, error) {
			select {
			case <-time.After(time.Hour):
				return ps.Reply{Cut: 1}, nil
			case <-ctx.Done():
				return ps.Reply{}, context.Cause(ctx)
			}
		}}
		r, c := newRemote(t, f, remoteOptions{conn: wire.ConnOptions{OnReconnect: func(_ int, cause error) { t.Errorf("stream broke: %v", cause) }}})
		start := time.Now()
		reply, err := c.Control(t.Context(), nil)
		if took := time.Since(start); err != nil || reply.Cut != 1 || took != time.Hour {
			t.Errorf("after %v: %v, %v", took, reply, err)
		}
		if err := c.Close(t.Context(), true); err != nil {
			t.Error(err)
		}
		r.close(t)
	})
}

// TestSilenceIsNoticed hangs in the server where no heartbeat is sent.
func TestSilenceIsNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Bool
		f := &fakeConn{}
		r, c := newRemote(t, f, remoteOptions{conn: wire.ConnOptions{CallTimeout: 3 * time.Second, RetryFor: 20 * time.Second}})
		r.host.open = func(wire.Hello) error {
			if hang.Load() {
				time.Sleep(8 * time.Second) // two attempts fail meanwhile
				hang.Store(false)
			}
			return nil
		}
		hang.Store(true)
		f.control = func(ctx context.Context, _ []ps.Control) (ps.Reply, error) {
			if hang.Load() {
				<-ctx.Done()
				return ps.Reply{}, context.Cause(ctx)
			}
			return ps.Reply{Cut: 5}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := c.Control(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("after %v: %v, want the context's error at its deadline", time.Since(start), err)
		}
		start = time.Now()
		reply, err := c.Control(t.Context(), nil)
		if took := time.Since(start); err != nil || reply.Cut != 5 || took < 6*time.Second || took > 12*time.Second {
			t.Errorf("after %v: %v, %v", took, reply, err)
		}
		r.close(t)
	})
}

// deafConn loses what is written to it once its network is cut, as behind a cable that was pulled.
type deafConn struct {
	net.Conn
	cut atomic.Bool
}

// Write implements [net.Conn].
func (c *deafConn) Write(p []byte) (int, error) {
	if c.cut.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// TestCutNetwork finds a connection dead that nobody has closed, and continues in another.
func TestCutNetwork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var last atomic.Pointer[deafConn]
		var causes []error
		f := &fakeConn{control: func(context.Context, []ps.Control) (ps.Reply, error) { return ps.Reply{Cut: 2}, nil }}
		r, c := newRemote(t, f, remoteOptions{
			dialed: func(c net.Conn) net.Conn {
				d := &deafConn{Conn: c}
				last.Store(d)
				return d
			},
			conn: wire.ConnOptions{CallTimeout: 4 * time.Second, OnReconnect: func(_ int, cause error) { causes = append(causes, cause) }},
		})
		last.Load().cut.Store(true)
		start := time.Now()
		reply, err := c.Control(t.Context(), nil)
		if took := time.Since(start); err != nil || reply.Cut != 2 || took < 4*time.Second || took > 25*time.Second {
			t.Errorf("after %v: %v, %v", took, reply, err)
		}
		if len(causes) != 1 || len(f.calls()) != 1 {
			t.Errorf("streams begun again because of %v, %d calls arrived", causes, len(f.calls()))
		}
		if err := c.Close(t.Context(), true); err != nil {
			t.Error(err)
		}
		r.close(t)
	})
}

// TestHalvesBreakAlone: where gRPC's connection breaks and not the line, or the line alone, another stream continues the session.
func TestHalvesBreakAlone(t *testing.T) {
	t.Parallel()
	for name, half := range map[string]int{"gRPC": 0, "line": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var dialed []net.Conn
				broke := 0
				f := &fakeConn{control: func(context.Context, []ps.Control) (ps.Reply, error) { return ps.Reply{Cut: 2}, nil }}
				r, c := newRemote(t, f, remoteOptions{
					dialed: func(c net.Conn) net.Conn {
						mu.Lock()
						defer mu.Unlock()
						dialed = append(dialed, c)
						return c
					},
					conn: wire.ConnOptions{OnReconnect: func(int, error) { broke++ }},
				})
				if len(dialed) != 2 {
					t.Fatalf("%d connections, want gRPC's and the line", len(dialed))
				}
				if err := dialed[half].Close(); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // both sides have noticed
				start := time.Now()
				if reply, err := c.Control(t.Context(), nil); err != nil || reply.Cut != 2 || broke != 1 || time.Since(start) > 5*time.Second {
					t.Errorf("after %v: %v, %v, %d streams begun again", time.Since(start), reply, err, broke)
				}
				if err := c.Close(t.Context(), true); err != nil {
					t.Error(err)
				}
				r.close(t)
			})
		})
	}
}

// TestStoppedServerAnswersNothing: what a call comes to because its server stops is no answer to the client, which makes the call elsewhere.
func TestStoppedServerAnswersNothing(t *testing.T) {
	t.Parallel()
	for range 20 {
		entered := make(chan struct{}, 1)
		f := &fakeConn{control: func(ctx context.Context, _ []ps.Control) (ps.Reply, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return ps.Reply{}, context.Cause(ctx)
		}}
		r, c := newRemote(t, f, remoteOptions{conn: wire.ConnOptions{RetryFor: 10 * time.Millisecond}})
		failed := make(chan error, 1)
		go func() {
			_, err := c.Control(t.Context(), nil)
			failed <- err
		}()
		<-entered
		r.srv.Stop()
		if err := <-failed; !errors.Is(err, wire.ErrUnreachable) {
			t.Fatalf("%v, want ErrUnreachable", err)
		}
		_ = c.Close(t.Context(), false)
		r.close(t)
	}
}

// TestUnreachable has nobody listen.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	addr := "unix:" + filepath.Join(t.TempDir(), "nobody")
	cc, err := wire.NewClient(addr, wire.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cc.Close(); err != nil {
			t.Error(err)
		}
	}()
	o := wire.ConnOptions{RetryFor: 50 * time.Millisecond, MinBackoff: time.Millisecond}
	_, err = wire.Dial(t.Context(), cc, wire.Hello{Worker: "w-7", Shard: 4}, o)
	if !errors.Is(err, wire.ErrUnreachable) {
		t.Fatalf("Dial: %v, want ErrUnreachable", err)
	}
	for _, want := range []string{addr, "w-7", "shard 4", "attempts", "monolith ps", "no such file"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	time.AfterFunc(10*time.Millisecond, func() { cancel(stop) })
	if _, err := wire.Dial(ctx, cc, wire.Hello{}, wire.ConnOptions{}); !errors.Is(err, stop) {
		t.Errorf("Dial whose context ends: %v, want its cause", err)
	}
}

// TestCloseDuringACall lets the call end.
func TestCloseDuringACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeConn{control: func(ctx context.Context, _ []ps.Control) (ps.Reply, error) {
			<-ctx.Done()
			return ps.Reply{}, context.Cause(ctx)
		}}
		r, c := newRemote(t, f, remoteOptions{})
		done := make(chan error)
		go func() {
			_, err := c.Control(t.Context(), nil)
			done <- err
		}()
		synctest.Wait()
		if err := c.Close(t.Context(), false); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, ps.ErrClosed) {
			t.Errorf("call under way: %v, want ErrClosed", err)
		}
		if diff := cmp.Diff([]bool{false}, f.closed); diff != "" {
			t.Errorf("closed (-want +got):\n%s", diff)
		}
		r.close(t)
	})
}

// TestCloseDuringAnOutage does not wait until the call has failed.
func TestCloseDuringAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, c := newRemote(t, &fakeConn{}, remoteOptions{})
		r.srv.Stop()
		done := make(chan error)
		go func() {
			_, err := c.Control(t.Context(), nil)
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		if err := c.Close(t.Context(), true); !errors.Is(err, wire.ErrUnreachable) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v, want one that says that the shard was not told", err)
		}
		if err := <-done; !errors.Is(err, ps.ErrClosed) {
			t.Errorf("call under way: %v, want ErrClosed", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		r.close(t)
	})
}

// TestCloseOfASilentShard: a goodbye that has no answer in time says that the shard could not be reached.
func TestCloseOfASilentShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, held := &fakeConn{}, make(chan struct{})
		r, c := newRemote(t, f, remoteOptions{})
		f.control = func(context.Context, []ps.Control) (ps.Reply, error) {
			<-held
			return ps.Reply{}, nil
		}
		called := make(chan struct{})
		go func() { defer close(called); _, _ = c.Control(t.Context(), nil) }()
		synctest.Wait()
		if err := c.Close(t.Context(), true); !errors.Is(err, wire.ErrUnreachable) {
			t.Errorf("Close: %v, want ErrUnreachable", err)
		}
		close(held)
		<-called
		r.close(t)
	})
}

// TestNoGoroutineStays counts them; it is not parallel, so nobody else's are counted.
func TestNoGoroutineStays(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		f := &fakeConn{}
		r, c := newRemote(t, f, remoteOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		f.control = func(ctx context.Context, _ []ps.Control) (ps.Reply, error) {
			cancel()
			<-ctx.Done()
			return ps.Reply{}, context.Cause(ctx)
		}
		if _, err := c.Control(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := c.Close(t.Context(), true); err != nil {
			t.Error(err)
		}
		r.close(t)
	}
	// gRPC's own end on their own, soon after.
	for deadline := time.Now().Add(3 * time.Minute); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}

// ice holds back what comes to a process whose shards are stopped (kill -STOP), while its kernel still takes what goes there.
type ice struct{ wet atomic.Pointer[chan struct{}] }

func (i *ice) freeze() {
	c := make(chan struct{})
	i.wet.Store(&c)
}

func (i *ice) thaw() { close(*i.wet.Load()) }

type iceConn struct {
	net.Conn
	ice    *ice
	closed chan struct{}
	once   sync.Once
}

// Read implements [net.Conn].
func (c *iceConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if wet := c.ice.wet.Load(); wet != nil {
		select {
		case <-*wet:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	return n, err
}

// Close implements [net.Conn].
func (c *iceConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestSilenceSaysWhy: the warning has the last attempt's error, and so has the call's. Both say which process named the address, unless the user did.
func TestSilenceSaysWhy(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"":               "connect: connection refused",
		"shard 0 at a:1": "shard 0 at a:1 says that shard 3 is at b:1, where none answers from here: connect: connection refused",
	} {
		synctest.Test(t, func(t *testing.T) {
			cc, err := wire.NewClient("b:1", wire.ClientConfig{Dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, errors.New("connect: connection refused")
			}})
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			o := wire.ConnOptions{RetryFor: 20 * time.Second, From: from, Logger: slog.New(slog.NewTextHandler(&text, nil))}
			_, err = wire.Dial(t.Context(), cc, wire.Hello{Shard: 3, Worker: "w/0"}, o)
			if text := "shard 3 at b:1 does not answer worker w/0: " + want; !errors.Is(err, wire.ErrUnreachable) || !strings.Contains(err.Error(), text) {
				t.Errorf("%v, want %s", err, text)
			}
			if line := `err="` + want + `"`; strings.Count(text.String(), "waiting for a shard that does not answer") != 1 || !strings.Contains(text.String(), line) {
				t.Errorf("no %s in %s", line, &text)
			}
			if err := cc.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPlaced adds addresses to texts that name a shard without one.
func TestPlaced(t *testing.T) {
	t.Parallel()
	const other = `ps: the jobs have other names: worker w/0 has "c", shard 1 another`
	for text, want := range map[string]string{
		"ps: shard 1 of 12: full":                     "ps: shard 1 of 12 at b:1: full",
		"shard 1: full":                               "shard 1 at b:1: full",
		"ps: shard 1 has no state yet":                "ps: shard 1 at b:1 has no state yet",
		"ps: shard 1 at b:1: full":                    "ps: shard 1 at b:1: full",
		"ps: shard 1, to be added at b:1, must run":   "ps: shard 1, to be added at b:1, must run",
		"ps: shard 12 of 13 at c:1: shard 1 is ahead": "ps: shard 1 at b:1: shard 12 of 13 at c:1: shard 1 is ahead",
		other: `ps: shard 1 at b:1: the jobs have other names: worker w/0 has "c", shard 1 another`,
	} {
		if got := wire.PlacedOrNamed(text, "shard 1 at b:1"); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
	if got, ok := wire.Placed(other, "shard 1 at b:1"); ok || got != other {
		t.Errorf("%t, %s", ok, got)
	}
}

// TestSilenceIsLoggedOnce: a shard that hangs is said to be waited for after some seconds, once for all workers of the process however often they try, and once that
// it answers again; one that hangs for a moment, or is busy for long, is not, and one that is given up does not answer.
func TestSilenceIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		busy := false
		f := &fakeConn{control: func(ctx context.Context, _ []ps.Control) (ps.Reply, error) {
			if busy {
				select {
				case <-time.After(time.Minute):
				case <-ctx.Done():
				}
			}
			return ps.Reply{Cut: 1}, nil
		}}
		var all ice
		r, one := newRemote(t, f, remoteOptions{
			dialed: func(c net.Conn) net.Conn { return &iceConn{Conn: c, ice: &all, closed: make(chan struct{})} },
			conn:   wire.ConnOptions{RetryFor: time.Minute, Logger: slog.New(slog.NewTextHandler(&text, nil))},
		})
		two := r.wrap(t, "w2", 3, &fakeConn{control: f.control})
		waits, answers := 0, 0
		hang := func(d time.Duration, more int) {
			t.Helper()
			if d > 0 {
				all.freeze()
			}
			var calls sync.WaitGroup
			for _, c := range []*wire.Conn{one, two} {
				calls.Go(func() {
					if reply, err := c.Control(t.Context(), nil); err != nil || reply.Cut != 1 {
						t.Errorf("after %v: %v, %v", d, reply, err)
					}
				})
			}
			if d > 0 {
				time.Sleep(d)
				all.thaw()
			}
			calls.Wait()
			waits, answers = waits+more, answers+more
			if w, a := strings.Count(text.String(), "waiting for a shard that does not answer"), strings.Count(text.String(), "the shard answers again"); w != waits || a != answers {
				t.Fatalf("after %v: said to be waited for %d times, and to answer %d times; want %d and %d:\n%s", d, w, a, waits, answers, &text)
			}
		}
		hang(0, 0)
		hang(4*time.Second, 0)
		hang(7*time.Second, 1)
		for _, want := range []string{`shard=3 addr=localhost:1 silent=5s at_most=1m0s err="nothing arrived in time"`, `"the shard answers again" shard=3 addr=localhost:1`} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("no %q in %s", want, &text)
			}
		}
		hang(35*time.Second, 1) // some attempts fail
		busy = true
		hang(0, 0)
		busy = false
		all.freeze()
		if _, err := one.Control(t.Context(), nil); !errors.Is(err, wire.ErrUnreachable) {
			t.Error(err)
		}
		all.thaw()
		waits++
		hang(0, 0)
		if err := errors.Join(one.Close(t.Context(), true), two.Close(t.Context(), true)); err != nil {
			t.Error(err)
		}
		r.close(t)
	})
}
