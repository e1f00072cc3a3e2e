package ps

import "time"

// Hooks observes clients and snapshots. Implementations must be cheap and safe for concurrent use; the arguments are of
// basic types, so that they need not import this package.
type Hooks interface {
	// RequestDone tells how long a client's method took: "lookup", "dense", "push", "flush", "idle" or "resume", with code
	// "ok", "fenced", "gap", "overlap", "torn", "layout", "busy", "full", "closed", "canceled" or "error".
	RequestDone(method, code string, d time.Duration)
	// TableRows tells the number of rows of a table on all shards: when a cluster opens, every few seconds and when it closes.
	TableRows(table string, rows int64)
	// Staleness tells, for a push, how many later look-ups its client had done before: updates they did not see.
	Staleness(steps int64)
	// SnapshotDone tells how long a snapshot took with code "ok", "no_space", "canceled" or "error", its size, and the
	// longest time a push had to wait for it.
	SnapshotDone(code string, took time.Duration, bytes int64, longestStall time.Duration)
}

// NopHooks observes nothing; embed it to implement a part of [Hooks].
type NopHooks struct{}

var _ Hooks = NopHooks{}

// RequestDone implements [Hooks].
func (NopHooks) RequestDone(string, string, time.Duration) {}

// TableRows implements [Hooks].
func (NopHooks) TableRows(string, int64) {}

// Staleness implements [Hooks].
func (NopHooks) Staleness(int64) {}

// SnapshotDone implements [Hooks].
func (NopHooks) SnapshotDone(string, time.Duration, int64, time.Duration) {}
