// Package param describes a model's parameters as the model and the parameter server exchange them: which tables and
// dense tensors there are ([Layout]), what a batch looks up ([Rows]) and what it pushes back ([Update]). Everything is a
// plain slice; nothing here does I/O.
package param

import "github.com/monolith-go/monolith/model/optim"

// Layout is the full description of a model's parameters. Its [Layout.Hash] names it in snapshots.
type Layout struct {
	// Seed makes initial values: that of a row is a function of (Seed, table name, segment name, fid), that of a dense
	// tensor of (Seed, tensor name).
	Seed   uint64
	Tables []Table
	Dense  []Tensor
	// Retention says which fids have rows, and for how long.
	Retention Retention
}

// Table is a collisionless embedding table: one row per fid, created when a push for it is applied.
type Table struct {
	Name string
	// Segments lie one after the other in a row, each with its own initializer and optimizer.
	Segments []Segment
}

// Segment is a slice of an embedding row.
type Segment struct {
	Name      string
	Dim       int
	Init      Init
	Optimizer optim.Optimizer
	// Clip shortens the gradient of a row to that Euclidean norm where it is longer; 0: never.
	Clip float32
	// Delay is the λ by which gradients are compensated for updates that came between their lookup and their push, before Clip; 0: not.
	Delay float32
	// L2 adds L2·w to the gradient of every row a batch touches, before the optimizer and behind Clip; L1 adds L1·sign(w).
	L2, L1 float32
	// Schedule multiplies the optimizer's rate beside [Update].LR.
	Schedule optim.Schedule
	// Compressor is what the model reads in place of the weights; those that are looked up, stored and updated are as they are.
	Compressor Compressor
}

// Tensor is a dense parameter, row-major.
type Tensor struct {
	Name      string
	Shape     []int
	Init      Init
	Optimizer optim.Optimizer
	L2, L1    float32
	// Delay and Schedule are as a [Segment]'s.
	Delay    float32
	Schedule optim.Schedule
}

// Rows is a lookup: the distinct fids of a batch for each table of the layout, and where their weights go. Buffers
// belong to the caller and are reused between batches.
type Rows struct {
	// Keys[t] are distinct fids of table t.
	Keys [][]int64
	// Values[t] is [len(Keys[t]), Tables[t].Dim()], row-major; the lookup fills it. A fid without a row gets its
	// initial value and still has no row afterwards.
	Values [][]float32
	// State, if not nil, is where the state of the rows' optimizers goes: State[t] is [len(Keys[t]), Tables[t].StateDim()].
	// Who has it can make of a row and a gradient what the parameter server will make of them ([RowRule]).
	State [][]float32
	// Seen is written by the lookup, where the store can tell: which updates of others the values have. It has an entry for
	// each shard, how many updates of others the shard had applied; of one that had not to be asked, what it last said.
	Seen []int64
	// Found, if not nil, is written by the lookup: where it found rows without state, of each shard the tables one after the other. Empty: nobody could tell.
	Found []Found
}

// Found is where a lookup found the rows of a table of this process, for the update of the same fids, which need not find them again. Who looks up and
// pushes passes it on as it is, and its fids are distinct: several threads may update their rows. The zero value knows nothing, and what may have changed since is found again.
type Found struct {
	// In is the table, and Removed how many rows it had removed until then: a number stays with its fid until another row is removed.
	In      any
	Removed uint64
	// Numbers are those of the rows in the table, [len(Keys)], all bits set for a fid that had none.
	Numbers []uint32
}

// Update is what one batch changes, applied exactly once on all shards or on none.
type Update struct {
	// Source, Split, From, To are the batch's origin; updates of a split join without a gap.
	Source, Split string
	From, To      int64
	// NumRows is the number of examples in the batch; 0 only moves the position.
	NumRows int
	// Time is the newest event time in the batch, microseconds since 1970, or 0. It becomes the rows' last-update time.
	Time int64
	// LR multiplies every optimizer's learning rate in this update, and Examples is how many examples the model was trained on before it: what the schedules of
	// segments and tensors go by.
	LR       float32
	Examples int64
	// Op is what becomes of the rows; the zero value trains them.
	Op Op
	// Keys[t] are the distinct fids of table t, Counts[t] how often each occurs in the batch, and Grads[t] the
	// gradient sums in row order, or what else Op needs, [len(Keys[t]), Tables[t].Width(Op)].
	Keys   [][]int64
	Counts [][]uint32
	Grads  [][]float32
	// Dense is what a push has of all dense tensors one after the other ([Layout.DensePushLen] values): of each its gradient and, with a Delay, the weights that
	// it was computed with. It is empty when the update has no rows.
	Dense []float32
	// Trace is what the parameter server adds to its trace when it applies the update, as package score writes it: the
	// predictions of the batch with what they are measured by. Nil adds nothing.
	Trace []byte
	// Seen is what the gradients were computed with ([Rows].Seen), or nil. The client measures staleness by it; the shards do
	// not get it.
	Seen []int64
	// Found is that of the lookup of Keys ([Rows].Found), or nil. Shards of other processes do not get it.
	Found []Found
	// Exchange lets a shard of this process that takes the update keep what Keys, Counts, Grads, Dense and Found have, and leave other memory of any length and
	// contents in their places, so that nothing is copied. One that returned an error has left everything as it was.
	Exchange bool
}
