// Package crew does the parts of a piece of work at the same time, each on a goroutine.
package crew

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Task is work in parts that may be done in any order and at once.
type Task interface {
	// Part does one part.
	Part(i int)
}

// errEnded is what Do panics with when a part ended its goroutine.
var errEnded = errors.New("crew: a part of a task ended its goroutine (runtime.Goexit)")

// Crew does one task at a time; it belongs to one caller. The zero value is ready. A goroutine takes a few microseconds where a processor is awake, so a part
// should take more. In the steady state a Crew allocates nothing.
type Crew struct {
	task   Task
	run    []func() // by part, made once
	others sync.WaitGroup
	failed atomic.Pointer[any]
}

// Do does the parts from 0 up to parts of a task, part 0 on the goroutine that calls, and returns when all are done. What a part panics with, Do panics with
// once the others are done, so that nobody is left who uses what the task is about.
func (c *Crew) Do(parts int, t Task) {
	c.task = t
	for i := len(c.run); i < parts; i++ {
		c.run = append(c.run, func() { c.part(i) })
	}
	defer c.join()
	if parts > 1 {
		c.others.Add(parts - 1)
		for _, run := range c.run[1:parts] {
			go run()
		}
	}
	if parts > 0 {
		t.Part(0)
	}
}

// part does a part on a goroutine of its own.
func (c *Crew) part(i int) {
	defer c.others.Done()
	done := false
	defer func() {
		if done {
			return
		}
		why := recover()
		if why == nil {
			why = errEnded
		}
		c.failed.CompareAndSwap(nil, &why)
	}()
	c.task.Part(i)
	done = true
}

// join waits for the other parts.
func (c *Crew) join() {
	c.others.Wait()
	c.task = nil
	if why := c.failed.Swap(nil); why != nil {
		panic(*why)
	}
}
