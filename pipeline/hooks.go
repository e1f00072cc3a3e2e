package pipeline

import (
	"time"

	"github.com/monolith-go/monolith/internal/hook"
)

// A hook is any value that implements one or more of the interfaces of this file, each of which is one event, so that a new
// event breaks nobody. Hooks must be cheap and safe for concurrent use. Names are those of the graph's nodes. Other packages
// have events of their own; see [HooksOf].

// RowsReadHook is notified of what is read.
type RowsReadHook interface {
	// RowsRead counts examples or records a source returned.
	RowsRead(source, split string, rows int)
}

// LagHook is notified how far behind a split is.
type LagHook interface {
	// Lag reports, some times a second, how many records of a split the sink has not taken yet (-1: unknown): what is on its
	// way through the graph or held back by a stage counts too.
	Lag(source, split string, records int64)
}

// RowDroppedHook is notified of bad rows.
type RowDroppedHook interface {
	// RowDropped counts bad rows by their reason: one, or those that cannot be separated ([DataError].Records).
	RowDropped(source, reason string, rows int64)
}

// RecordsLostHook is notified of gaps.
type RecordsLostHook interface {
	// RecordsLost reports records [from, to) of a split that are gone and were passed over.
	RecordsLost(source, split string, from, to int64)
}

// StageDoneHook is notified of work.
type StageDoneHook interface {
	// StageDone reports how long a stage or sink took for one element of so many rows.
	StageDone(stage string, rows int, d time.Duration)
}

// QueueLenHook is notified how full queues are.
type QueueLenHook interface {
	// QueueLen reports the fill of a prefetch queue after a put or get, and its capacity.
	QueueLen(queue string, length, capacity int)
}

// QueueWaitHook is notified of waits at queues.
type QueueWaitHook interface {
	// QueueWait reports how long a side of a queue waited: side is "put" (the reader is too fast) or "get" (starved).
	QueueWait(queue, side string, d time.Duration)
}

// Hooks are the hooks of a run, by event. nil has none. It is immutable.
type Hooks struct {
	all         []any
	rowsRead    []RowsReadHook
	lag         []LagHook
	rowDropped  []RowDroppedHook
	recordsLost []RecordsLostHook
	stageDone   []StageDoneHook
	queueLen    []QueueLenHook
	queueWait   []QueueWaitHook
}

// NewHooks returns hooks that hand each event to those that implement it, in their order. One that implements none gets nothing.
func NewHooks(hooks ...any) *Hooks {
	return &Hooks{
		all: hooks, rowsRead: hook.Of[RowsReadHook](hooks), lag: hook.Of[LagHook](hooks), rowDropped: hook.Of[RowDroppedHook](hooks),
		recordsLost: hook.Of[RecordsLostHook](hooks), stageDone: hook.Of[StageDoneHook](hooks),
		queueLen: hook.Of[QueueLenHook](hooks), queueWait: hook.Of[QueueWaitHook](hooks),
	}
}

// HooksOf returns the hooks that implement T, an event of another package.
func HooksOf[T any](h *Hooks) []T {
	if h == nil {
		return nil
	}
	return hook.Of[T](h.all)
}

// RowsRead calls the hooks that implement [RowsReadHook].
func (h *Hooks) RowsRead(source, split string, rows int) {
	if h == nil {
		return
	}
	for _, x := range h.rowsRead {
		x.RowsRead(source, split, rows)
	}
}

// Lag calls the hooks that implement [LagHook].
func (h *Hooks) Lag(source, split string, records int64) {
	if h == nil {
		return
	}
	for _, x := range h.lag {
		x.Lag(source, split, records)
	}
}

// RowDropped calls the hooks that implement [RowDroppedHook].
func (h *Hooks) RowDropped(source, reason string, rows int64) {
	if h == nil {
		return
	}
	for _, x := range h.rowDropped {
		x.RowDropped(source, reason, rows)
	}
}

// RecordsLost calls the hooks that implement [RecordsLostHook].
func (h *Hooks) RecordsLost(source, split string, from, to int64) {
	if h == nil {
		return
	}
	for _, x := range h.recordsLost {
		x.RecordsLost(source, split, from, to)
	}
}

// StageDone calls the hooks that implement [StageDoneHook].
func (h *Hooks) StageDone(stage string, rows int, d time.Duration) {
	if h == nil {
		return
	}
	for _, x := range h.stageDone {
		x.StageDone(stage, rows, d)
	}
}

// QueueLen reports those who implement [QueueLenHook].
func (h *Hooks) QueueLen(queue string, length, capacity int) {
	if h == nil {
		return
	}
	for _, x := range h.queueLen {
		x.QueueLen(queue, length, capacity)
	}
}

// QueueWait calls the hooks that implement [QueueWaitHook].
func (h *Hooks) QueueWait(queue, side string, d time.Duration) {
	if h == nil {
		return
	}
	for _, x := range h.queueWait {
		x.QueueWait(queue, side, d)
	}
}
