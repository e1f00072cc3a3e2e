package ps

import (
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

var (
	// ErrFenced means that another client has taken over the split, or this one never did. [Client.Push] returns it; the caller
	// stops working on the split.
	ErrFenced = failure.New(failure.Fenced, "fenced: the split has a newer owner")
	// ErrGap means that an update begins after the end of what the shard has of its split, so something in between is missing.
	// [Client.Push] returns it; the caller resumes the split and reads on from there.
	ErrGap = failure.New(failure.Gap, "gap between updates")
	// ErrOverlap means that an update covers some, but not all, positions that the shard has already. It is a fault of the caller.
	ErrOverlap = failure.New(failure.Overlap, "update overlaps what the shard has")
	// ErrTorn means that shards hold different parts of a split: one of them has lost state, or something was applied to one shard
	// alone. [Client.Resume], coordinator.Cluster.Snapshot and coordinator.Cluster.Digest return it. Roll back to a snapshot.
	ErrTorn = failure.New(failure.Torn, "shards disagree about a split")
	// ErrLayout means that options, rows or an update do not fit the layout, or that a snapshot does not fit the model.
	ErrLayout = failure.Kind(failure.Layout, "layout mismatch")
	// ErrReadOnly means that a reader, or a client of shards that hold weights alone, has tried to change something. Take part as a
	// trainer.
	ErrReadOnly = failure.New(failure.Config, "only for reading")
	// ErrBusy means that a split has as many batches staged as coordinator.Options.MaxStaged allows. Commit first.
	ErrBusy = failure.New(failure.Busy, "too many batches staged")
	// ErrConsumers means that a shard keeps no changes for a consumer of that name: it has none, or too long a one, or there are too many
	// consumers already. The error says what to do.
	ErrConsumers = failure.New(failure.Config, "no changes are kept for the consumer")
	// ErrClosed means that the cluster or client was closed.
	ErrClosed = failure.New(failure.Closed, "parameter server is closed")
	// ErrNotReady means that a shard, or the cluster, has no state yet: shards are being waited for. Try again later.
	ErrNotReady = failure.New(failure.NotReady, "not ready yet")
	// ErrRolledBack means that the shards have gone back to an earlier state since the session began. Open a new client and
	// resume the splits.
	ErrRolledBack = errors.New("the shards have gone back to an earlier state")
	// ErrDisturbed means that owners of splits have changed while a cut was taken: it must begin again.
	ErrDisturbed = errors.New("cut disturbed")
	// ErrScale means that the shards cannot become those that were asked for; the error says why. coordinator.Cluster.Scale returns it.
	ErrScale = failure.New(failure.Config, "the shards cannot be changed like that")
	// ErrRejoin means that the coordinator does not know a member because it was started again since. Join again.
	ErrRejoin = errors.New("the coordinator was started again")
	// ErrUnreachable means that a shard or the coordinator did not answer for as long as was allowed.
	ErrUnreachable = failure.New(failure.Unreachable, "parameter server unreachable")
	// ErrInUse means that another process has a shard's log open; the error names the job. coordinator.Open and shard.Open return it.
	ErrInUse = failure.New(failure.InUse, "log in use")
	// ErrOthersLog means that the log in a shard's folder is another job's, which the error names; nothing that this job does to
	// itself changes that. It comes with [ErrMismatch]. coordinator.Open and shard.Open return it.
	ErrOthersLog = errors.New("log of another job")
	// ErrMismatch means that the other side, or a log, belongs to another job, another version of it, or a cluster of another shape.
	ErrMismatch = failure.Kind(failure.Mismatch, "not the same job")
	// ErrNoDir means that a snapshot was asked for, and coordinator.Options.Dir names no folder.
	ErrNoDir = failure.New(failure.NoDir, "no snapshot folder")
	// ErrCorrupt is [snapshot.ErrCorrupt].
	ErrCorrupt = snapshot.ErrCorrupt
	// ErrNoSpace is [snapshot.ErrNoSpace].
	ErrNoSpace = snapshot.ErrNoSpace
	// ErrDisk means that the disk of a shard's log failed in another way than being full. The shard must be started again once that is mended.
	ErrDisk = failure.New(failure.Disk, "the shard's disk failed")
	// ErrFull is [table.ErrFull]: memory for new rows cannot be had.
	ErrFull = table.ErrFull
)

// EpochError is a shard's refusal of a take-over under an epoch that is not above the one it has. Take over again under a
// higher one. It wraps [ErrFenced].
type EpochError struct {
	Split SplitID
	// Epoch was offered, Current is what the shard has.
	Epoch, Current uint64
}

// Error names the split and both epochs.
func (e *EpochError) Error() string {
	return fmt.Sprintf("ps: %s: epoch %d is not above %d: %v", e.Split, e.Epoch, e.Current, ErrFenced)
}

// Unwrap makes errors.Is find [ErrFenced].
func (e *EpochError) Unwrap() error { return ErrFenced }

// Unfit says that a snapshot's parameters do not fit the model's. It wraps [ErrLayout].
func Unfit(path, why string) error {
	return fmt.Errorf("ps: snapshot %s does not fit the model: %w:\n  %s", path, ErrLayout, why)
}
