package rpc_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/rpc"
)

// TestCommandsWaitForOtherShardsAsLongAsTheySay: a change of the number of shards whose new shard does
// not run fails after WaitFor, not after RetryFor, also with answers to other calls in between. The log
// has one line.
func TestCommandsWaitForOtherShardsAsLongAsTheySay(t *testing.T) {
	t.Parallel()
	c, err := start(t.Context(), coordinator.Options{Layout: pstest.SmallJob().Layout(), NumShards: 1, Dir: t.TempDir()}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const waitFor = 700 * time.Millisecond
	for _, x := range []struct {
		name     string
		wait     time.Duration
		atLeast  time.Duration
		warnings int
	}{
		{"once", -1, 0, 0},
		{"for a while", waitFor, waitFor, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			var log lockedLog
			r, err := rpc.Dial(t.Context(), rpc.Options{
				Identity: c.id, Layout: pstest.SmallJob().Layout(), Addrs: c.addrs, RetryFor: 10 * time.Second, WaitFor: x.wait, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			asking, cancel := context.WithCancel(t.Context())
			var others sync.WaitGroup
			others.Go(func() {
				for asking.Err() == nil {
					_, _ = r.Glance(asking)
					_, _ = r.Progress(asking, "examples")
					time.Sleep(10 * time.Millisecond)
				}
			})
			began := time.Now()
			_, err = r.Scale(t.Context(), []string{c.addrs[0], testbed.FreeAddr(t)})
			took := time.Since(began)
			cancel()
			others.Wait()
			if !errors.Is(err, ps.ErrUnreachable) || !strings.Contains(err.Error(), "shard 1, to be added at") || strings.Contains(err.Error(), "ps.retry") {
				t.Errorf("without the new shard: %v", err)
			}
			if took < x.atLeast || took > 8*time.Second {
				t.Errorf("it took %v, want about %v", took, x.wait)
			}
			if w, a := log.count("waiting for the parameter server"), log.count("the parameter server answers again"); w != x.warnings || a != 0 {
				t.Errorf("%d warnings, want %d; %d notes that it answers, want none: %s", w, x.warnings, a, &log.text)
			}
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
