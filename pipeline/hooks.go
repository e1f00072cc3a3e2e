package pipeline

import "time"

// Hooks observes a run. Implementations must be cheap and safe for concurrent use. Names are those of the graph's nodes.
type Hooks interface {
	// RowsRead counts examples or records a source returned, and its lag in records (-1: unknown).
	RowsRead(source, split string, rows int, lag int64)
	// RowDropped counts one bad row by its reason.
	RowDropped(source, reason string)
	// StageDone tells how long a stage or sink took for one element of so many rows.
	StageDone(stage string, rows int, d time.Duration)
	// QueueLen tells the fill of a prefetch queue after a put or get, and its capacity.
	QueueLen(queue string, length, capacity int)
	// QueueWait tells how long a side of a queue waited: side is "put" (the reader is too fast) or "get" (starved).
	QueueWait(queue, side string, d time.Duration)
}

// NopHooks observes nothing; embed it to implement a part of [Hooks].
type NopHooks struct{}

// RowsRead implements [Hooks].
func (NopHooks) RowsRead(string, string, int, int64) {}

// RowDropped implements [Hooks].
func (NopHooks) RowDropped(string, string) {}

// StageDone implements [Hooks].
func (NopHooks) StageDone(string, int, time.Duration) {}

// QueueLen implements [Hooks].
func (NopHooks) QueueLen(string, int, int) {}

// QueueWait implements [Hooks].
func (NopHooks) QueueWait(string, string, time.Duration) {}
