package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
)

// host is what dies together, as a process does: what it writes, what it answers and what it asks of others.
type host struct {
	mu   sync.RWMutex
	dead bool
}

// kill waits for the change to a file that is under way. Nothing that is done afterwards has an effect, so what somebody
// was acknowledged before is in the files.
func (h *host) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = true
}

func (h *host) alive() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.dead {
		return pstest.ErrKilled
	}
	return nil
}

func (h *host) do(f func() error) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.dead {
		return pstest.ErrKilled
	}
	return f()
}

// mortalFS is the file system as a host sees it. What is written is there for the host's next life; that it would survive
// the machine's death costs time and is another test's matter.
type mortalFS struct {
	fsx.Disk
	h *host
}

func (m mortalFS) MkdirAll(p string) error {
	return m.h.do(func() error { return m.Disk.MkdirAll(p) })
}

func (m mortalFS) Rename(a, b string) error {
	return m.h.do(func() error { return m.Disk.Rename(a, b) })
}

func (m mortalFS) Remove(p string) error {
	return m.h.do(func() error { return m.Disk.Remove(p) })
}

func (m mortalFS) SyncDir(string) error { return m.h.alive() }

func (m mortalFS) Create(p string) (f fsx.DiskFile, err error) {
	err = m.h.do(func() error { f, err = m.Disk.Create(p); return err })
	if err != nil {
		return nil, err
	}
	return mortalFile{f, m.h}, nil
}

func (m mortalFS) Update(p string, at int64, _ bool) (f fsx.DiskFile, err error) {
	err = m.h.do(func() error { f, err = m.Disk.Update(p, at, false); return err })
	if err != nil {
		return nil, err
	}
	return mortalFile{f, m.h}, nil
}

type mortalFile struct {
	fsx.DiskFile
	h *host
}

// Write may be torn by a kill.
func (f mortalFile) Write(p []byte) (n int, err error) {
	half := len(p) / 2
	for _, part := range [][]byte{p[:half], p[half:]} {
		err := f.h.do(func() error { k, err := f.DiskFile.Write(part); n += k; return err })
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (f mortalFile) Sync() error { return f.h.alive() }

// slowDisk opens the files of a shard when a test lets it.
type slowDisk struct {
	mortalFS
	f     *fleet
	shard int
}

func (d slowDisk) Open(name string) (fsx.File, error) {
	if before := d.f.beforeOpen.Load(); before != nil {
		(*before)(d.shard, name)
	}
	return d.mortalFS.Open(name)
}

// fleet is a cluster whose shards die and come back, each a host of its own; that of shard 0 has the coordinator.
type fleet struct {
	t      testing.TB
	opts   coordinator.Options
	shards int    // hosts with a shard
	first  int    // shards that the job names; the others are added later
	logs   string // folder of the logs; "": none
	sync   bool
	// wrap, if not nil, is as in [coordinator.Options].
	wrap func(worker string, shard int, conn ps.Conn) ps.Conn

	// beforePrepare, if not nil, is called before a shard is asked to read a snapshot ahead, beforeOpen before it opens a file.
	beforePrepare func(shard int) error
	// beforeBegin, if not nil, is called before a shard is asked to begin a cut, beforeWrite before it is asked to write one.
	beforeBegin func(shard int, hold time.Duration)
	beforeWrite func(shard int, o ps.WriteOptions)
	beforeOpen  atomic.Pointer[func(shard int, name string)]

	mending sync.Mutex
	scaling sync.Mutex // held while scale is at work
	closing sync.WaitGroup

	mu struct {
		sync.Mutex
		hosts   []*host
		nodes   []*shard.Node
		cluster *coordinator.Cluster
		worker  *host
		rng     *rand.Rand
		p       float64
		kills   []int // by shard; the last is of the worker
		plan    []int // numbers of shards to come
	}
	// reconnects counts streams that were opened again, cuts those that a shard but 0 has reported to its coordinator.
	reconnects, cuts atomic.Int64
}

func newFleet(t testing.TB, o coordinator.Options, shards int, seed uint64, logs bool) *fleet {
	t.Helper()
	return newFleetOf(t, o, shards, shards, seed, logs)
}

// newFleetOf makes a fleet that begins with the first of so many shards.
func newFleetOf(t testing.TB, o coordinator.Options, shards, first int, seed uint64, logs bool) *fleet {
	t.Helper()
	f := &fleet{t: t, opts: o, shards: shards, first: first, sync: seed%4 == 0}
	f.opts.Dir = t.TempDir()
	f.opts.Grace = 5 * time.Minute // workers come back late on a busy machine
	if logs {
		f.logs = t.TempDir()
	}
	f.mu.rng = rand.New(rand.NewPCG(seed, 77))
	f.mu.kills = make([]int, shards+1)
	f.mu.nodes, f.mu.hosts = make([]*shard.Node, shards), make([]*host, shards)
	f.mu.worker = &host{}
	if err := f.mend(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for s := range shards {
			f.kill(s)
		}
		f.closing.Wait()
	})
	return f
}

// addrs are those of the first n shards.
func (f *fleet) addrs(n int) []string {
	out := make([]string, n)
	for s := range out {
		out[s] = fmt.Sprint("shard ", s)
	}
	return out
}

func (f *fleet) log(index int, h *host) *shard.LogOptions {
	if f.logs == "" {
		return nil
	}
	dir := f.logs
	if index > 0 { // a cluster adds the name of the shard itself
		dir = filepath.Join(dir, shard.LogName(index))
	}
	return &shard.LogOptions{Dir: dir, NoSync: !f.sync, SegmentBytes: 16 << 10, Disk: mortalFS{fsx.OS{}, h}}
}

// current returns a shard and what it runs on, which may be dead.
func (f *fleet) current(index int) (*shard.Node, *host) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.nodes[index], f.mu.hosts[index]
}

func (f *fleet) cluster() *coordinator.Cluster {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.cluster
}

// kill ends a host, if it is alive; f.shards is the worker's.
func (f *fleet) kill(index int) {
	f.mu.Lock()
	h, n, c := f.mu.worker, (*shard.Node)(nil), (*coordinator.Cluster)(nil)
	if index < f.shards {
		h, n = f.mu.hosts[index], f.mu.nodes[index]
	}
	if index == 0 {
		c = f.mu.cluster
	}
	if h == nil || h.alive() != nil {
		f.mu.Unlock()
		return
	}
	h.kill()
	f.mu.kills[index]++
	f.mu.Unlock()
	// What is left of the process only gives back memory and those that wait for it.
	f.closing.Go(func() {
		if n != nil {
			_ = n.Close()
		}
		if c != nil {
			_ = c.Close(context.Background())
		}
	})
}

// strike kills somebody now and then.
func (f *fleet) strike() {
	f.mu.Lock()
	victim := -1
	if f.mu.p > 0 && f.mu.rng.Float64() < f.mu.p {
		victim = f.mu.rng.IntN(f.shards + 1)
	}
	f.mu.Unlock()
	if victim >= 0 {
		f.kill(victim)
	}
}

// fix starts what is dead again and returns when the cluster is ready.
func (f *fleet) mend() error {
	f.mending.Lock()
	defer f.mending.Unlock()
	ctx := context.Background()
	for s := 1; s < f.shards; s++ {
		if _, h := f.current(s); h != nil && h.alive() == nil {
			continue
		}
		h := &host{}
		o := shard.Options{Layout: f.opts.Layout, Index: s, NumShards: f.shards, Dir: f.opts.Dir, Track: f.opts.Incremental > 0, Log: f.log(s, h), FS: fsx.Local{Disk: slowDisk{mortalFS{fsx.OS{}, h}, f, s}}}
		n, err := shard.Open(ctx, o)
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.mu.nodes[s], f.mu.hosts[s] = n, h
		f.mu.Unlock()
	}
	if _, h := f.current(0); h == nil || h.alive() != nil {
		h := &host{}
		o := f.opts
		o.Log, o.FS, o.Addrs = f.log(0, h), fsx.Local{Disk: slowDisk{mortalFS{fsx.OS{}, h}, f, 0}}, f.addrs(f.first)
		o.Dial = func(s int, _ string) (ps.Peer, error) { return &remotePeer{f, s, h}, nil }
		c, err := coordinator.Open(ctx, o)
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.mu.cluster, f.mu.nodes[0], f.mu.hosts[0] = c, c.First(), h
		f.mu.Unlock()
	}
	for range 1000 {
		c := f.cluster()
		if err := c.EnsureState(); err != nil && !errors.Is(err, ps.ErrNotReady) {
			return err
		}
		info, err := c.Info()
		settled := err == nil
		for s := range info.Addrs {
			n, _ := f.current(s)
			settled = settled && generation(n) == info.Generation
		}
		if settled {
			return nil
		}
	}
	return errors.New("the cluster does not become ready")
}

// client opens a client whose streams continue when their shard has come back.
func (f *fleet) client(worker string) (*ps.Client, error) {
	if err := f.mend(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.mu.worker = &host{}
	w := f.mu.worker
	session := f.mu.rng.Uint64() | 1
	f.mu.Unlock()
	info, err := f.cluster().Info()
	if err != nil {
		return nil, err
	}
	o := ps.ClientOptions{Layout: f.opts.Layout, Precision: f.opts.Precision, Worker: worker, Partial: f.opts.Recovery == ps.Partial}
	for s := range info.Addrs {
		var c ps.Conn = &tether{f: f, h: w, shard: s, session: session, generation: info.Generation, worker: worker, commits: map[ps.SplitID]ps.Control{}}
		if f.wrap != nil {
			c = f.wrap(worker, s, c)
		}
		o.Conns = append(o.Conns, c)
	}
	return ps.NewClient(o), nil
}

// generation is that of a node's state.
func generation(n *shard.Node) uint64 {
	st, _ := n.Status(context.Background())
	return st.Generation
}
