package ps

import (
	"context"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// Progress describes how far a split was applied; see [position.Progress].
type Progress = position.Progress

// SnapshotInfo describes a snapshot; see [snapshot.Info].
type SnapshotInfo = snapshot.Info

// SplitID names a split of a source; see [position.SplitID].
type SplitID = position.SplitID

// ControlKind is what a [Control] asks for.
type ControlKind uint8

// The kinds of controls.
const (
	// Commit applies what is staged of a split up to position To. Of a split that has a newer owner it does nothing: that
	// owner has settled what was staged.
	Commit ControlKind = iota + 1
	// Abort drops what is staged of a split.
	Abort
	// Marker says that everything before it on this stream belongs to cut Cut and everything after does not.
	Marker
)

// Control is a small message that rides in front of another. Repeating one does no harm.
type Control struct {
	Kind ControlKind
	// Split, Epoch and To belong to Commit and Abort. Epoch is that of the sender's ownership.
	Split SplitID
	Epoch uint64
	To    int64
	// Cut and State belong to Marker. State is worker state to be stored in the cut; shard 0 gets it.
	Cut   uint64
	State map[string][]byte
}

// Reply is what every answer of a shard carries.
type Reply struct {
	// Cut is the cut whose marker the shard wants, or 0.
	Cut uint64
	// Commits is how many updates the shard had applied when it handled the call, of all clients, and Own how many of them came
	// from the session that asks. They begin at 0 with the shard's process or the stream: only the difference of two answers
	// means something.
	Commits, Own uint64
}

// SplitState is what a shard has of a split.
type SplitState struct {
	Applied Progress
	// Staged is, for each staged batch in order, what would be applied once it and those before it are committed.
	Staged []Progress
}

// Conn is one client's ordered stream to one shard: whatever one goroutine sends after another call has returned arrives
// after it. Every call handles the controls first, in order. A commit of a client that has passed the marker of a cut
// waits until the shard has taken that cut. Calls are made one at a time. A call that failed may have had its effect;
// repeating it is safe.
//
// What Stage, Control and Acquire have answered survives the shard's process if it keeps a log. A commit in front of a
// lookup may not, because nobody waits for it: the client that continues a session on a shard that was started again first
// repeats the last commit of each split.
type Conn interface {
	// Lookup fills rows, which holds keys of this shard only.
	Lookup(ctx context.Context, ctl []Control, rows *param.Rows) (Reply, error)
	// Dense writes the shard's dense tensors, one after the other, to dst unless their version is have. Where dst is longer by
	// the state of their optimizers, that goes behind them, one tensor's after the other's.
	Dense(ctx context.Context, ctl []Control, have uint64, dst []float32) (version uint64, reply Reply, err error)
	// Stage keeps the shard's part of an update, which it copies or exchanges ([param.Update].Exchange), until it is committed or aborted. Errors: [ErrFenced],
	// [ErrGap], [ErrOverlap], [ErrBusy], [ErrFull], [ErrLayout].
	Stage(ctx context.Context, ctl []Control, epoch uint64, u *param.Update) (Reply, error)
	// Control handles controls alone.
	Control(ctx context.Context, ctl []Control) (Reply, error)
	// Acquire makes the client the owner of a split under an epoch that must be above the shard's. From then on the former
	// owner is refused. Errors: [*EpochError].
	Acquire(ctx context.Context, id SplitID, epoch uint64) (SplitState, Reply, error)
	// Close ends the stream. clean says that everything the client had decided was committed on every shard; otherwise the
	// splits it owns are settled by the next owner of them. That to shard 0 is ended before the others are: see Client.Close.
	Close(ctx context.Context, clean bool) error
}

// MaxEpoch is the last epoch that somebody may own a split under: nobody gets there by counting.
const MaxEpoch = 1 << 62
