package pipeline

import "time"

// Hooks observes a run. Implementations must be cheap and safe for concurrent use. Names are those of the graph's nodes.
type Hooks interface {
	// RowsRead counts examples or records a source returned.
	RowsRead(source, split string, rows int)
	// Lag tells, some times a second, how many records of a split the sink has not taken yet (-1: unknown): what is on its
	// way through the graph or held back by a stage counts too.
	Lag(source, split string, records int64)
	// RowDropped counts one bad row by its reason.
	RowDropped(source, reason string)
	// RecordsLost tells of records [from, to) of a split that are gone and were passed over.
	RecordsLost(source, split string, from, to int64)
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
func (NopHooks) RowsRead(string, string, int) {}

// Lag implements [Hooks].
func (NopHooks) Lag(string, string, int64) {}

// RowDropped implements [Hooks].
func (NopHooks) RowDropped(string, string) {}

// RecordsLost implements [Hooks].
func (NopHooks) RecordsLost(string, string, int64, int64) {}

// StageDone implements [Hooks].
func (NopHooks) StageDone(string, int, time.Duration) {}

// QueueLen implements [Hooks].
func (NopHooks) QueueLen(string, int, int) {}

// QueueWait implements [Hooks].
func (NopHooks) QueueWait(string, string, time.Duration) {}
