package ps

import (
	"context"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/ps/table"
)

const (
	// DefaultConsumerIdle is for how long a shard keeps what has changed for a consumer that does not ask.
	DefaultConsumerIdle = time.Hour
	// MaxConsumers is how many consumers a shard keeps changes for.
	MaxConsumers = 16
	// MaxConsumerName bounds the name of a consumer, bytes.
	MaxConsumerName = 200
	// MaxPass is for how long a shard keeps rows as they were for a consumer of cuts that does not ask.
	MaxPass = 30 * time.Second
)

// ChangesRequest asks a shard for the fids whose rows have changed or gone since a consumer asked last.
type ChangesRequest struct {
	// Consumer names who asks. The first request of a name registers it; from then on the shard takes note of changes for it.
	Consumer string
	// Stream and Seq are those of the last answer that the consumer has dealt with, which it acknowledges by that; 0 for none. The answer after it
	// is given, or given again. Without them, or with others than the shard knows, what was not acknowledged as a pass begins again.
	Stream, Seq uint64
	// Rows asks for whole rows; without it there are keys, times and counts.
	Rows bool
	// Cut asks for passes that are cuts of the shard, as replicas need them: weights of rows as they all were at the moment when the pass began, and what else there was then
	// ([Changes].At). Rows that updates change before they were given are copied, so a pass that nobody asks about for [MaxPass] is given up: what it was to give comes with
	// the next one. A consumer of cuts keeps what it is given in memory alone: one that does not name the shard's stream is given all rows.
	Cut bool
	// Drop ends the registration.
	Drop bool
	// Shards is how many shards the consumer knows of; a cluster of another number refuses it. 0: it does not say.
	Shards int
}

// Changes is what a shard answers. One answer has a piece of one table. What it holds is only read: replicas in the process of the shard share it.
//
// A shard gives its changes in passes: all rows that had changed, and keys of rows that had gone, when the pass began, in pieces, each as it is when it is read. What
// changes meanwhile comes again with the next pass. So a consumer that deals with every answer has, at the end of a pass, every change that was applied
// before it began, and each answer may be dealt with more than once.
type Changes struct {
	// Stream is another one after each registration, Seq counts its answers.
	Stream, Seq uint64
	// All says that the pass brings all rows: the shard does not know what the consumer has, because it is new, came too seldom, or the shard
	// was started again or has gone back to another state. What the consumer has of the shard's rows and does not get in this pass is no more.
	All bool
	// Whole says that the pass ends with this answer.
	Whole bool
	// Table is the number of the table in the layout.
	Table int
	// Rows were made or changed, in the order of [table.Hash].
	Rows table.Rows
	// Removed have no row any more. In a pass that is a cut they come before the rows of their table, and those that have a row at the cut come again among these.
	Removed []int64
	// Snapshot orders the answer against snapshots without a clock: it is the newest one for which the shard had begun a cut when it had read
	// the rows. Snapshots with a higher number hold these rows as they are here, or newer. A pass that is a cut has none.
	Snapshot uint64
	// At is the cut that a pass is, where that was asked for; its last answer alone has it.
	At *CutOfShard
}

// CutOfShard is what a shard was at the moment of a cut beside its rows. Shards are cut each by itself: where every update has been applied, positions of all are the same.
type CutOfShard struct {
	// Age is how long before the answer the cut was: replicas share cuts that are a moment old.
	Age time.Duration
	// Generation is the cluster's.
	Generation uint64
	// Progress is what was applied.
	Progress map[SplitID]Progress
	// Dense are the weights of the shard's dense tensors, one after the other in the order of the layout; nil: they are those of the last pass that the consumer has acknowledged.
	Dense []float32
}

// ChangesSource gives the changes of shards: a coordinator.Cluster or rpc.Remote.
type ChangesSource interface {
	// ChangesFor asks one shard.
	ChangesFor(ctx context.Context, shard int, r ChangesRequest) (*Changes, error)
}

// Consumer asks the shards for changes under a name, and acknowledges each answer with the next question to its shard. A later one with the name of
// one that has died continues with the pass that was not acknowledged to its end, from the beginning. Next may be called for different shards at the same
// time, not for one.
type Consumer struct {
	from ChangesSource
	of   []ChangesRequest
}

// NewConsumer makes a consumer of so many shards; rows says that it wants whole rows. It registers at each shard with its first question.
func NewConsumer(name string, from ChangesSource, shards int, rows bool) *Consumer {
	return newConsumer(from, shards, ChangesRequest{Consumer: name, Rows: rows, Shards: shards})
}

// NewReplica makes a consumer whose passes are cuts ([ChangesRequest].Cut).
func NewReplica(name string, from ChangesSource, shards int) *Consumer {
	return newConsumer(from, shards, ChangesRequest{Consumer: name, Rows: true, Cut: true, Shards: shards})
}

func newConsumer(from ChangesSource, shards int, r ChangesRequest) *Consumer {
	c := &Consumer{from: from, of: make([]ChangesRequest, shards)}
	for i := range c.of {
		c.of[i] = r
	}
	return c
}

// Next acknowledges what Next has returned last of a shard, and returns what follows. An answer that is [Changes.Whole] and empty says that there is
// nothing new. After an error it may be called again. Errors: [ErrRolledBack] when there are
// more or fewer shards now, so that another consumer has to be made for them; [ErrNotReady], [ErrConsumers], [ErrClosed], [ErrUnreachable], the context's.
func (c *Consumer) Next(ctx context.Context, shard int) (*Changes, error) {
	r := &c.of[shard]
	out, err := c.from.ChangesFor(ctx, shard, *r)
	if err == nil {
		r.Stream, r.Seq = out.Stream, out.Seq
	}
	return out, err
}

// Leave ends the registration at all shards. Errors: as Next.
func (c *Consumer) Leave(ctx context.Context) error {
	for shard, r := range c.of {
		r.Drop = true
		if _, err := c.from.ChangesFor(ctx, shard, r); err != nil {
			return err
		}
	}
	return nil
}

// OtherShards says that there are not as many shards as a caller knows of. It wraps [ErrRolledBack].
func OtherShards(knows, numShards int) error {
	return fmt.Errorf("ps: the caller knows of %d shards, and now there are %d; begin again with their number: %w", knows, numShards, ErrRolledBack)
}
