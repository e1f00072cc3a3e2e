package local_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/local"
	"github.com/monolith-go/monolith/sources/memsource"
)

// counter is a sink that counts rows; it fails at the given number, 0 never, and waits for its context when it blocks.
type counter struct {
	failAt int
	blocks bool
	mu     sync.Mutex
	rows   int
}

var errFull = errors.New("full")

func (c *counter) String() string { return "count" }

func (c *counter) Fingerprint() string { return "count" }
func (c *counter) Open(context.Context, *pipeline.Env) (pipeline.Writer[*pipeline.Block], error) {
	return c, nil
}

func (c *counter) Write(ctx context.Context, b *pipeline.Block) error {
	defer b.Release()
	if c.blocks {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rows += b.NumRows(); c.failAt > 0 && c.rows >= c.failAt {
		return errFull
	}
	return nil
}
func (c *counter) Flush(context.Context) error { return nil }
func (c *counter) Close() error                { return nil }

func plan(t *testing.T, sinks ...*counter) *pipeline.Plan {
	t.Helper()
	g := pipeline.New("test")
	for i, c := range sinks {
		src := memsource.Records(map[string][][]byte{"a": {{1}, {2}, {3}}, "b": {{4}}}, memsource.Options{MaxRows: 1})
		pipeline.Into(pipeline.Read(g, string(rune('a'+i)), pipeline.Source[*pipeline.Block](src)), "sink"+string(rune('a'+i)), pipeline.Sink[*pipeline.Block](c))
	}
	p, err := g.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRunsEverySegment(t *testing.T) {
	t.Parallel()
	a, b := &counter{}, &counter{}
	stats, err := local.Run(t.Context(), plan(t, a, b), pipeline.RunOptions{Workers: 2})
	if err != nil || len(stats) != 2 || stats[0].Rows != 4 || stats[1].Rows != 4 || a.rows != 4 || b.rows != 4 {
		t.Errorf("stats %+v, %v; rows %d and %d", stats, err, a.rows, b.rows)
	}
	if _, err := local.Run(t.Context(), plan(t, a, b), pipeline.RunOptions{Splits: []pipeline.Split{{Name: "a"}}}); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("splits for two segments: %v", err)
	}
}

func TestOneErrorEndsAllSegments(t *testing.T) {
	t.Parallel()
	_, err := local.Run(t.Context(), plan(t, &counter{failAt: 2}, &counter{blocks: true}), pipeline.RunOptions{})
	if !errors.Is(err, errFull) {
		t.Errorf("got %v, want the error of the first segment", err)
	}
}

func TestCancelReturnsTheCause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(errFull) })
	if _, err := local.Run(ctx, plan(t, &counter{blocks: true}), pipeline.RunOptions{}); !errors.Is(err, errFull) {
		t.Errorf("got %v, want the cause", err)
	}
}
