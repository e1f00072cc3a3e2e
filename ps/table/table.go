// Package table stores embedding rows: a collisionless map from int64 fids to rows of weights, optimizer state, last
// update time and occurrence count, in memory the garbage collector never looks at.
package table

import (
	"errors"
	"slices"
	"sync"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/model/param"
)

// ErrFull is returned by [Table.Reserve] and [Table.Put] when the memory or the row numbers of a table are used up. The
// table is unchanged; spread it over more shards.
var ErrFull = failure.New(failure.Full, "table is full")

// ErrDuplicate is returned by [Table.Put] for a key that has a row already.
var ErrDuplicate = errors.New("key has a row already")

// ErrEnded is returned by [Arrivals.Put] once nobody waits for the rows any more.
var ErrEnded = errors.New("table: the rows do not arrive any more")

// Table maps every int64 to at most one row. What it holds is a function of the updates applied and rows put, never of
// lookups.
//
// Lookup, LookupFound, Get, Len, Bytes and the reading half of a [Cut] may overlap each other; Reserve, Apply, Remove, Put, Cut and Close
// exclude everything else. The caller keeps the lock, usually one for all tables of a shard.
type Table interface {
	// Len is the number of rows.
	Len() int
	// Bytes is the memory in use, index included: what is mapped, touched or not, but for what rows had that were removed and went
	// back to the system.
	Bytes() int64
	// Lookup writes the weights of the keys, [len(keys), Dim], and returns how many of them have a row. The others get
	// the initial value they would be created with, and still have no row afterwards. It allocates nothing.
	Lookup(keys []int64, dst []float32) (found int)
	// LookupFound is Lookup that notes in f where the rows are, for an [Update] of the same keys.
	LookupFound(keys []int64, dst []float32, f *param.Found) (found int)
	// LookupState is Lookup that also writes the state of the optimizers, [len(keys), StateDim], that of keys without a row being
	// what they would be created with.
	LookupState(keys []int64, dst, state []float32) (found int)
	// Reserve makes room for n new rows, so that an Apply that creates no more cannot fail. Errors: [ErrFull].
	Reserve(n int) error
	// Apply creates missing rows and applies one gradient to each key, or what else the update's Op says. It panics when the lengths of u do not fit or
	// memory was not reserved and cannot be had. In the steady state it allocates nothing.
	Apply(u Update)
	// Remove takes the rows of the keys away, those that there are, and returns how many: the keys are as if they had never had one.
	// The memory serves later rows; where many rows lay together that are all gone, it goes back to the system.
	Remove(keys []int64) (removed int)
	// Put adds the rows of a snapshot, none of which may exist. Errors: [ErrFull], [ErrDuplicate].
	Put(rows *Rows) error
	// Get appends the row of key to dst and reports whether there is one.
	Get(key int64, dst *Rows) bool
	// Cut begins a copy on write of the rows as they are now. Any number of cuts may be open.
	Cut() Cut
	// Close gives the memory back; the table must not be used afterwards.
	Close()
}

// Cut reads a table as it was at one moment, while updates continue: a row that an update is about to change for the first
// time, or to remove, is saved before, rows created later are left out. It is used by one goroutine at a time.
type Cut interface {
	// Len is the number of rows of the cut.
	Len() int
	// Next appends at most max rows to dst, in the order of [Hash], and reports whether it appended any. It holds l, which
	// excludes Apply, only while it reads the table: for a scan of at most 64 KiB of index or a copy of max rows.
	Next(l sync.Locker, dst *Rows, max int) bool
	// Err says, once Next has returned false, why the cut is not whole. Errors: [ErrFull] when there was no memory to keep rows
	// that were about to change; updates have continued.
	Err() error
	// Close ends the cut under l, which must exclude everything else, and may be called more than once.
	Close(l sync.Locker)
}

// Update is what one batch changes in one table.
type Update struct {
	// Op is what becomes of the rows; the zero value trains them.
	Op param.Op
	// Keys are the fids, Counts how often each occurs in the batch, Grads [len(Keys), Width(Op)] their gradient sums ([param.Table]).
	Keys   []int64
	Counts []uint32
	Grads  []float32
	// Time is the last-update time, microseconds since 1970; a row keeps the largest it has seen.
	Time int64
	// LR multiplies the learning rates; schedules of segments go by Examples ([param.Update]).
	LR       float32
	Examples int64
	// Found is where LookupFound found the keys, or the zero value.
	Found param.Found
	// Draw is what lots are drawn by, where fids are admitted so: a hash of the batch's origin.
	Draw uint64
}

// Rows holds rows column by column. Row i has Weights[i*Dim:(i+1)*Dim] and State[i*StateDim:(i+1)*StateDim], segments
// one after the other in the order of the layout.
type Rows struct {
	Keys    []int64
	Times   []int64
	Counts  []uint64
	Weights []float32
	State   []float32
}

// Reset empties r and keeps its memory.
func (r *Rows) Reset() {
	r.Keys, r.Times, r.Counts = r.Keys[:0], r.Times[:0], r.Counts[:0]
	r.Weights, r.State = r.Weights[:0], r.State[:0]
}

// Grow makes room for n more rows with so many weights and values of state.
func (r *Rows) Grow(n, dim, stateDim int) {
	r.Keys, r.Times, r.Counts = slices.Grow(r.Keys, n), slices.Grow(r.Times, n), slices.Grow(r.Counts, n)
	r.Weights, r.State = slices.Grow(r.Weights, n*dim), slices.Grow(r.State, n*stateDim)
}

// extend adds n rows of any contents.
func (r *Rows) extend(n, dim, stateDim int) {
	r.Grow(n, dim, stateDim)
	r.Keys, r.Times, r.Counts = r.Keys[:len(r.Keys)+n], r.Times[:len(r.Times)+n], r.Counts[:len(r.Counts)+n]
	r.Weights, r.State = r.Weights[:len(r.Weights)+n*dim], r.State[:len(r.State)+n*stateDim]
}

// Hash is the place of a key among all keys: shards own ranges of its highest bits, a table's index is ordered by it.
// It is a bijection, so no two keys share a hash.
func Hash(key int64) uint64 { return param.Mix(0, uint64(key)) }

// Unhash is the inverse of [Hash]: the key of a hash.
func Unhash(h uint64) int64 {
	h ^= h>>31 ^ h>>62
	h *= inverse(0x94d049bb133111eb)
	h ^= h>>27 ^ h>>54
	h *= inverse(0xbf58476d1ce4e5b9)
	h ^= h>>30 ^ h>>60
	return int64(h*inverse(0x9e3779b97f4a7c15) - 1)
}

// inverse is that of an odd number modulo 2^64, by Newton's method: three bits are right at first, and twice as many after each step.
func inverse(m uint64) uint64 {
	x := m
	for range 5 {
		x *= 2 - m*x
	}
	return x
}
