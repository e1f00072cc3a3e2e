package trainstep_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// turnStore is a store whose split was applied up to a position, and that counts idling.
type turnStore struct {
	*mapStore
	applied position.Position
	idled   atomic.Int64
}

func (s *turnStore) Applied(string, string) position.Position { return s.applied }

func (s *turnStore) Idle(context.Context) error {
	s.idled.Add(1)
	return nil
}

// inTurn makes workers of one stage, each on a store of its own, with batches of 4 examples, of which the third waits for 40 batches and the fourth for 90. The
// function returned begins a batch on a worker and closes the channel when it was looked up.
func inTurn(t *testing.T, mem memory.Allocator, stores ...*turnStore) (
	workers []pipeline.Processor[*pipeline.Batch, *trainstep.Prepared], begin func(ctx context.Context, worker int) chan error,
) {
	t.Helper()
	m := newModel(t, zoo.Config{Name: "lr"})
	opened := 0
	lookup := trainstep.NewLookup(m, func(context.Context, *pipeline.Env) (trainstep.Store, error) {
		opened++
		return stores[opened-1], nil
	}).InTurn(func(others int64) int64 {
		if others < 2 {
			return 0
		}
		return 4 * 10 * others * others
	})
	for _, s := range stores {
		s.mapStore = newMapStore(m.Layout())
		p, err := lookup.Open(t.Context(), &pipeline.Env{})
		if err != nil {
			t.Fatal(err)
		}
		workers = append(workers, p)
	}
	return workers, func(ctx context.Context, worker int) chan error {
		done, in := make(chan error, 1), newBatch(t, mem, 0, 4)
		go func() {
			done <- workers[worker].Process(ctx, in, func(p *trainstep.Prepared) error {
				p.Release()
				return nil
			})
		}()
		synctest.Wait()
		return done
	}
}

func waits(done chan error) bool {
	return len(done) == 0
}

// TestWorkersBeginInTurn: a worker that finds two others waits until all have begun as many batches as it is to wait for, and passes on
// markers meanwhile; one that others make room for begins.
func TestWorkersBeginInTurn(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	synctest.Test(t, func(t *testing.T) {
		stores := make([]*turnStore, 4)
		for i := range stores {
			stores[i] = &turnStore{applied: position.None}
		}
		workers, begin := inTurn(t, mem, stores...)
		batches := 0
		for ; batches < 4; batches++ {
			if waits(begin(t.Context(), batches%2)) {
				t.Fatal("one of the first two waits")
			}
		}
		third := begin(t.Context(), 2)
		for ; batches < 40; batches++ {
			if time.Sleep(500 * time.Millisecond); !waits(third) {
				t.Fatalf("the third worker begins after %d batches", batches)
			}
			begin(t.Context(), batches%2)
		}
		if n := stores[2].idled.Load(); n < 150 || n > 200 {
			t.Errorf("idled %d times in 18 s", n)
		}
		if time.Sleep(10 * time.Millisecond); waits(third) {
			t.Fatalf("the third worker waits after %d batches", batches)
		}
		fourth := begin(t.Context(), 3)
		if time.Sleep(900 * time.Millisecond); !waits(fourth) {
			t.Error("the fourth worker has begun")
		}
		for _, w := range workers[:2] {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if time.Sleep(10 * time.Millisecond); waits(fourth) {
			t.Error("the fourth worker waits, two of the others are done")
		}
		for _, w := range workers[2:] {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestTurnsDoNotLast: nobody waits for workers that begin no batches, with a split that was trained on before, or when the run ends.
func TestTurnsDoNotLast(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	synctest.Test(t, func(t *testing.T) {
		stores := []*turnStore{{applied: position.None}, {applied: position.None}, {applied: position.None}, {applied: 7}, {applied: position.None}}
		workers, begin := inTurn(t, mem, stores...)
		for i := range 2 {
			begin(t.Context(), i)
		}
		third := begin(t.Context(), 2)
		if time.Sleep(900 * time.Millisecond); !waits(third) {
			t.Error("the third worker begins before the others have paused for long")
		}
		if waits(begin(t.Context(), 3)) {
			t.Error("a worker that continues waits")
		}
		if time.Sleep(900 * time.Millisecond); !waits(third) {
			t.Error("the third worker begins while others do")
		}
		if time.Sleep(200 * time.Millisecond); waits(third) {
			t.Error("the third worker waits for ever")
		}
		ends := errors.New("the end")
		ctx, cancel := context.WithCancelCause(t.Context())
		fifth := begin(ctx, 4)
		cancel(ends)
		if err := <-fifth; !errors.Is(err, ends) {
			t.Errorf("got %v", err)
		}
		for _, w := range workers {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestTurnsOfSlowStreams: where batches are few and far between, a worker waits for half a minute and no longer.
func TestTurnsOfSlowStreams(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	synctest.Test(t, func(t *testing.T) {
		workers, begin := inTurn(t, mem, &turnStore{applied: position.None}, &turnStore{applied: position.None}, &turnStore{applied: position.None})
		for i := range 2 {
			begin(t.Context(), i)
		}
		third := begin(t.Context(), 2)
		for i := range 33 {
			if time.Sleep(900 * time.Millisecond); !waits(third) {
				t.Fatalf("the third worker begins after %d ms", 900*(i+1))
			}
			begin(t.Context(), 0)
		}
		if time.Sleep(400 * time.Millisecond); waits(third) {
			t.Error("the third worker waits for more than 30 s")
		}
		for _, w := range workers {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
