package psbench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
)

const (
	largeRows = 50_000_000
	largeDim  = 8
	// sampled is how many rows are looked up to see whether a state is the one that it is to be.
	sampled = 100_000
)

// Large measures what a table of o.Rows rows of dim 8 with Adagrad, on two shards of this process, takes and how long its life does: filling it, lookups of 4,096 rows by
// chance, a whole snapshot, one of a percent that has changed, going back to it, and beginning again from it with another process's hands. Rows are compared each time. There are no
// others beside; o.Dir is the disk that is measured.
func Large(ctx context.Context, o bench.Options) (out []bench.Result, err error) {
	o = o.WithDefaults()
	rows := o.Rows
	if rows == 0 {
		rows = largeRows
	}
	rows = max(rows, 100*batch)
	var ends ends
	defer func() { err = errors.Join(err, ends.close()) }()
	dir, err := os.MkdirTemp(o.Dir, "monolith-bench-")
	if err != nil {
		return nil, err
	}
	ends.add(func() error { return os.RemoveAll(dir) })
	machine := bench.Machine()
	add := func(name, unit string, x float64) {
		out = append(out, bench.Result{Name: fmt.Sprintf("%g M rows: %s", float64(rows)/1e6, name), Unit: unit, Ours: x, Theirs: map[string]float64{}, Machine: machine})
	}
	opts := coordinator.Options{Layout: layout(largeDim), NumShards: 2, Dir: dir, Keep: 1, Incremental: 64}
	begin := time.Now()
	took := func() float64 { return time.Since(begin).Seconds() }
	t, err := train(ctx, opts, rows, 1, &ends)
	if err != nil {
		return nil, err
	}
	add("filled", "rows/s", float64(rows)/took())
	st, err := t.cluster.Stats(ctx)
	if err != nil {
		return nil, err
	}
	if st.Tables[0].Rows != int64(rows) {
		return nil, fmt.Errorf("psbench: there are %d rows, %d were made", st.Tables[0].Rows, rows)
	}
	add("memory", "MB", float64(st.Tables[0].Bytes)/1e6)
	rate, err := t.lookups(ctx, rows, time.Duration(o.Rounds)*o.Each)
	if err != nil {
		return nil, err
	}
	add("lookups", "rows/s", rate)
	changed := rows / 100
	for _, s := range []struct {
		name    string
		changed int
	}{{"whole snapshot", 0}, {"snapshot of 1 % changed", changed}} {
		if err := t.change(ctx, t.workers[0], s.changed); err != nil {
			return nil, err
		}
		info, err := t.alone(ctx, ps.SnapshotOptions{})
		if err != nil {
			return nil, err
		}
		if (info.Base != nil) != (s.changed > 0) {
			return nil, fmt.Errorf("psbench: %s adds to %v", s.name, info.Base)
		}
		add(s.name, "s", info.Took.Seconds())
		add(s.name+", bytes", "MB", float64(info.Bytes())/1e6)
	}
	want, err := t.sample(ctx, rows)
	if err != nil {
		return nil, err
	}
	if err := t.change(ctx, t.workers[0], changed); err != nil {
		return nil, err
	}
	if now, err := t.sample(ctx, rows); err != nil || now == want {
		return nil, errors.Join(err, errors.New("psbench: pushes change nothing"))
	}
	in, err := t.cluster.Info()
	if err != nil {
		return nil, err
	}
	same := func(after string) error {
		if t.workers[0], err = t.worker(ctx, 0, rows, &ends); err != nil {
			return err
		}
		if got, err := t.sample(ctx, rows); err != nil || got != want {
			return errors.Join(err, fmt.Errorf("psbench: %s rows sum up to %v, to %v in the snapshot", after, got, want))
		}
		return nil
	}
	if err := t.workers[0].client.Close(); err != nil {
		return nil, err
	}
	begin = time.Now()
	if err := t.cluster.RollBack(ctx, in.Generation, "a benchmark"); err != nil {
		return nil, err
	}
	add("rollback", "s", took())
	if err := same("after going back"); err != nil {
		return nil, err
	}
	if err := errors.Join(t.workers[0].client.Close(), t.cluster.Close(ctx)); err != nil {
		return nil, err
	}
	debug.FreeOSMemory()
	begin = time.Now()
	if t.cluster, err = coordinator.Open(ctx, opts); err != nil {
		return nil, err
	}
	ends.add(func() error { return t.cluster.Close(context.WithoutCancel(ctx)) })
	add("restart", "s", took())
	return out, same("after a restart")
}

// lookups is how many rows a second one worker looks up, 4,096 distinct ones by chance at a time, for so long.
func (t *trainer) lookups(ctx context.Context, rows int, long time.Duration) (float64, error) {
	const each, batches = 4096, 64
	r := rand.New(rand.NewPCG(1, 2))
	found := &param.Rows{Keys: make([][]int64, 1), Values: [][]float32{make([]float32, each*t.dim)}}
	var keys [batches][]int64
	for b := range keys {
		first, step := r.IntN(rows), 2*r.IntN(rows/2)+1
		for i := range each {
			keys[b] = append(keys[b], key((first+i*step)%rows)) // rows is seldom a multiple of it
		}
	}
	n, begin := 0, time.Now()
	for b := 0; time.Since(begin) < long || n == 0; b++ {
		found.Keys[0] = keys[b%batches]
		if err := t.workers[0].client.Lookup(ctx, found); err != nil {
			return 0, err
		}
		n += each
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}

// sample sums up rows that lie evenly over the table.
func (t *trainer) sample(ctx context.Context, rows int) (sum float64, err error) {
	n := min(sampled, rows)
	found := &param.Rows{Keys: [][]int64{make([]int64, n)}, Values: [][]float32{make([]float32, n*t.dim)}}
	for i := range n {
		found.Keys[0][i] = key(int(int64(i) * int64(rows) / int64(n)))
	}
	err = t.workers[0].client.Lookup(ctx, found)
	for _, v := range found.Values[0] {
		sum += float64(v)
	}
	return sum, err
}
