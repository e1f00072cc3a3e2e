package trainstep

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/pipeline/position"
)

// turns lets workers of one process begin one after the other. A gradient lacks the updates of the batches that others are at,
// and while rules still make large steps (those of Adagrad and Adam shrink with their number) many workers push the same way at once and go too far:
// four workers over 195 batches of MovieLens ended .0014 below one in the AUC of all examples. So one that finds others at work waits with
// its first batch until they have trained on as many examples as makes up for it.
type turns struct {
	wanted func(others int64) (examples int64)

	mu       sync.Mutex
	working  []*lookup // in the order of their first batches
	examples int64     // of all
}

const (
	turnsPoll = 5 * time.Millisecond
	turnsIdle = 100 * time.Millisecond
	// turnsStall is how long a worker waits while none of the others begins a batch: they have none, or wait for this one.
	turnsStall = time.Second
	// turnsLongest is how long it waits in all: what it was given may be a partition of a slow stream that nobody else reads.
	turnsLongest = 30 * time.Second
)

// resumed is what tells a worker that continues from one that begins, and what it does meanwhile. [*ps.Client] is one.
type resumed interface {
	Applied(source, split string) position.Position
	Idle(ctx context.Context) error
}

// enter counts the examples of a batch. Before a worker's first one it waits for its turn, unless the batch's split was trained on before. Errors: the
// context's, those of the store.
func (t *turns) enter(ctx context.Context, l *lookup, source, split string, examples int) error {
	t.mu.Lock()
	begins := !slices.Contains(t.working, l)
	if begins {
		t.working = append(t.working, l)
	}
	t.mu.Unlock()
	if begins {
		store, ok := l.store.(resumed)
		if !ok || store.Applied(source, split) == position.None {
			if err := t.wait(ctx, l, store); err != nil {
				return err
			}
		}
	}
	t.mu.Lock()
	t.examples += int64(examples)
	t.mu.Unlock()
	return nil
}

func (t *turns) wait(ctx context.Context, l *lookup, store resumed) error {
	begun := time.Now()
	last, since, idled := int64(-1), begun, begun
	var tick *time.Ticker
	for {
		t.mu.Lock()
		examples, wanted := t.examples, t.wanted(int64(slices.Index(t.working, l)))
		t.mu.Unlock()
		now := time.Now()
		if examples != last {
			last, since = examples, now
		}
		if examples >= wanted || now.Sub(since) >= turnsStall || now.Sub(begun) >= turnsLongest {
			return nil
		}
		// Without queues pushes are made by this goroutine, which then has to pass on a snapshot's marker: the others wait for it.
		if store != nil && !l.stage.ahead && now.Sub(idled) >= turnsIdle {
			if err := store.Idle(ctx); err != nil {
				return err
			}
			idled = now
		}
		if tick == nil {
			tick = time.NewTicker(turnsPoll)
			defer tick.Stop()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leave says that a worker is done.
func (t *turns) leave(l *lookup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.working = slices.DeleteFunc(t.working, func(x *lookup) bool { return x == l })
}
