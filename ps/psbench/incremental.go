package psbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
)

// snapshots is how many snapshots are taken of each kind; whole ones of large tables are large.
const snapshots = 3

// shares are how many of a thousand rows change between two incremental snapshots.
var shares = []int{1, 10, 100}

// incremental measures snapshots of what has changed, while nobody pushes, against whole ones, and what taking note of changes costs pushes.
func incremental(ctx context.Context, o bench.Options, rows int) (out []bench.Result, err error) {
	var ends ends
	defer func() { err = errors.Join(err, ends.close()) }()
	open := func(most int, expire int64) (*trainer, error) {
		dir, err := os.MkdirTemp(o.Dir, "monolith-bench-")
		if err != nil {
			return nil, err
		}
		ends.add(func() error { return os.RemoveAll(dir) })
		l := layout(dim)
		l.Retention.Default.Expire = expire
		return train(ctx, coordinator.Options{Layout: l, Dir: dir, Keep: 1, Incremental: most}, rows, 2, &ends)
	}
	const (
		most = 64      // more than are taken: none is compacted
		long = 1 << 50 // microseconds: rows are looked at, and none has expired
	)
	size, machine := fmt.Sprintf("%d M rows", rows/1_000_000), bench.Machine()
	var tracks *trainer
	for _, of := range []struct {
		rows   string
		expire int64
	}{{size + " that may expire", long}, {size, 0}} {
		if tracks, err = open(most, of.expire); err != nil {
			return nil, err
		}
		whole, err := tracks.times(ctx, ps.SnapshotOptions{Pin: true}, 0)
		if err != nil {
			return nil, err
		}
		for _, share := range shares {
			got, err := tracks.times(ctx, ps.SnapshotOptions{}, rows*share/1000)
			if err != nil {
				return nil, err
			}
			name := fmt.Sprintf("snapshot of %g %% changed of %s", float64(share)/10, of.rows)
			out = append(out,
				bench.Result{Name: name, Unit: "ms", Ours: got.ms, Theirs: map[string]float64{"whole": whole.ms}, Ratio: got.ms / whole.ms, Machine: machine},
				bench.Result{Name: name + ", bytes", Unit: "MB", Ours: got.mb, Theirs: map[string]float64{"whole": whole.mb}, Ratio: got.mb / whole.mb, Machine: machine},
			)
		}
	}
	plain, err := open(0, 0)
	if err != nil {
		return nil, err
	}
	var on, off, again []float64
	for range max(o.Rounds, 3) {
		for _, c := range []struct {
			t  *trainer
			to *[]float64
		}{{plain, &off}, {tracks, &on}, {plain, &again}} {
			f, err := c.t.run(ctx, func(ctx context.Context) error {
				select {
				case <-time.After(o.Each):
				case <-ctx.Done():
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			*c.to = append(*c.to, f.rate)
		}
	}
	return append(out, bench.Result{
		Name: "pushes while changes are tracked", Unit: "rows/s", Ours: median(on), Theirs: map[string]float64{"without": median(off)},
		Ratio: median(on) / median(off), Control: median(again) / median(off), Machine: machine,
	}), nil
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

// written is how long a snapshot takes, in ms, and how large it is, in millions of bytes.
type written struct{ ms, mb float64 }

// times takes snapshots, each after so many rows have changed, and returns the median.
func (t *trainer) times(ctx context.Context, o ps.SnapshotOptions, changed int) (written, error) {
	w := t.workers[0]
	var ms, mb []float64
	for range snapshots {
		if err := t.change(ctx, w, changed); err != nil {
			return written{}, err
		}
		info, err := t.alone(ctx, o)
		if err != nil {
			return written{}, err
		}
		if (info.Base != nil) != (changed > 0) {
			return written{}, fmt.Errorf("psbench: snapshot after %d changed rows adds to %v", changed, info.Base)
		}
		ms, mb = append(ms, float64(info.Took.Microseconds())/1e3), append(mb, float64(info.Bytes())/1e6)
	}
	return written{median(ms), median(mb)}, nil
}

// change pushes the first rows once.
func (t *trainer) change(ctx context.Context, w *worker, rows int) error {
	for from := 0; from < rows; from += batch {
		u := w.updates[0]
		n := min(batch, rows-from)
		keys := make([]int64, n)
		for i := range keys {
			keys[i] = key(from + i)
		}
		now := *u
		now.Keys, now.Counts, now.Grads = [][]int64{keys}, [][]uint32{u.Counts[0][:n]}, [][]float32{u.Grads[0][:t.dim*n]}
		if err := w.push(ctx, &now); err != nil {
			return err
		}
	}
	return w.client.Flush(ctx)
}

// alone takes a snapshot while the workers have nothing to push.
func (t *trainer) alone(ctx context.Context, o ps.SnapshotOptions) (info ps.SnapshotInfo, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		info, err = t.cluster.Snapshot(ctx, o)
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return info, err
		case <-tick.C:
		}
		for _, w := range t.workers { // they pass their markers
			if err := w.client.Idle(ctx); err != nil {
				<-done
				return info, err
			}
		}
	}
}
