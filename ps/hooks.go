package ps

import (
	"time"

	"github.com/monolith-go/monolith/internal/hook"
)

// A hook is any value that implements one or more of the interfaces of this file, each of which is one event, so that a new
// event breaks nobody. Hooks must be cheap and safe for concurrent use; the arguments are of basic types, so that they need
// not import this package.

// RequestDoneHook is notified of requests.
type RequestDoneHook interface {
	// RequestDone reports how long a client's method took: "lookup", "dense", "push", "flush", "idle" or "resume", with code
	// "ok", "fenced", "gap", "overlap", "torn", "layout", "busy", "full", "no_space", "closed", "canceled" or "error".
	RequestDone(method, code string, d time.Duration)
}

// TableRowsHook is notified how large tables are.
type TableRowsHook interface {
	// TableRows reports the number of rows of a table on all shards: when a cluster opens, every few seconds and when it closes.
	TableRows(table string, rows int64)
}

// Causes of [RowsRemovedHook].
const (
	Expired = "expired"
	Evicted = "evicted"
)

// RowsRemovedHook is notified of rows that went by the retention.
type RowsRemovedHook interface {
	// RowsRemoved reports how many rows of a table went since it was called before, on all shards, because of [Expired] or [Evicted].
	RowsRemoved(table, cause string, rows int64)
}

// TableBytesHook is notified of the memory of shards.
type TableBytesHook interface {
	// TableBytes reports the memory that a table takes on a shard, its index and what counts fids without a row included, as often as [TableRowsHook] is
	// notified. Negative: there is no such shard any more.
	TableBytes(shard int, table string, bytes int64)
}

// StalenessHook is notified how stale gradients are.
type StalenessHook interface {
	// Staleness reports, for a push, how many updates of others had been applied since the parameters that its gradients were
	// computed with were read: updates that they lack. Its client's own they never lack.
	Staleness(steps int64)
}

// SnapshotDoneHook is notified of snapshots.
type SnapshotDoneHook interface {
	// SnapshotDone reports how long a snapshot took with code "ok", "no_space", "canceled" or another of
	// [RequestDoneHook].RequestDone, its size, and the longest time a push had to wait for it.
	SnapshotDone(code string, took time.Duration, bytes int64, longestStall time.Duration)
}

// UploadDoneHook is notified of copies of snapshots in another store.
type UploadDoneHook interface {
	// UploadDone reports how long copying one took and how many bytes were copied, with code "ok" or another of failure.Code.Label.
	UploadDone(code string, took time.Duration, bytes int64)
}

// SnapshotUploadedHook is notified of what a store has.
type SnapshotUploadedHook interface {
	// SnapshotUploaded reports the newest snapshot in the store: its number, and when it was taken.
	SnapshotUploaded(id uint64, taken time.Time)
}

// Hooks are the hooks of clients and snapshots, by event. nil has none. It is immutable.
type Hooks struct {
	requestDone  []RequestDoneHook
	tableRows    []TableRowsHook
	rowsRemoved  []RowsRemovedHook
	tableBytes   []TableBytesHook
	staleness    []StalenessHook
	snapshotDone []SnapshotDoneHook
	uploadDone   []UploadDoneHook
	uploaded     []SnapshotUploadedHook
	standby      []StandbyHook
}

// NewHooks returns hooks that hand each event to those that implement it, in their order. One that implements none gets nothing.
func NewHooks(hooks ...any) *Hooks {
	return &Hooks{
		requestDone: hook.Of[RequestDoneHook](hooks), tableRows: hook.Of[TableRowsHook](hooks),
		rowsRemoved: hook.Of[RowsRemovedHook](hooks), tableBytes: hook.Of[TableBytesHook](hooks), staleness: hook.Of[StalenessHook](hooks), snapshotDone: hook.Of[SnapshotDoneHook](hooks),
		uploadDone: hook.Of[UploadDoneHook](hooks), uploaded: hook.Of[SnapshotUploadedHook](hooks),
		standby: hook.Of[StandbyHook](hooks),
	}
}

// RequestDone calls the hooks that implement [RequestDoneHook].
func (h *Hooks) RequestDone(method, code string, d time.Duration) {
	if h == nil {
		return
	}
	for _, x := range h.requestDone {
		x.RequestDone(method, code, d)
	}
}

// TableRows reports those who implement [TableRowsHook].
func (h *Hooks) TableRows(table string, rows int64) {
	if h == nil {
		return
	}
	for _, x := range h.tableRows {
		x.TableRows(table, rows)
	}
}

// RowsRemoved calls the hooks that implement [RowsRemovedHook].
func (h *Hooks) RowsRemoved(table, cause string, rows int64) {
	if h == nil {
		return
	}
	for _, x := range h.rowsRemoved {
		x.RowsRemoved(table, cause, rows)
	}
}

// TableBytes reports those who implement [TableBytesHook].
func (h *Hooks) TableBytes(shard int, table string, bytes int64) {
	if h == nil {
		return
	}
	for _, x := range h.tableBytes {
		x.TableBytes(shard, table, bytes)
	}
}

// Staleness reports those who implement [StalenessHook].
func (h *Hooks) Staleness(steps int64) {
	if h == nil {
		return
	}
	for _, x := range h.staleness {
		x.Staleness(steps)
	}
}

// SnapshotDone calls the hooks that implement [SnapshotDoneHook].
func (h *Hooks) SnapshotDone(code string, took time.Duration, bytes int64, longestStall time.Duration) {
	if h == nil {
		return
	}
	for _, x := range h.snapshotDone {
		x.SnapshotDone(code, took, bytes, longestStall)
	}
}

// UploadDone calls the hooks that implement [UploadDoneHook].
func (h *Hooks) UploadDone(code string, took time.Duration, bytes int64) {
	if h == nil {
		return
	}
	for _, x := range h.uploadDone {
		x.UploadDone(code, took, bytes)
	}
}

// SnapshotUploaded calls the hooks that implement [SnapshotUploadedHook].
func (h *Hooks) SnapshotUploaded(id uint64, taken time.Time) {
	if h == nil {
		return
	}
	for _, x := range h.uploaded {
		x.SnapshotUploaded(id, taken)
	}
}
