package run

import (
	"context"

	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/rpc"
)

// shards is the parameter server as a run sees it: a [*coordinator.Cluster] in this process or a [*rpc.Remote].
type shards interface {
	stored.State
	Client(ctx context.Context, worker string) (*ps.Client, error)
	Reader(ctx context.Context, worker string) (*ps.Client, error)
	ClientAt(ctx context.Context, worker string, generation uint64) (*ps.Client, error)
	SetState(ctx context.Context, key string, value []byte) error
	InitState(ctx context.Context, key string, value []byte) ([]byte, error)
	SetStateAt(ctx context.Context, member, generation uint64, key string, value []byte) error
	Snapshot(ctx context.Context, o ps.SnapshotOptions) (ps.SnapshotInfo, error)
	Newest(ctx context.Context) (*ps.SnapshotInfo, error)
	Stats(ctx context.Context) (ps.Stats, error)
	Progress(ctx context.Context, source string) (map[string]ps.Progress, error)
	RollBack(ctx context.Context, generation uint64, why string) error
	Join(ctx context.Context, o ps.JoinOptions) (member uint64, err error)
	Await(ctx context.Context, member, have uint64) (ps.Assignment, error)
	Report(ctx context.Context, member uint64, r ps.Report) error
	Follow(ctx context.Context, worker, run string, have ps.Ending, ended []int) (ps.Ending, error)
	Leave(ctx context.Context, member uint64) (last bool, err error)
	Restored() *ps.SnapshotInfo
	Close(ctx context.Context) error
}

var (
	_ shards = (*coordinator.Cluster)(nil)
	_ shards = (*rpc.Remote)(nil)
)
