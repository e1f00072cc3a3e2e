package table_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/monolith-go/monolith/ps/table"
)

// TestBorrow: snapshot writers work with so many bytes together. Those that wait are served in their order, one that gives up is forgotten, and
// one that wants more than there is gets all.
func TestBorrow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := table.NewMemory(table.MemoryOptions{Limit: 1 << 30, Work: 100})
		borrow := func(ctx context.Context, n int64) <-chan *table.Work {
			out := make(chan *table.Work, 1)
			go func() {
				w, err := m.Borrow(ctx, n)
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				out <- w
			}()
			synctest.Wait()
			return out
		}
		served := func(what string, c <-chan *table.Work, want bool) *table.Work {
			t.Helper()
			synctest.Wait()
			select {
			case w := <-c:
				if !want {
					t.Errorf("%s does not wait", what)
				}
				return w
			default:
				if want {
					t.Errorf("%s waits", what)
				}
				return nil
			}
		}
		a := served("the first", borrow(t.Context(), 60), true)
		if !a.Extend(30) || a.Extend(20) {
			t.Error("90 bytes are extended by 20, or 60 not by 30")
		}
		second := borrow(t.Context(), 50)
		ctx, cancel := context.WithCancel(t.Context())
		given := borrow(ctx, 5)
		third := borrow(t.Context(), 10)
		served("the second", second, false)
		served("the third, behind it", third, false)
		if a.Extend(1) {
			t.Error("a writer takes what another one waits for")
		}
		cancel()
		if w := served("the one that gives up", given, true); w != nil {
			t.Error("it got memory")
		}
		a.Release()
		b, c := served("the second", second, true), served("the third", third, true)
		large := borrow(t.Context(), 1000)
		served("a large one", large, false)
		b.Release()
		served("a large one", large, false)
		c.Release()
		d := served("a large one", large, true)
		e := borrow(t.Context(), 1)
		served("one beside the large one", e, false)
		d.Release()
		served("one after the large one", e, true).Release()
		if w, err := (*table.Memory)(nil).Borrow(t.Context(), 1<<40); err != nil || !w.Extend(1<<40) {
			t.Errorf("without a bound: %v", err)
		}
	})
}

// TestReclaimBeforeRefusing: before rows are refused because the machine has too little left, the process gives back what it does not use.
func TestReclaimBeforeRefusing(t *testing.T) {
	t.Parallel()
	for _, helps := range []bool{false, true} {
		free, reclaimed := int64(1<<20), 0
		m := table.NewMemory(table.MemoryOptions{
			Limit: 1 << 30, Free: func() (int64, bool) { return free, true }, Least: 1 << 20,
			Reclaim: func() {
				if reclaimed++; helps {
					free = 1 << 30
				}
			},
		})
		tab := table.New(adagrad(8), 1, m)
		err := tab.Reserve(400_000)
		if full := errors.Is(err, table.ErrFull); full == helps || reclaimed == 0 {
			t.Errorf("reclaiming helps: %v; it was done %d times, and then: %v", helps, reclaimed, err)
		}
		tab.Close()
	}
}
