package ps

import (
	"context"
	"time"

	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/tally"
)

// Peer is a shard as the coordinator of a cluster sees it: a shard.Node of this process, or one behind the network. Methods
// may overlap. Each returns [ErrClosed] once the shard is closed and the context's error when it ends; one behind the network
// also [ErrUnreachable], [ErrMismatch] when what answers is of another job, folder or shard, and [ErrNotReady] while another
// coordinator has it. A call that failed may have had its effect. Calls that change something may be repeated, except Load.
type Peer interface {
	// Status describes how the shard is: its generation, the snapshots that its state and its log go back to, its rows. The error
	// of a log that cannot be written is returned beside it. It changes nothing and does no I/O on the shard's side.
	Status(ctx context.Context) (NodeStatus, error)
	// Load makes the shard go to a state of a generation above its own: a snapshot's, initial values, or the one it has, or none.
	// Streams and cuts of generations before end. It takes as long as reading the shard's part of the snapshot. Errors:
	// [ErrCorrupt] and [ErrLayout], after which the shard has what it had; [ErrFull], after which it has no state;
	// [ErrRolledBack] when it has that generation or one above, which is what a repeated call gets; [ErrNotReady] when there
	// is no state to keep; [ErrMismatch] for a generation centuries above the clock; those of the log.
	Load(ctx context.Context, o LoadOptions) error
	// Prepare makes the shard read a snapshot beside what it has and does, as one of so many shards: Load of that snapshot, as one of so many, has
	// nothing to read then. After the first it reads of an incremental snapshot what has changed since the one before alone. Until it is ended the shard takes note of
	// which rows change, so that snapshots can be incremental. It takes as long as reading. A shard that stays, and has no retention, reads only the rows that it gains, and takes memory for them alone: those that
	// it owns before and after stay where they are, and Load uses them where the shard has applied nothing since its part of that snapshot; otherwise Load reads all. All others, and standbys, read all rows
	// that they will have, and take the memory of that beside the present state. Errors: [ErrCorrupt],
	// [ErrLayout], [ErrFull] when there is no room for it, [ErrDisturbed] when another call, or Load, came in between; after any of them nothing is prepared, and all else
	// is as it was.
	Prepare(ctx context.Context, o PrepareOptions) error
	// Connect opens the stream of a session, or opens it again after it broke; an older stream of the session ends.
	// generation is the cluster's when the session began. The caller closes the stream. Errors: [ErrNotReady],
	// [ErrRolledBack].
	Connect(ctx context.Context, session, generation uint64, worker string) (Conn, error)
	// BeginCut asks for cut id after the markers of the given sessions; without sessions it is taken at once. A cut that was
	// under way is abandoned. What comes after the cut goes to the log of the given snapshot number, which is not below that
	// of the last. hold is for how long commits wait behind the cut, lookups do not, until EndCut or another state comes; at most [MaxHold]. It returns at
	// once. Errors: [ErrNotReady], [ErrMismatch] for a number that the log cannot have, those of the log.
	BeginCut(ctx context.Context, id, snapshot uint64, sessions []uint64, hold time.Duration) error
	// AwaitCut returns when cut id is taken: from then until EndCut the shard keeps its rows as they were, and copies those
	// that change. Errors: [ErrDisturbed] when owners have changed meanwhile or the cut was abandoned: it must begin again.
	AwaitCut(ctx context.Context, id uint64) (*CutState, error)
	// WriteCut writes the shard's part of cut id into o.Dir: all rows, or what has changed since o.Base. It may be called once for a cut. It returns what
	// the manifest must name once all of it, and the border in the log, is durable. Errors: [ErrDisturbed] when there is no
	// such cut, [ErrNoSpace], [ErrNoDir] when the shard does not see the folder, [ErrFull] when there was no memory to keep
	// rows that changed, [snapshot.ErrNotFinite].
	WriteCut(ctx context.Context, id uint64, o WriteOptions) (*snapshot.Part, error)
	// EndCut ends cut id, [AnyCut] for whichever there is: streams continue, and what was kept for it is freed. durable is the
	// snapshot that it has become, 0 for none, and lets the log forget what lies before. stall is the longest that a client
	// waited for the cut. A cut that is not there is no error. Errors: those of the log.
	EndCut(ctx context.Context, id, durable uint64) (stall time.Duration, err error)
	// Progress returns how far every split is applied here; staged batches do not count. The caller owns the map.
	Progress(ctx context.Context) (map[SplitID]Progress, error)
	// Digest names what the shard holds at one moment, while updates continue: O(rows), with memory for the rows that change
	// meanwhile. It waits for a cut that is being written to end. Errors: [ErrFull].
	Digest(ctx context.Context) (*ShardDigest, error)
	// Stats returns what the shard holds; Tables has an entry for each table of the layout, in its order.
	Stats(ctx context.Context) (Stats, error)
	// Entries appends the rows of those fids that have one, in table number tbl of the layout, to dst, state included, in the order of fids. Errors: [ErrLayout] for a
	// table that is not there, [ErrRolledBack] for a fid that is not one of this shard's: there are more or fewer shards than the caller knows of.
	Entries(ctx context.Context, tbl int, fids []int64, dst *table.Rows) error
	// Newest is the largest time of a row, or of a fid that waits for one, 0 where none has any. It reads all of them, while updates continue.
	Newest(ctx context.Context) (int64, error)
	// Tally describes the rows of each table by slots, while updates continue. Ages count back from newest. Errors: [ErrNotReady], [ErrRolledBack].
	Tally(ctx context.Context, newest int64) ([]tally.Slots, error)
	// ChangesFor gives a consumer what has changed since it asked last. Errors: [ErrNotReady], [ErrConsumers].
	ChangesFor(ctx context.Context, r ChangesRequest) (*Changes, error)
	// Close ends the shard of this process, and of one behind the network the connection alone. It may be called more than
	// once.
	Close() error
}

// NodeStatus describes how a node is.
type NodeStatus struct {
	// Shard is one of NumShards in the state that it has. Where it is not below that it was removed.
	Shard, NumShards int
	// Incarnation is another one after every start of the node.
	Incarnation uint64
	// Generation is that of its state, 0 for none.
	Generation uint64
	// Base is the snapshot that the state goes back to, LogBase the newest that the log speaks of; 0 for none.
	Base, LogBase uint64
	Recovery      LogRecovery
	Rows          int64
	// Preparing: Prepare was called, and neither ended nor followed by Load.
	Preparing bool
}

// LogRecovery describes what a node's log gave back.
type LogRecovery struct {
	// Records were replayed. TornBytes were an unfinished record at the end, which nobody had an answer to.
	Records, TornBytes int64
	// Lost describes why the log gives back nothing, or less than was acknowledged; empty when nothing is missing.
	Lost string
}

// LoadOptions say which state a node goes to.
type LoadOptions struct {
	// Generation is the cluster's from now on, above the node's.
	Generation uint64
	// Keep leaves the state as it is: only the generation changes.
	Keep bool
	// Path is the snapshot to load; "" stands for initial values.
	Path string
	// ID is that of the snapshot.
	ID uint64
	// Shards is how many shards there are from now on, 0: as many as before. One whose index is not below that was removed: it gives its state
	// and its log up, and refuses everybody ([ErrMismatch]) until it is given a state as one of more shards.
	Shards int
}

// PrepareOptions say what a node reads ahead. The zero value ends it, and frees what was read.
type PrepareOptions struct {
	// Shards is how many shards there will be. One whose index is not below that reads nothing.
	Shards int
	// Path is the snapshot to read, ID its number; "": none yet.
	Path string
	ID   uint64
	// Hurry has it read with all processors: commits wait for it, or soon will.
	Hurry bool
}

// WriteOptions say what a node writes of a cut.
type WriteOptions struct {
	// Dir is that of a snapshot which shard 0's process has begun.
	Dir string
	// Base is the snapshot that AwaitCut told of, of which only the changes are written; 0: all rows are.
	Base uint64
	// Hurry has it written with all processors though streams change the state: commits wait for it, or soon will.
	Hurry bool
}

// CutState is what a coordinator has to know of a cut that a node has taken.
type CutState struct {
	// Progress is what is applied in the cut.
	Progress map[SplitID]Progress
	// Bytes estimates what writing its rows and dense tensors takes.
	Bytes int64
	// Base is the snapshot since which the shard knows which rows have changed, and BaseBytes estimates what writing those takes; 0: it knows of
	// none.
	Base      uint64
	BaseBytes int64
	// State is the worker state in the cut; shard 0 has it.
	State map[string][]byte
	// Changes is how often the state was changed until the cut; only a node of this process says so.
	Changes uint64
}

// MaxHold is the longest that a shard lets commits wait behind a cut, whatever it is asked for.
const MaxHold = time.Minute

// AnyCut stands for whatever cut is under way.
const AnyCut = 0

// ShardDigest names what a shard holds.
type ShardDigest struct {
	// Digest is that of rows and tensors.
	Digest   snapshot.Digest
	Progress map[SplitID]Progress
	// State is the worker state; shard 0 has it.
	State map[string][]byte
}

// Stats describes what a cluster holds.
type Stats struct {
	Tables []TableStats
	// DenseBytes is the memory of dense tensors and their state.
	DenseBytes int64
	// Staged counts batches that shards have staged, each shard for itself.
	Staged int
	// SnapshotFailures counts snapshots that failed.
	SnapshotFailures int
}

// TableStats describes what a table holds on all shards.
type TableStats struct {
	Name  string
	Rows  int64
	Bytes int64
	// Removed are the rows that went by the retention since each shard's process began.
	Removed table.Removed
}

// Rows is the number of rows of all tables.
func (s Stats) Rows() int64 {
	n := int64(0)
	for _, t := range s.Tables {
		n += t.Rows
	}
	return n
}
