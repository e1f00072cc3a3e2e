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

	mu     sync.Mutex
	cancel context.CancelCauseFunc // of the stream of the call under way; nil between calls
	timer  *time.Timer
	done   <-chan struct{}
	stop   func() bool
}

func newWatch(timeout time.Duration) *watch { return &watch{timeout: timeout, begun: time.Now()} }

// touch notes a heartbeat.
func (w *watch) touch() { w.last.Store(int64(time.Since(w.begun))) }

// begin watches over a call until end. cancel is called with the cause if it must stop.
func (w *watch) begin(ctx context.Context, cancel context.CancelCauseFunc) {
	w.touch()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel = cancel
	if w.timer == nil {
		w.timer = time.AfterFunc(w.timeout, w.expire)
	} else {
		w.timer.Reset(w.timeout)
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
	if idle := time.Since(w.begun) - time.Duration(w.last.Load()); idle < w.timeout {
		w.timer.Reset(w.timeout - idle)
		return
	}
	w.cancel(fmt.Errorf("wire: no answer and no sign of life for %v (CallTimeout): %w", w.timeout, errSilent))
}
