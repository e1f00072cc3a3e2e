package rpc_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/rpc"
)

// lockedLog is a log that calls at the same time write to.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *lockedLog) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), words)
}

// TestAnOutageIsLoggedOnce: calls that are made again and again, several at a time, while shard 0 is away are one line, and that it is back another.
func TestAnOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	c, err := start(t.Context(), coordinator.Options{Layout: pstest.SmallJob().Layout(), NumShards: 1, Dir: t.TempDir()}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log lockedLog
	r, err := rpc.Dial(t.Context(), rpc.Options{Identity: c.id, Layout: pstest.SmallJob().Layout(), Addrs: c.addrs, RetryFor: 20 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	said := func(when string, waits, answers int) {
		t.Helper()
		if w, a := log.count("waiting for the parameter server"), log.count("the parameter server answers again"); w != waits || a != answers {
			t.Errorf("%s: said to be waited for %d times, and to answer again %d times; want %d and %d: %s", when, w, a, waits, answers, &log.text)
		}
	}
	for outage := 1; outage <= 2; outage++ {
		c.servers[0].Stop()
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				for range 5 {
					if _, err := r.Progress(t.Context(), "examples"); !errors.Is(err, ps.ErrUnreachable) {
						t.Errorf("without a shard: %v", err)
					}
				}
			})
		}
		calls.Wait()
		said("while it is away", outage, outage-1)
		s, err := rpc.NewServer(c.options[0])
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", c.addrs[0])
		if err != nil {
			t.Fatal(err)
		}
		c.servers[0] = s
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		defer func() {
			s.Stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		}()
		for {
			if _, err := r.Progress(t.Context(), "examples"); err == nil {
				break
			} else if t.Context().Err() != nil {
				t.Fatal(err)
			}
		}
		said("when it is back", outage, outage)
	}
	if err := errors.Join(r.Close(t.Context()), c.Close(t.Context())); err != nil {
		t.Error(err)
	}
}
