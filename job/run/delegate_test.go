package run

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
)

// TestDelegation has executors elsewhere follow a member: they get the way the run is to end, their member gets the tasks that have
// ended, and they stop when it is gone for long, not when it is back in time.
func TestDelegation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := coordinator.Open(t.Context(), coordinator.Options{Dir: t.TempDir(), NumShards: 1, Layout: &param.Layout{Tables: []param.Table{{
			Name: "t", Segments: []param.Segment{{Name: "w", Dim: 1, Optimizer: optim.SGD{LR: 1}}},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		ctx := t.Context()
		who := ps.JoinOptions{Worker: "w", Source: "s", Splits: []string{"0"}}
		m, err := enrol(ctx, c, who, 0, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { m.close() }()
		if err := m.delegate(ctx, "run", ps.Continue); err != nil {
			t.Fatal(err)
		}
		const lease = 400 * time.Millisecond
		of := &recipe{Run: "run", Worker: "w"}
		heard := make(chan string, 10)
		follow := func(ctx context.Context) <-chan error {
			over := make(chan error, 1)
			say := func(what string) func() { return func() { heard <- what } }
			go func() { over <- of.follow(ctx, c, lease, say("drain"), say("stop"), say("enough")) }()
			return over
		}
		wants := func(what string) {
			t.Helper()
			select {
			case got := <-heard:
				if got != what {
					t.Errorf("heard %s, want %s", got, what)
				}
			case <-time.After(3 * time.Minute):
				t.Fatalf("%s is not heard", what)
			}
		}
		over := follow(ctx)
		for how, what := range []string{ps.Drain: "drain", ps.Stop: "stop", ps.Enough: "enough"} {
			if what == "" {
				continue
			}
			if err := m.delegate(ctx, "run", ps.Ending(how)); err != nil {
				t.Fatal(err)
			}
			wants(what)
		}

		// All tasks have ended once each has, however often it says so.
		short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		if err := m.allEnded(short, "run", 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nothing has ended: %v", err)
		}
		stop()
		for _, task := range []int{1, 1, 0} {
			if _, err := c.Follow(ctx, "w", "run", ps.Enough, []int{task}); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.allEnded(ctx, "run", 2); err != nil {
			t.Error(err)
		}

		// A member that is away for less than its lease, as while its coordinator is started again, is waited for.
		m.close()
		if _, err := c.Leave(ctx, m.id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lease / 2)
		if m, err = enrol(ctx, c, who, 0, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		if err := m.delegate(ctx, "run", ps.Drain); err != nil {
			t.Fatal(err)
		}
		wants("drain")
		select {
		case err := <-over:
			t.Fatalf("the executors stop though their member is there: %v", err)
		default:
		}
		// One that delegates something else is not.
		gone := time.Now()
		if err := m.delegate(ctx, "another", ps.Continue); err != nil {
			t.Fatal(err)
		}
		if err := <-over; !errors.Is(err, ps.ErrFenced) || time.Since(gone) < 2*lease {
			t.Errorf("%v after %v, want ErrFenced after %v", err, time.Since(gone), 2*lease)
		}
		if err := m.allEnded(ctx, "another", 0); err != nil {
			t.Error(err)
		}

		// Executors that have ended follow no more.
		ended, end := context.WithCancel(ctx)
		over = follow(ended)
		end()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}
