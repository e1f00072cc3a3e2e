package ps

import (
	"context"
	"errors"
	"sync"
)

// fan calls all shards of a client at the same time: a goroutine costs a hundredth of what a message or a disk's answer does, and shards of
// this process look up and update on as many cores. Calls may overlap; in the steady state they allocate nothing.
type fan struct {
	mu   sync.Mutex
	idle []*fanCall
}

// fanCall is one call of all shards, with its memory.
type fanCall struct {
	ctx  context.Context
	do   func(ctx context.Context, s int) error
	errs []error
	run  []func() // by shard, made once
	wg   sync.WaitGroup
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
	c.wg.Add(shards - 1)
	for _, run := range c.run[1:shards] {
		go run()
	}
	c.errs[0] = do(ctx, 0)
	c.wg.Wait()
	err := errors.Join(c.errs[:shards]...)
	clear(c.errs)
	c.ctx, c.do = nil, nil
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle = append(f.idle, c)
	return err
}

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
	c.grow(shards)
	return c
}

func (c *fanCall) grow(shards int) {
	for s := len(c.run); s < shards; s++ {
		c.errs = append(c.errs, nil)
		c.run = append(c.run, func() {
			defer c.wg.Done()
			c.errs[s] = c.do(c.ctx, s)
		})
	}
}
