package ps

import (
	"context"
	"errors"
	"sync"

	"github.com/monolith-go/monolith/internal/crew"
)

// fan calls all shards of a client at the same time: a goroutine costs a hundredth of what a message or a disk's answer does, and shards of
// this process look up and update on as many cores. Calls may overlap; in the steady state they allocate nothing.
type fan struct {
	mu   sync.Mutex
	idle []*fanCall
}

// fanCall is one call of all shards, with its memory.
type fanCall struct {
	crew.Crew
	ctx  context.Context
	do   func(ctx context.Context, s int) error
	errs []error
}

// each calls do for every shard and joins the errors of all.
func (f *fan) each(ctx context.Context, shards int, do func(ctx context.Context, s int) error) error {
	switch shards {
	case 0:
		return nil
	case 1:
		return do(ctx, 0)
	}
	c := f.take(shards)
	c.ctx, c.do = ctx, do
	c.Do(shards, c)
	err := errors.Join(c.errs[:shards]...)
	clear(c.errs)
	c.ctx, c.do = nil, nil
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle = append(f.idle, c)
	return err
}

// Part implements [crew.Task].
func (c *fanCall) Part(s int) { c.errs[s] = c.do(c.ctx, s) }

// take returns a call of so many shards that nobody has.
func (f *fan) take(shards int) *fanCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	var c *fanCall
	if n := len(f.idle); n > 0 {
		c, f.idle = f.idle[n-1], f.idle[:n-1]
	} else {
		c = &fanCall{}
	}
	if n := shards - len(c.errs); n > 0 {
		c.errs = append(c.errs, make([]error, n)...)
	}
	return c
}
