package ps

import (
	"context"
	"time"

	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// Peer is a shard as the coordinator of a cluster sees it: a [Node] of this process, or one behind the network. Methods
// may overlap; each is said at [Node].
type Peer interface {
	Status(ctx context.Context) (NodeStatus, error)
	Load(ctx context.Context, o LoadOptions) error
	Connect(ctx context.Context, session, generation uint64, worker string) (Conn, error)
	BeginCut(ctx context.Context, id, snapshot uint64, sessions []uint64) error
	AwaitCut(ctx context.Context, id uint64) (*CutState, error)
	WriteCut(ctx context.Context, id uint64, dir string) (*snapshot.Part, error)
	EndCut(ctx context.Context, id, durable uint64) (stall time.Duration, err error)
	Progress(ctx context.Context) (map[SplitID]Progress, error)
	Digest(ctx context.Context) (*ShardDigest, error)
	Stats(ctx context.Context) (Stats, error)
	Row(ctx context.Context, tbl int, fid int64, dst *table.Rows) (bool, error)
	Close() error
}

var _ Peer = (*Node)(nil)
