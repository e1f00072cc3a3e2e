package serving

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/export/native"
)

// Verify reads all files of each version that serves, once, at [ModelsOptions].VerifyRate, and looks for new versions at intervals until ctx ends: opening a version maps its rows and does
// not read them. Where files are damaged, the version before is opened, takes its place, and a message says so. A version without one before it is closed.
func (m *Models) Verify(ctx context.Context, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		for h := m.unverified(); h != nil && ctx.Err() == nil; h = m.unverified() {
			m.verify(ctx, h)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// unverified returns a version that serves and was not verified, which is used until release; nil: there is none.
func (m *Models) unverified() *held {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.models {
		for _, h := range s.versions {
			if h.state != Available || h.verified {
				continue
			}
			if _, ok := h.version.params.(onDisk); !ok {
				h.verified = true
				continue
			}
			h.uses++
			return h
		}
	}
	return nil
}

// errNotServed ends the verification of a version that serves no longer.
var errNotServed = errors.New("the version is no longer served")

// verify verifies a version, which it releases.
func (m *Models) verify(ctx context.Context, h *held) {
	began, read := time.Now(), 0
	pace := func(bytes int) error {
		m.mu.Lock()
		serves := h.state == Available
		m.mu.Unlock()
		if !serves {
			return errNotServed
		}
		due := began.Add(time.Duration(float64(read) / float64(m.o.VerifyRate) * float64(time.Second)))
		read += bytes
		return sleep(ctx, time.Until(due))
	}
	fresh := changed(h.dir)
	faults, err := h.version.params.(onDisk).VerifyPaced(ctx, pace)
	m.mu.Lock()
	h.verified = true
	if err == nil && len(faults) > 0 {
		h.damaged = fmt.Errorf("%w: %w", errors.Join(faults...), native.ErrCorrupt)
		h.fresh, h.retry = fresh, time.Time{}
	}
	m.mu.Unlock()
	m.release(h)
	if err != nil {
		return // nobody wants to know any more
	}
	if m.o.Verified != nil {
		m.o.Verified(h.model, len(faults) == 0)
	}
	if len(faults) == 0 {
		m.log.Info("the files of a version are whole", "model", h.model, "version", h.number, "bytes", read, "duration", time.Since(began))
		return
	}
	m.log.Error("the files of a version that serves are damaged: the version before takes its place, where there is one; write the export again", "model", h.model, "version", h.number, "err", errors.Join(faults...))
	_ = m.Refresh(ctx) // each version's error is logged, and its state has it
}

// sleep waits. Errors: the context's.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
