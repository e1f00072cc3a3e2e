package wire

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// watch ends the stream of a call whose context ends, or for which nothing arrives, so that the calling goroutine can
// itself wait in the stream. What it needs of a context is kept from call to call, because calls mostly come with the same.
type watch struct {
	timeout time.Duration
	begun   time.Time
	last    atomic.Int64 // when something was sent or has arrived, since begun
	// silent is called, with mu held, where a call has heard nothing for sayAfter. err is why its last attempt failed, or nil.
	silent func(since time.Time, err error)

	mu     sync.Mutex
	call   time.Duration // when the call under way was begun, since begun, and start when its last attempt was
	start  time.Duration
	err    error                   // of the last attempt of the call under way that failed
	cancel context.CancelCauseFunc // of the stream of the call under way; nil between calls
	timer  *time.Timer
	done   <-chan struct{}
	stop   func() bool
}

func newWatch(timeout time.Duration, silent func(since time.Time, err error)) *watch {
	return &watch{timeout: timeout, begun: time.Now(), silent: silent}
}

// touch notes a heartbeat.
func (w *watch) touch() { w.last.Store(int64(time.Since(w.begun))) }

// begin watches over a call until end. cancel is called with the cause if it must stop.
func (w *watch) begin(ctx context.Context, cancel context.CancelCauseFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start = time.Since(w.begun)
	w.cancel = cancel
	if first := min(w.timeout, sayAfter); w.timer == nil {
		w.timer = time.AfterFunc(first, w.expire)
	} else {
		w.timer.Reset(first)
	}
	done := ctx.Done()
	if done == w.done {
		if ctx.Err() != nil { // what was registered has been called already
			cancel(context.Cause(ctx))
		}
		return
	}
	w.forget()
	if w.done = done; done != nil {
		w.stop = context.AfterFunc(ctx, func() { w.interrupt(done, context.Cause(ctx)) })
	}
}

// called notes that a call has begun, of which each attempt is watched over.
func (w *watch) called() {
	w.mu.Lock()
	w.call, w.err = time.Since(w.begun), nil
	w.mu.Unlock()
}

// failed notes that an attempt has failed, and why.
func (w *watch) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	w.listen()
}

// listen calls silent where a call has heard nothing for long. The lock is held.
func (w *watch) listen() {
	if since := max(w.call, time.Duration(w.last.Load())); time.Since(w.begun)-since >= sayAfter {
		w.silent(w.begun.Add(since), w.err)
	}
}

// end is the end of a call.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel = nil
	w.timer.Stop()
}

// close releases the context and the timer.
func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget()
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *watch) forget() {
	if w.stop != nil {
		w.stop()
	}
	w.stop, w.done = nil, nil
}

// abort stops the call under way, if any.
func (w *watch) abort(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		w.cancel(cause)
	}
}

// interrupt is called when the context of done has ended.
func (w *watch) interrupt(done <-chan struct{}, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil && w.done == done {
		w.cancel(cause)
	}
}

// expire is called by the timer.
func (w *watch) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel == nil {
		return
	}
	idle := time.Since(w.begun) - max(w.start, time.Duration(w.last.Load()))
	switch {
	case idle < min(w.timeout, sayAfter):
		w.timer.Reset(min(w.timeout, sayAfter) - idle)
		return
	case idle < w.timeout:
		w.listen()
		w.timer.Reset(w.timeout - idle)
		return
	}
	w.cancel(fmt.Errorf("wire: no answer and no sign of life for %v (CallTimeout): %w", w.timeout, errSilent))
}
