package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/wire"
)

// shards is the parameter server as a run sees it: a [*ps.Cluster] in this process or a [*rpc.Remote].
type shards interface {
	stateStore
	Client(ctx context.Context, worker string) (*ps.Client, error)
	ClientAt(ctx context.Context, worker string, generation uint64) (*ps.Client, error)
	SetState(ctx context.Context, key string, value []byte) error
	SetStateAt(ctx context.Context, member, generation uint64, key string, value []byte) error
	Snapshot(ctx context.Context, o ps.SnapshotOptions) (ps.SnapshotInfo, error)
	Newest(ctx context.Context) (*ps.SnapshotInfo, error)
	Progress(ctx context.Context, source string) (map[string]ps.Progress, error)
	RollBack(ctx context.Context, generation uint64, why string) error
	Join(ctx context.Context, o ps.JoinOptions) (member uint64, err error)
	Await(ctx context.Context, member, have uint64) (ps.Assignment, error)
	Report(ctx context.Context, member uint64, r ps.Report) error
	Leave(ctx context.Context, member uint64) (last bool, err error)
	Restored() *ps.SnapshotInfo
	Close(ctx context.Context) error
}

var (
	_ shards = (*ps.Cluster)(nil)
	_ shards = (*rpc.Remote)(nil)
)

// remote tells that the shards are in other processes.
func (p *PS) remote() bool { return len(p.Addresses) > 0 }

// identity is what workers and shards of a job must have in common.
func (c *Config) identity(plan *pipeline.Plan, layout *param.Layout) rpc.Identity {
	r := c.Parse.recipe()
	return rpc.Identity{Job: c.Name, Plan: plan.Hash(), Layout: layout.Hash(), Shards: len(c.PS.Addresses), Recipe: rpc.Recipe{Hash: r.hash(), Text: string(r.json())}}
}

// logOptions is nil without durability: wal.
func (c *Config) logOptions() *ps.LogOptions {
	if c.PS.Durability != "wal" {
		return nil
	}
	dir := c.PS.WAL.Dir
	if dir == "" {
		dir = filepath.Join(c.Dir, "wal")
	}
	return &ps.LogOptions{Dir: dir, Identity: "features " + c.Parse.recipe().hash(), NoSync: !c.PS.WAL.Sync, SegmentBytes: int64(c.PS.WAL.SegmentBytes)}
}

func (c *Config) recovery() ps.RecoveryMode {
	if c.PS.Recovery == "partial" {
		return ps.Partial
	}
	return ps.Rollback
}

// maxStaged is how many batches of a split may be staged at once.
func (c *Config) maxStaged() int { return max(c.Train.Prefetch.Push, 1) }

// clusterOptions are those of a process with shards. The job's dir must be there. Errors: [pipeline.ErrUnavailable].
func (c *Config) clusterOptions(plan *pipeline.Plan, model fmt.Stringer, layout *param.Layout) (ps.Options, error) {
	o := ps.Options{
		Layout: layout, NumShards: c.PS.Shards, Dir: c.snapshotsIn(), Keep: c.Snapshot.Keep, Every: time.Duration(c.Snapshot.Every), Tolerate: c.Snapshot.Tolerate,
		MaxStaged: c.maxStaged(), Log: c.logOptions(), Recovery: c.recovery(), Lease: time.Duration(c.PS.Lease),
		Meta:   map[string]string{"job": c.Name, "plan": plan.Hash(), "model": model.String()},
		Recipe: c.Parse.recipe().json(),
	}
	if o.Log != nil {
		var err error
		if o.Log.Owner, err = c.id(); err != nil {
			return ps.Options{}, err
		}
		dir := c.Dir
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		o.Log.Job = fmt.Sprintf("job %s in %s", c.Name, dir)
	}
	return o, nil
}

// id is what no other job has, wherever its dir is moved to and whatever it is called: a random number in a file of the dir,
// made when it is first asked for. Logs outside of the dir are told from those of other jobs by it.
func (c *Config) id() (string, error) {
	path := filepath.Join(c.Dir, "id")
	for {
		b, err := os.ReadFile(path)
		if id := strings.TrimSpace(string(b)); err == nil && id != "" {
			return id, nil
		}
		if err == nil {
			return "", fmt.Errorf("job: dir: %s is empty; remove it: %w", path, pipeline.ErrUnavailable)
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("job: dir: %w: %w", err, pipeline.ErrUnavailable)
		}
		// Another process of the job may be making it: the one that gives it its name first has made it.
		tmp, err := os.CreateTemp(c.Dir, "id-*.tmp")
		if err != nil {
			return "", fmt.Errorf("job: dir: %w: %w", err, pipeline.ErrUnavailable)
		}
		_, err = fmt.Fprintf(tmp, "%016x\n", rand.Uint64())
		err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
		if err == nil {
			if err = os.Link(tmp.Name(), path); errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrPermission) {
				err = os.Rename(tmp.Name(), path) // file systems without links
			}
		}
		if rerr := os.Remove(tmp.Name()); !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(rerr, err)
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("job: dir: %w: %w", err, pipeline.ErrUnavailable)
		}
	}
}

// clientConfig says how processes of the job reach each other. It reads the token and the certificates, to see whether
// they are there. Errors: [pipeline.ErrConfig].
func (p *PS) clientConfig() (wire.ClientConfig, error) {
	token, err := p.Token.Resolve()
	if err != nil {
		return wire.ClientConfig{}, configError("ps.token: %w", err)
	}
	c := wire.ClientConfig{TLS: p.TLS.options(), Token: token}
	for _, addr := range p.Addresses {
		if _, err := wire.DialOptions(addr, c); err != nil {
			return c, configError("ps.tls: %w", err)
		}
	}
	return c, nil
}

// serverConfig says how a shard is reached. Errors: [pipeline.ErrConfig].
func (p *PS) serverConfig() (wire.ServerConfig, error) {
	token, err := p.Token.Resolve()
	if err != nil {
		return wire.ServerConfig{}, configError("ps.token: %w", err)
	}
	return wire.ServerConfig{TLS: p.TLS.options(), Token: token}, nil
}

// retryFor is how long calls try, as package wire means it: 0 would be its default there.
func (p *PS) retryFor() time.Duration {
	if p.Retry == 0 {
		return -1
	}
	return time.Duration(p.Retry)
}

func (t *PSTLS) options() *wire.TLS {
	if t == nil {
		return nil
	}
	return &wire.TLS{CertFile: t.Cert, KeyFile: t.Key, CAFile: t.CA, ServerName: t.ServerName}
}

// dial connects to shards in other processes.
func (c *Config) dial(ctx context.Context, plan *pipeline.Plan, layout *param.Layout, log *slog.Logger, hooks ps.Hooks) (*rpc.Remote, error) {
	conf, err := c.PS.clientConfig()
	if err != nil {
		return nil, err
	}
	return rpc.Dial(ctx, rpc.Options{
		Identity: c.identity(plan, layout), Layout: layout, Addrs: c.PS.Addresses, Config: conf, RetryFor: c.PS.retryFor(),
		MaxMessage: int(c.PS.MaxMessage), Logger: log, Hooks: hooks,
	})
}
