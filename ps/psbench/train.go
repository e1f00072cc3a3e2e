package psbench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/shard"
)

// batch is how many rows a push changes.
const batch = 2000

// trainer is a parameter server in this process with workers that push to it, each its own split.
type trainer struct {
	cluster *coordinator.Cluster
	workers []*worker
	dim     int // of rows
}

type worker struct {
	client  *ps.Client
	updates []*param.Update
	at      int64
}

// train opens a parameter server whose tables hold so many rows, of [layout] unless o has one.
func train(ctx context.Context, o coordinator.Options, rows, workers int, ends *ends) (*trainer, error) {
	if o.Layout == nil {
		o.Layout = layout(dim)
	}
	o.MaxStaged = 1
	c, err := coordinator.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	ends.add(func() error { return c.Close(context.WithoutCancel(ctx)) })
	t := &trainer{cluster: c, dim: o.Layout.Tables[0].Dim()}
	for i := range workers {
		w, err := t.worker(ctx, i, rows, ends)
		if err != nil {
			return nil, err
		}
		t.workers = append(t.workers, w)
	}
	// Rows come into being by being pushed once, in larger batches.
	const fill = 32 * batch
	w, u, keys := t.workers[0], update(fill, t.dim), make([]int64, fill)
	for from := 0; from < rows; from += fill {
		for i := range keys {
			keys[i] = key(from + i)
		}
		u.Keys[0] = keys[:min(fill, rows-from)]
		u.Counts[0], u.Grads[0] = u.Counts[0][:len(u.Keys[0])], u.Grads[0][:t.dim*len(u.Keys[0])]
		if err := w.push(ctx, u); err != nil {
			return nil, err
		}
	}
	return t, w.client.Flush(ctx)
}

// key is the fid of row i of the table.
func key(i int) int64 { return int64(uint64(i) * 0x9e3779b97f4a7c15) }

func update(n, dim int) *param.Update {
	u := &param.Update{Source: "s", LR: 1, NumRows: 1, Time: 1, Keys: [][]int64{make([]int64, n)}, Counts: [][]uint32{make([]uint32, n)}, Grads: [][]float32{make([]float32, n*dim)}}
	for i := range u.Counts[0] {
		u.Counts[0][i] = 1
	}
	for i := range u.Grads[0] {
		u.Grads[0][i] = .01
	}
	return u
}

func (t *trainer) worker(ctx context.Context, i, rows int, ends *ends) (*worker, error) {
	client, err := t.cluster.Client(ctx, fmt.Sprintf("w%d", i))
	if err != nil {
		return nil, err
	}
	ends.add(client.Close)
	w := &worker{client: client}
	split := fmt.Sprintf("x%d", i)
	applied, err := client.Resume(ctx, "s", []string{split})
	if err != nil {
		return nil, err
	}
	w.at = max(int64(applied[split].Position), 0)
	r := rand.New(rand.NewPCG(uint64(i), 1))
	for range 64 {
		u := update(batch, t.dim)
		u.Split = split
		seen := map[int64]bool{}
		for j := 0; j < batch; {
			if k := key(r.IntN(rows)); !seen[k] {
				seen[k] = true
				u.Keys[0][j] = k
				j++
			}
		}
		w.updates = append(w.updates, u)
	}
	return w, nil
}

func (w *worker) push(ctx context.Context, u *param.Update) error {
	u.Split = w.updates[0].Split
	u.From, u.To = w.at, w.at+1
	w.at++
	return w.client.Push(ctx, u)
}

// next pushes the next batch of a worker.
func (w *worker) next(ctx context.Context) error {
	return w.push(ctx, w.updates[int(w.at)%len(w.updates)])
}

// Log measures pushes to shards that keep write-ahead logs against the same without, rows per second: one worker that waits for
// each push, and eight at a time that share what reaches the disk. Snapshots are taken in between, as in a job, and not measured: what is is a log that
// has files to use again. Of each case follow how many bytes became durable at a time, and how many the log makes durable a second beside a disk
// that has nothing to do but to write as much at a time, one piece after the other.
func Log(ctx context.Context, o bench.Options) ([]bench.Result, error) {
	o = o.WithDefaults()
	rows := o.Rows
	if rows == 0 {
		rows = 200_000
	}
	var out []bench.Result
	for _, shards := range []int{1, 4} {
		for _, workers := range []int{1, 8} {
			of := fmt.Sprintf(", %d shards, %d workers", shards, workers)
			if !o.Wants("wal push"+of) && !o.Wants("wal disk"+of) {
				continue
			}
			results, err := compareLog(ctx, o, of, rows, shards, workers)
			if out = append(out, results...); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

func compareLog(ctx context.Context, o bench.Options, of string, rows, shards, workers int) (results []bench.Result, err error) {
	var ends ends
	defer func() { err = errors.Join(err, ends.close()) }()
	dir, err := os.MkdirTemp(o.Dir, "monolith-bench-")
	if err != nil {
		return nil, err
	}
	ends.add(func() error { return os.RemoveAll(dir) })
	snapshotEvery := rows / 100 // pushes, by which the log has a few files
	candidate := func(name, dir string, log *shard.LogOptions) (_ bench.Candidate, wrote *groups, err error) {
		options := coordinator.Options{NumShards: shards, Log: log, Dir: dir, Keep: 1, Layout: layout(dim)}
		if log != nil {
			all := make([]int, shards)
			for i := range all {
				all[i] = i
			}
			if options.Shared, err = options.OpenLog(all...); err != nil {
				return bench.Candidate{}, nil, err
			}
			ends.add(options.Shared.Close)
		}
		wrote = &groups{}
		t, err := train(ctx, options, max(rows, 2*batch), workers, &ends)
		const each = 8
		since := 0 // pushes since the last snapshot
		run := func() error {
			var g errgroup.Group
			for _, w := range t.workers {
				g.Go(func() error {
					for range each {
						if err := w.next(ctx); err != nil {
							return err
						}
					}
					return nil
				})
			}
			since += each * workers
			return g.Wait()
		}
		snapshot := func() error {
			since = 0
			_, err := t.run(ctx, func(ctx context.Context) error { // workers that push pass its marker
				_, err := t.cluster.Snapshot(ctx, ps.SnapshotOptions{})
				return err
			})
			return err
		}
		for i := 0; i < 3 && err == nil && log != nil && !log.NoSync; i++ { // the first files are of nobody's everyday
			for since < snapshotEvery && err == nil {
				err = run()
			}
			if err == nil {
				err = snapshot()
			}
		}
		return bench.Candidate{Name: name, Timed: func() (float64, float64, error) {
			if since >= snapshotEvery && log != nil {
				if err := snapshot(); err != nil {
					return 0, 0, err
				}
			}
			from := groupsOf(options.Shared)
			begin := time.Now()
			err := run()
			seconds := time.Since(begin).Seconds()
			to := groupsOf(options.Shared)
			*wrote = groups{bytes: to.bytes - from.bytes, count: to.count - from.count}
			return float64(each * batch * workers), seconds, err
		}}, wrote, err
	}
	ours, wrote, err := candidate("wal", dir+"/a", &shard.LogOptions{Dir: dir + "/a/wal"})
	if err != nil {
		return nil, err
	}
	unsynced, _, err := candidate("wal without sync", dir+"/b", &shard.LogOptions{Dir: dir + "/b/wal", NoSync: true})
	if err != nil {
		return nil, err
	}
	none, _, err := candidate("no log", dir+"/c", nil)
	if err != nil {
		return nil, err
	}
	if name := "wal push" + of; o.Wants(name) {
		r, err := bench.Compare(ctx, o, name, "rows/s", bench.Wall, ours, none, unsynced)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	if name := "wal disk" + of; o.Wants(name) {
		r, err := besideDisk(ctx, o, of, dir, ours, wrote, &ends)
		if err != nil {
			return results, err
		}
		results = append(results, r...)
	}
	return results, nil
}

// groups are what became durable: how many bytes, in so many pieces.
type groups struct{ bytes, count uint64 }

// groupsOf are those of a log since it was opened; without a log there are none.
func groupsOf(l *shard.Log) groups {
	if l == nil {
		return groups{}
	}
	s := l.Stats()
	return groups{s.Written, s.Syncs}
}

// besideDisk compares the bytes that a log makes durable with what its disk allows. wrote is what the last run of ours has written.
func besideDisk(ctx context.Context, o bench.Options, of, dir string, ours bench.Candidate, wrote *groups, ends *ends) ([]bench.Result, error) {
	if _, _, err := ours.Timed(); err != nil {
		return nil, err
	}
	size := float64(wrote.bytes) / float64(wrote.count)
	disk, err := newDiskWriter(dir, int(size), ends)
	if err != nil {
		return nil, err
	}
	logged := bench.Candidate{Name: ours.Name, Timed: func() (float64, float64, error) {
		_, seconds, err := ours.Timed()
		return float64(wrote.bytes) / 1e6, seconds, err
	}}
	r, err := bench.Compare(ctx, o, "wal disk"+of, "MB/s", bench.Wall, logged, disk.candidate())
	if err != nil {
		return nil, err
	}
	return []bench.Result{{Name: "wal bytes at a time" + of, Unit: "KiB", Ours: size / 1024, Theirs: map[string]float64{}, Machine: r.Machine}, r}, nil
}

// Snapshot measures how much slower pushes of two workers are while a snapshot is written than before and after, and how long
// the longest of them takes; and snapshots of what has changed against whole ones, when .1, 1 and 10 % of the rows have.
func Snapshot(ctx context.Context, o bench.Options) ([]bench.Result, error) {
	o = o.WithDefaults()
	rows := o.Rows
	if rows == 0 {
		rows = 10_000_000
	}
	rows = max(rows, 2*batch)
	var out []bench.Result
	for _, part := range []struct {
		name string
		of   func(context.Context, bench.Options, int) ([]bench.Result, error)
	}{{"snapshot, pushes meanwhile", pushesDuring}, {"snapshot, of what has changed", incremental}} {
		if !o.Wants(part.name) {
			continue
		}
		results, err := part.of(ctx, o, rows)
		if out = append(out, results...); err != nil {
			return out, err
		}
	}
	return out, nil
}

// pushesDuring measures pushes while a snapshot is written.
func pushesDuring(ctx context.Context, o bench.Options, rows int) (_ []bench.Result, err error) {
	var ends ends
	defer func() { err = errors.Join(err, ends.close()) }()
	dir, err := os.MkdirTemp(o.Dir, "monolith-bench-")
	if err != nil {
		return nil, err
	}
	ends.add(func() error { return os.RemoveAll(dir) })
	t, err := train(ctx, coordinator.Options{Dir: dir, Keep: 1}, rows, 2, &ends)
	if err != nil {
		return nil, err
	}
	quiet := func() (figures, error) {
		return t.run(ctx, func(ctx context.Context) error {
			select {
			case <-time.After(time.Duration(o.Rounds) * o.Each * 3):
			case <-ctx.Done():
			}
			return nil
		})
	}
	// The first pushes to a table that was just filled, and the first snapshot, are of nobody's everyday.
	if _, err := quiet(); err != nil {
		return nil, err
	}
	var before, during, after figures
	var info ps.SnapshotInfo
	for range 2 {
		if before, err = quiet(); err != nil {
			return nil, err
		}
		if during, err = t.run(ctx, func(ctx context.Context) (err error) {
			info, err = t.cluster.Snapshot(ctx, ps.SnapshotOptions{})
			return err
		}); err != nil {
			return nil, err
		}
		if after, err = quiet(); err != nil {
			return nil, err
		}
	}
	without := (before.rate + after.rate) / 2
	perCPU := (before.perCPU + after.perCPU) / 2
	longest := max(before.longest, after.longest)
	size := fmt.Sprintf("%d M rows", rows/1_000_000)
	machine := bench.Machine()
	results := []bench.Result{
		{
			Name: "snapshot of " + size + ", pushes meanwhile", Unit: "rows/s", Ours: during.rate, Theirs: map[string]float64{"without": without},
			Ratio: during.rate / without, Control: after.rate / before.rate, Machine: machine,
		},
		{
			Name: "snapshot of " + size + ", longest push", Unit: "ms", Ours: during.longest, Theirs: map[string]float64{"without": longest},
			Ratio: during.longest / longest, Control: after.longest / before.longest, Machine: machine,
		},
		{Name: "snapshot of " + size + ", longest wait for it", Unit: "ms", Ours: float64(info.Stall.Microseconds()) / 1e3, Theirs: map[string]float64{}, Machine: machine},
		{Name: "snapshot of " + size + ", written", Unit: "MB/s", Ours: float64(info.Bytes()) / 1e6 / info.Took.Seconds(), Theirs: map[string]float64{}, Machine: machine},
	}
	if perCPU > 0 { // 0: not known on this system
		results = append(results, bench.Result{
			Name: "snapshot of " + size + ", pushes meanwhile, by processor time", Unit: "rows/s", Ours: during.perCPU, Theirs: map[string]float64{"without": perCPU},
			Ratio: during.perCPU / perCPU, Control: after.perCPU / before.perCPU, Machine: machine,
		})
	}
	return results, nil
}

// figures are rows per second and per second of processor time, and the longest push in ms.
type figures struct{ rate, perCPU, longest float64 }

// run lets all workers push until f returns.
func (t *trainer) run(ctx context.Context, f func(context.Context) error) (figures, error) {
	g, gctx := errgroup.WithContext(ctx)
	stop := make(chan struct{})
	n, longest := make([]int, len(t.workers)), make([]time.Duration, len(t.workers))
	begin, cpu := time.Now(), bench.CPUSeconds()
	for i, w := range t.workers {
		g.Go(func() error {
			for {
				select {
				case <-stop:
					return nil
				case <-gctx.Done():
					return context.Cause(gctx)
				default:
				}
				start := time.Now()
				if err := w.next(gctx); err != nil {
					return err
				}
				n[i]++
				longest[i] = max(longest[i], time.Since(start))
			}
		})
	}
	err := f(gctx)
	took, used := time.Since(begin), bench.CPUSeconds()-cpu
	close(stop)
	err = errors.Join(err, g.Wait())
	var out figures
	for i := range n {
		out.rate += float64(n[i]*batch) / took.Seconds()
		if used > 0 {
			out.perCPU += float64(n[i]*batch) / used
		}
		out.longest = max(out.longest, float64(longest[i].Microseconds())/1e3)
	}
	return out, err
}
