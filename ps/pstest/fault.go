package pstest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

// ErrKilled is what everything returns in a process that a fault has killed.
var ErrKilled = errors.New("pstest: killed")

// Killer kills a client at a message boundary: before or after the message was handled, at random. Once it has struck,
// every message fails until [Killer.Revive]. The zero value never strikes.
type Killer struct {
	mu   sync.Mutex
	rng  *rand.Rand
	p    float64
	dead bool
	// messages counts all, kills how often it struck.
	messages, kills int
	// at, if above 0, is the one message to strike at.
	at int
}

// NewKiller strikes at every message boundary with probability p.
func NewKiller(seed uint64, p float64) *Killer {
	return &Killer{rng: rand.New(rand.NewPCG(seed, 3)), p: p}
}

// Revive lets messages through again, for the next client.
func (k *Killer) Revive() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = false
}

// Kills is how often it struck.
func (k *Killer) Kills() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kills
}

// point is a message boundary.
func (k *Killer) point() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead {
		return ErrKilled
	}
	k.messages++
	if k.rng != nil && k.rng.Float64() < k.p || k.at > 0 && k.messages == k.at {
		k.dead = true
		k.kills++
		return ErrKilled
	}
	return nil
}

// Wrap is for [coordinator.Options].WrapConn.
func (k *Killer) Wrap(_ string, _ int, c ps.Conn) ps.Conn { return &killedConn{c, k} }

type killedConn struct {
	ps.Conn
	k *Killer
}

func (c *killedConn) Lookup(ctx context.Context, ctl []ps.Control, rows *param.Rows) (ps.Reply, error) {
	if err := c.k.point(); err != nil {
		return ps.Reply{}, err
	}
	r, err := c.Conn.Lookup(ctx, ctl, rows)
	return r, errors.Join(err, c.k.point())
}

func (c *killedConn) Dense(ctx context.Context, ctl []ps.Control, have uint64, dst []float32) (uint64, ps.Reply, error) {
	if err := c.k.point(); err != nil {
		return 0, ps.Reply{}, err
	}
	v, r, err := c.Conn.Dense(ctx, ctl, have, dst)
	return v, r, errors.Join(err, c.k.point())
}

func (c *killedConn) Stage(ctx context.Context, ctl []ps.Control, epoch uint64, u *param.Update) (ps.Reply, error) {
	if err := c.k.point(); err != nil {
		return ps.Reply{}, err
	}
	r, err := c.Conn.Stage(ctx, ctl, epoch, u)
	return r, errors.Join(err, c.k.point())
}

func (c *killedConn) Control(ctx context.Context, ctl []ps.Control) (ps.Reply, error) {
	if err := c.k.point(); err != nil {
		return ps.Reply{}, err
	}
	r, err := c.Conn.Control(ctx, ctl)
	return r, errors.Join(err, c.k.point())
}

func (c *killedConn) Acquire(ctx context.Context, id ps.SplitID, epoch uint64) (ps.SplitState, ps.Reply, error) {
	if err := c.k.point(); err != nil {
		return ps.SplitState{}, ps.Reply{}, err
	}
	st, r, err := c.Conn.Acquire(ctx, id, epoch)
	return st, r, errors.Join(err, c.k.point())
}

// Close of a killed client sends nothing to the shard.
func (c *killedConn) Close(ctx context.Context, clean bool) error {
	if err := c.k.point(); err != nil {
		return err
	}
	return c.Conn.Close(ctx, clean)
}

// ApplyAtOnce is the control experiment for [coordinator.Options].WrapConn: every update is applied by each shard as soon as that
// shard has it, without waiting for the others.
func ApplyAtOnce(_ string, _ int, c ps.Conn) ps.Conn { return &hastyConn{c} }

type hastyConn struct{ ps.Conn }

func (c *hastyConn) Stage(ctx context.Context, ctl []ps.Control, epoch uint64, u *param.Update) (ps.Reply, error) {
	if _, err := c.Conn.Stage(ctx, ctl, epoch, u); err != nil {
		return ps.Reply{}, err
	}
	commit := ps.Control{Kind: ps.Commit, Split: ps.SplitID{Source: u.Source, Split: u.Split}, Epoch: epoch, To: u.To}
	return c.Control(ctx, []ps.Control{commit})
}

// FaultFS is a file system that fails at chosen operations. What was written but not synced before a kill is lost in
// part, as after a power failure.
type FaultFS struct {
	fsx.Disk
	mu       sync.Mutex
	ops      int
	writes   int
	killAt   int
	fullAt   int
	dead     bool
	unsynced map[string]int64 // bytes of files that are not synced
}

// NewFaultFS works on a disk. killAt is the number, from 1, of the changing operation at which the process dies; fullAt that
// of the write at which the disk is full, and stays so until [FaultFS.Empty]. 0 means never.
func NewFaultFS(on fsx.Disk, killAt, fullAt int) *FaultFS {
	return &FaultFS{Disk: on, killAt: killAt, fullAt: fullAt, unsynced: map[string]int64{}}
}

// Ops returns how many changing operations and how many writes there were.
func (f *FaultFS) Ops() (ops, writes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops, f.writes
}

// Dead reports whether the process was killed.
func (f *FaultFS) Dead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// Empty makes room on the disk.
func (f *FaultFS) Empty() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fullAt = 0
}

// Unsynced returns the files whose contents a power failure at the kill would have lost.
func (f *FaultFS) Unsynced() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for name := range f.unsynced {
		out = append(out, name)
	}
	return out
}

func (f *FaultFS) op() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return ErrKilled
	}
	f.ops++
	if f.ops == f.killAt {
		f.dead = true
		return ErrKilled
	}
	return nil
}

// MkdirAll implements [fsx.Disk].
func (f *FaultFS) MkdirAll(path string) error {
	if err := f.op(); err != nil {
		return err
	}
	return f.Disk.MkdirAll(path)
}

// Create implements [fsx.Disk].
func (f *FaultFS) Create(path string) (fsx.DiskFile, error) {
	if err := f.op(); err != nil {
		return nil, err
	}
	file, err := f.Disk.Create(path)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsynced[path] = 0
	return &faultFile{file, f, path}, nil
}

// Update implements [fsx.Disk].
func (f *FaultFS) Update(path string, at int64, direct bool) (fsx.DiskFile, error) {
	if err := f.op(); err != nil {
		return nil, err
	}
	file, err := f.Disk.Update(path, at, direct)
	if err != nil {
		return nil, err
	}
	return &faultFile{file, f, path}, nil
}

// Rename implements [fsx.Disk].
func (f *FaultFS) Rename(from, to string) error {
	if err := f.op(); err != nil {
		return err
	}
	if err := f.Disk.Rename(from, to); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.unsynced[from]; ok {
		delete(f.unsynced, from)
		f.unsynced[to] = 0
	}
	return nil
}

// Remove implements [fsx.Disk].
func (f *FaultFS) Remove(path string) error {
	if err := f.op(); err != nil {
		return err
	}
	return f.Disk.Remove(path)
}

// SyncDir implements [fsx.Disk].
func (f *FaultFS) SyncDir(path string) error {
	if err := f.op(); err != nil {
		return err
	}
	return f.Disk.SyncDir(path)
}

type faultFile struct {
	fsx.DiskFile
	fs   *FaultFS
	path string
}

// Write writes half of p when it fails.
func (f *faultFile) Write(p []byte) (int, error) {
	f.fs.mu.Lock()
	f.fs.writes++
	full := f.fs.fullAt > 0 && f.fs.writes >= f.fs.fullAt
	f.fs.mu.Unlock()
	err := f.fs.op()
	if err == nil && full {
		err = syscall.ENOSPC
	}
	if err != nil {
		n, _ := f.DiskFile.Write(p[:len(p)/2])
		return n, err
	}
	f.fs.mu.Lock()
	f.fs.unsynced[f.path] = 0
	f.fs.mu.Unlock()
	return f.DiskFile.Write(p)
}

func (f *faultFile) Sync() error {
	if err := f.fs.op(); err != nil {
		return err
	}
	if err := f.DiskFile.Sync(); err != nil {
		return err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	delete(f.fs.unsynced, f.path)
	return nil
}

// Close gives the handle back even in a killed process, which the system would do.
func (f *faultFile) Close() error { return errors.Join(f.DiskFile.Close(), f.fs.op()) }

// BadDisk is a file system of which some files cannot be read to their end, as on a disk with a bad sector.
type BadDisk struct {
	fsx.Disk
	// Bad names the files.
	Bad func(path string) bool
}

// Open implements [fsx.Disk].
func (d BadDisk) Open(path string) (fsx.File, error) {
	src, err := d.Disk.Open(path)
	if err != nil || !d.Bad(path) {
		return src, err
	}
	return badSource{src}, nil
}

type badSource struct{ fsx.File }

func (s badSource) ReadAt(p []byte, at int64) (int, error) {
	good := max(0, min(int64(len(p)), s.Info().Size/2-at))
	n, err := s.File.ReadAt(p[:good], at)
	if err == nil && n < len(p) {
		err = syscall.EIO
	}
	return n, err
}
