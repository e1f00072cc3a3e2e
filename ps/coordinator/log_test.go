package coordinator_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
)

// logged is a cluster with a log and two snapshots, with pushes before, between and behind them. It is left as a killed
// process leaves it.
func logged(t *testing.T, shards int) (o coordinator.Options, infos []ps.SnapshotInfo, digest string) {
	t.Helper()
	o = coordinator.Options{Layout: pstest.SmallJob().Layout(), NumShards: shards, Dir: t.TempDir(), Log: &shard.LogOptions{Dir: t.TempDir()}}
	c := mustOpen(t, o)
	cl := mustClient(t, c, "x")
	at := int64(0)
	for range 3 {
		for range 20 {
			if err := cl.Push(t.Context(), pstest.RandomUpdate(o.Layout, "x", at, at+3)); err != nil {
				t.Fatal(err)
			}
			at += 3
		}
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		if len(infos) < 2 {
			info, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
			if err != nil {
				t.Fatal(err)
			}
			infos = append(infos, info)
		}
		cl = mustClient(t, c, "x")
	}
	digest, err := c.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dead := t.TempDir()
	for name, dir := range map[string]*string{"snapshots": &o.Dir, "logs": &o.Log.Dir} {
		to := filepath.Join(dead, name)
		if err := os.CopyFS(to, os.DirFS(*dir)); err != nil {
			t.Fatal(err)
		}
		*dir = to
	}
	return o, infos, digest
}

// damage changes a byte in the middle of a file.
func damage(t *testing.T, path string, at func(size int) int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at(len(b))] ^= 0x40
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func half(n int) int { return n / 2 }

// damageLog damages every segment of the log, within its records or in its header.
func damageLog(t *testing.T, o coordinator.Options, at func(size int) int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(o.Log.Dir, shard.LogName(0), "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no log: %v", err)
	}
	for _, f := range files {
		damage(t, f, at)
	}
}

func damageSnapshot(t *testing.T, o coordinator.Options, info ps.SnapshotInfo, shard int) {
	t.Helper()
	for _, f := range info.Files {
		if f.Shard == shard && f.Bytes > 0 {
			damage(t, filepath.Join(o.Dir, filepath.Base(info.Path), f.Name), half)
			return
		}
	}
	t.Fatal("no file of the shard")
}

func TestLogDamaged(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2} {
		for _, tc := range []struct {
			name   string
			damage func(t *testing.T, o coordinator.Options, infos []ps.SnapshotInfo)
			// want is what comes back: 2 everything, 1 the newest snapshot, 0 the one before.
			want    int
			lost    string
			skipped int
		}{
			{"nothing", func(*testing.T, coordinator.Options, []ps.SnapshotInfo) {}, 2, "", 0},
			{"log", func(t *testing.T, o coordinator.Options, _ []ps.SnapshotInfo) {
				damageLog(t, o, half)
			}, 1, "log is damaged", 0},
			{"headers", func(t *testing.T, o coordinator.Options, _ []ps.SnapshotInfo) {
				damageLog(t, o, func(int) int { return 9 })
			}, 1, "log is damaged", 0},
			{"newest snapshot", func(t *testing.T, o coordinator.Options, infos []ps.SnapshotInfo) {
				damageSnapshot(t, o, infos[1], shards-1)
			}, 2, "", 0},
			{"newest snapshot gone", func(t *testing.T, o coordinator.Options, infos []ps.SnapshotInfo) {
				if err := os.RemoveAll(filepath.Join(o.Dir, filepath.Base(infos[1].Path))); err != nil {
					t.Fatal(err)
				}
			}, 2, "", 0},
			{"log and newest snapshot", func(t *testing.T, o coordinator.Options, infos []ps.SnapshotInfo) {
				damageLog(t, o, half)
				damageSnapshot(t, o, infos[1], shards-1)
			}, 0, "log is damaged", 1},
			{"log of another life", func(t *testing.T, o coordinator.Options, infos []ps.SnapshotInfo) {
				// What a cluster with other logs has done meanwhile is not in this one's.
				others := *o.Log
				others.Dir, o.Log = t.TempDir(), &others
				o.NumShards++
				c := mustOpen(t, o)
				info, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if info.Digest != infos[1].Digest {
					t.Errorf("on %d shards: digest %s, want that of the newest snapshot", o.NumShards, info.Digest)
				}
			}, 1, "earlier life", 0},
		} {
			t.Run(fmt.Sprintf("%s/shards=%d", tc.name, shards), func(t *testing.T) {
				t.Parallel()
				o, infos, digest := logged(t, shards)
				tc.damage(t, o, infos)
				log := *o.Log
				log.Dir = filepath.Join(log.Dir, shard.LogName(0))
				n, err := shard.Open(t.Context(), shard.Options{Layout: o.Layout, Index: shards - 1, NumShards: shards, Dir: o.Dir, Log: &log})
				if err != nil {
					t.Fatal(err)
				}
				st, err := n.Status(t.Context())
				if err := errors.Join(err, n.Close()); err != nil {
					t.Fatal(err)
				}
				if (st.Generation == 0) != (tc.lost != "") || !strings.Contains(st.Recovery.Lost, tc.lost) || (st.Recovery.Lost == "") != (tc.lost == "") {
					t.Errorf("generation %d, recovery %+v, want lost: %q", st.Generation, st.Recovery, tc.lost)
				}
				var said bytes.Buffer
				o.Logger = slog.New(slog.NewTextHandler(&said, nil))
				c := mustOpen(t, o)
				want := []string{infos[0].Digest, infos[1].Digest, digest}[tc.want]
				if got, err := c.Digest(t.Context()); err != nil || got != want {
					t.Errorf("digest %s, want %s: %v", got, want, err)
				}
				if back := map[int]uint64{0: infos[0].ID, 1: infos[1].ID, 2: infos[1].ID}; tc.lost == "" && strings.HasPrefix(tc.name, "newest") {
					// The log has brought back everything, from the snapshot before the damaged one.
					if r := c.Restored(); r == nil || r.ID != infos[0].ID {
						t.Errorf("continues from %+v, want snapshot %d", r, infos[0].ID)
					}
				} else if r := c.Restored(); tc.name != "log of another life" && (r == nil || r.ID != back[tc.want]) {
					t.Errorf("continues from %+v, want snapshot %d", r, back[tc.want])
				}
				if len(c.Skipped()) != tc.skipped {
					t.Errorf("skipped %v, want %d", c.Skipped(), tc.skipped)
				}
				if tc.lost != "" && !strings.Contains(said.String(), tc.lost) {
					t.Errorf("nothing was said of %q:\n%s", tc.lost, &said)
				}
				// And it continues: the log is of the state that there is now.
				cl := mustClient(t, c, "x")
				p, err := c.Progress(t.Context(), "s")
				at := int64(p["x"].Position)
				if err := errors.Join(err, cl.Push(t.Context(), pstest.RandomUpdate(o.Layout, "x", at, at+1)), cl.Close(), c.Close(t.Context())); err != nil {
					t.Fatal(err)
				}
				c = mustOpen(t, o)
				if p, err = c.Progress(t.Context(), "s"); err != nil || int64(p["x"].Position) != at+1 {
					t.Errorf("opened again: %+v, %v; want position %d", p, err, at+1)
				}
			})
		}
	}
}

// TestOtherProcesses: two shards in one process, then each in its own, then in one again. A shard whose records are in the log of
// another process goes back to the newest snapshot with all others, and is told where they are; nothing is applied twice or left
// out. Started as before at once, they continue from the log.
func TestOtherProcesses(t *testing.T) {
	t.Parallel()
	const end = 300
	layout := pstest.SmallJob().Layout()
	var said strings.Builder
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(lockedWriter{&mu, &said}, nil))
	dir, logs := t.TempDir(), t.TempDir()
	own := func(i int) *shard.LogOptions {
		return &shard.LogOptions{Dir: filepath.Join(logs, shard.LogName(i))}
	}
	together := func() *coordinator.Cluster {
		return mustOpen(t, coordinator.Options{Layout: layout, NumShards: 2, Dir: dir, Log: &shard.LogOptions{Dir: logs}, Logger: logger})
	}
	apart := func() *coordinator.Cluster {
		n, err := shard.Open(t.Context(), shard.Options{Layout: layout, Index: 1, NumShards: 2, Dir: dir, Log: own(1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		c := mustOpen(t, coordinator.Options{Layout: layout, Addrs: []string{"zero", "one"}, Dial: at(n), Dir: dir, Log: &shard.LogOptions{Dir: logs}, Logger: logger})
		until(t, "ready", func() bool { return c.Ready() == nil })
		return c
	}
	push := func(c *coordinator.Cluster, wantFrom, to int64, snapshot bool) (digest string) {
		t.Helper()
		p, err := c.Progress(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		from := max(0, int64(p["x"].Position))
		if from != wantFrom {
			t.Errorf("continues from %d, want %d", from, wantFrom)
		}
		cl := mustClient(t, c, "x")
		for ; from < to; from += 3 {
			if err := cl.Push(t.Context(), pstest.RandomUpdate(layout, "x", from, from+3)); err != nil {
				t.Fatal(err)
			}
		}
		err = cl.Close()
		if snapshot {
			_, snapped := c.Snapshot(t.Context(), ps.SnapshotOptions{})
			err = errors.Join(err, snapped)
		}
		digest, failed := c.Digest(t.Context())
		if err := errors.Join(err, failed, c.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		return digest
	}
	push(together(), 0, 60, true)
	push(together(), 60, 120, false)
	push(together(), 120, 150, false)
	push(apart(), 60, 180, false)
	mu.Lock()
	if text := said.String(); !strings.Contains(text, "there is no log of shard 1 in "+own(1).Dir) || !strings.Contains(text, "the log of another process is in "+own(0).Dir) {
		t.Errorf("it is not said where the records are:\n%s", text)
	}
	mu.Unlock()
	push(apart(), 180, 240, false)
	// Shard 1's part of the first log is of a generation that is no more.
	push(together(), 60, 210, true)
	got := push(together(), 210, end, false)
	dir, logs = t.TempDir(), t.TempDir()
	if want := push(together(), 0, end, false); got != want {
		t.Errorf("digest %s, that of one life is %s", got, want)
	}
}

// TestUnreadable: what the disk cannot give back is damage like any other, and no fault of the process: the state before is
// used.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		bad  func(path string) bool
		// want is what comes back: 2 everything, 1 the newest snapshot, 0 the one before.
		want int
	}{
		{"newest snapshot", func(p string) bool { return strings.Contains(p, "snap-00000002") }, 2},
		{"log", func(p string) bool { return strings.HasSuffix(p, ".log") }, 1},
		{"log and newest snapshot", func(p string) bool {
			return strings.HasSuffix(p, ".log") || strings.Contains(p, "snap-00000002")
		}, 0},
	} {
		o, infos, digest := logged(t, 2)
		disk := pstest.BadDisk{Disk: fsx.OS{}, Bad: tc.bad}
		o.FS, o.Log.Disk = fsx.Local{Disk: disk}, disk
		c, err := coordinator.Open(t.Context(), o)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		want := []string{infos[0].Digest, infos[1].Digest, digest}[tc.want]
		if got, err := c.Digest(t.Context()); err != nil || got != want {
			t.Errorf("%s: digest %s, want %s: %v", tc.name, got, want, err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestLogFullDisk(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		for fullAt := 4 * shards; fullAt < 40*shards; fullAt += 7 {
			fs := pstest.NewFaultFS(fsx.OS{}, 0, fullAt)
			o := coordinator.Options{
				Layout: pstest.SmallJob().Layout(), NumShards: shards, Dir: t.TempDir(), Log: &shard.LogOptions{Dir: t.TempDir(), Disk: fs, SegmentBytes: 4 << 10},
			}
			c := mustOpen(t, o)
			cl, err := c.Client(t.Context(), "w")
			if err != nil {
				t.Fatal(err)
			}
			acknowledged := int64(0)
			if _, err = cl.Resume(t.Context(), "s", []string{"x"}); err == nil {
				for ; err == nil; acknowledged++ {
					err = cl.Push(t.Context(), pstest.RandomUpdate(o.Layout, "x", acknowledged, acknowledged+1))
				}
				acknowledged--
			}
			if !errors.Is(err, ps.ErrNoSpace) {
				t.Fatalf("full at write %d: %v, want ErrNoSpace", fullAt, err)
			}
			if err := cl.Push(t.Context(), pstest.RandomUpdate(o.Layout, "x", max(acknowledged, 0), acknowledged+1)); !errors.Is(err, ps.ErrNoSpace) && acknowledged > 0 {
				t.Errorf("full at write %d, push again: %v, want ErrNoSpace", fullAt, err)
			}
			// It does not wait for workers who cannot pass their marker.
			if _, err := c.Snapshot(t.Context(), ps.SnapshotOptions{}); !errors.Is(err, ps.ErrNoSpace) {
				t.Errorf("full at write %d, snapshot: %v, want ErrNoSpace", fullAt, err)
			}
			fs.Empty()
			_ = cl.Close()
			_ = c.Close(t.Context())
			c = mustOpen(t, o)
			cl = mustClient(t, c)
			p, err := cl.Resume(t.Context(), "s", []string{"x"})
			at := int64(max(p["x"].Position, 0))
			if err != nil || at < acknowledged || at > acknowledged+1 {
				t.Fatalf("full at write %d: resumed at %+v, %v; %d were acknowledged", fullAt, p, err, acknowledged)
			}
			if err := errors.Join(cl.Push(t.Context(), pstest.RandomUpdate(o.Layout, "x", at, at+1)), cl.Flush(t.Context())); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestLogKeepsWhatIsStaged is about a shard that keeps its state while others go back, and dies then.
func TestLogKeepsWhatIsStaged(t *testing.T) {
	t.Parallel()
	h := &host{}
	l := pstest.SmallJob().Layout()
	o := shard.Options{Layout: l, NumShards: 1, Log: &shard.LogOptions{Dir: filepath.Join(t.TempDir(), "x"), Disk: mortalFS{fsx.OS{}, h}}}
	n, err := shard.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	id := ps.SplitID{Source: "s", Split: "x"}
	load := func(n *shard.Node, generation uint64, keep bool) error {
		return n.Load(t.Context(), ps.LoadOptions{Generation: generation, Keep: keep})
	}
	if err := load(n, 4, true); !errors.Is(err, ps.ErrNotReady) {
		t.Errorf("keeping nothing: %v, want ErrNotReady", err)
	}
	if err := load(n, 4, false); err != nil {
		t.Fatal(err)
	}
	c, err := n.Connect(t.Context(), 9, 4, "w")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Acquire(t.Context(), id, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stage(t.Context(), nil, 1, pstest.RandomUpdate(l, "x", 0, 5)); err != nil {
		t.Fatal(err)
	}
	for _, g := range []uint64{3, 4} {
		if err := load(n, g, true); !errors.Is(err, ps.ErrRolledBack) {
			t.Errorf("generation %d after 4: %v, want ErrRolledBack", g, err)
		}
	}
	if err := load(n, 6, true); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Control(t.Context(), []ps.Control{{Kind: ps.Commit, Split: id, Epoch: 1, To: 5}}); !errors.Is(err, ps.ErrRolledBack) {
		t.Errorf("a stream of before: %v, want ErrRolledBack", err)
	}
	h.kill()
	_ = n.Close()
	o.Log.Disk = nil
	if n, err = shard.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	if c, err = n.Connect(t.Context(), 10, 6, "w"); err != nil {
		t.Fatal(err)
	}
	var stale *ps.EpochError
	if _, _, err := c.Acquire(t.Context(), id, 1); !errors.As(err, &stale) || stale.Current != 1 {
		t.Errorf("the epoch of before: %v, want an EpochError", err)
	}
	st, _, err := c.Acquire(t.Context(), id, 2)
	want := ps.SplitState{Applied: ps.Progress{Position: -1}, Staged: []ps.Progress{{Position: 5, Rows: 5, Batches: 1}}}
	if diff := cmp.Diff(want, st); diff != "" || err != nil {
		t.Errorf("taken over: %v\n%s", err, diff)
	}
}

// TestLateMarkerLeavesNothing is about a marker of a cut that was abandoned: the worker state with it counts for nothing,
// before a death and behind it.
func TestLateMarkerLeavesNothing(t *testing.T) {
	t.Parallel()
	o := coordinator.Options{Layout: pstest.SmallJob().Layout(), Log: &shard.LogOptions{Dir: t.TempDir()}}
	c := mustOpen(t, o)
	n := c.First()
	conn, err := n.Connect(t.Context(), 9, generation(n), "w")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Control(t.Context(), []ps.Control{{Kind: ps.Marker, Cut: 5, State: map[string][]byte{"k": []byte("v")}}}); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"at once", "opened again"} {
		if got, err := c.State(t.Context(), "k"); err != nil || got != nil {
			t.Errorf("%s: state %q, %v", when, got, err)
		}
		if when == "at once" {
			if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			c = mustOpen(t, o)
		}
	}
}

// TestDenseVersionsOfAnotherStart is about a client that outlives a shard: the version that it has must not be that of
// other values later.
func TestDenseVersionsOfAnotherStart(t *testing.T) {
	t.Parallel()
	l := pstest.BenchLayout(2)
	versions := map[uint64]bool{}
	for range 3 {
		c := mustOpen(t, coordinator.Options{Layout: l})
		n := c.First()
		conn, err := n.Connect(t.Context(), 9, generation(n), "w")
		if err != nil {
			t.Fatal(err)
		}
		v, _, err := conn.Dense(t.Context(), nil, 0, make([]float32, l.DenseLen()))
		if err != nil || versions[v] {
			t.Errorf("version %d again: %v", v, err)
		}
		versions[v] = true
	}
}
