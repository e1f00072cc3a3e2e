package snapshot_test

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// TestConvert grows a table and a tensor, renames, drops and adds, and compares every row with what it is made of.
func TestConvert(t *testing.T) {
	t.Parallel()
	rows := randomRows(rand.New(rand.NewPCG(1, 1)), layout().Tables[0], 10_000)
	l := layout()
	l.Seed = 9
	l.Tables[0].Name = "ab"
	l.Tables[0].Segments = []param.Segment{
		{Name: "vec", Dim: 5, Init: param.Uniform(-1, 1), Optimizer: optim.Adagrad{LR: .3}}, // grows from 3, with its state
		{Name: "new", Dim: 2, Init: param.Normal(0, 1), Optimizer: optim.FTRL{}},
		{Name: "plain", Dim: 2, Optimizer: optim.Adam{}}, // keeps its weights
		// bias is dropped.
	}
	l.Dense = append(l.Dense, param.Tensor{Name: "head", Shape: []int{2}, Init: param.Constant(.5), Optimizer: optim.SGD{}})
	l.Dense[0].Shape = []int{3, 3}
	p := param.Policies{
		Rename:  map[string]string{"a/b": "ab"},
		Tables:  map[string]param.Policy{"ab": param.PolicyGrow, "ab.plain": param.PolicyInit, "ab.bias": param.PolicyDrop},
		Tensors: map[string]param.Policy{"w": param.PolicyGrow, "head": param.PolicyInit},
	}
	for _, shards := range []int{1, 3} {
		for _, keep := range []bool{true, false} {
			dir := t.TempDir()
			from, err := snapshot.Open(t.Context(), write(t, dir, 3, &rows, shards).Path)
			if err != nil {
				t.Fatal(err)
			}
			fit, err := l.Fit(from.Info().Shape(), p)
			if err != nil {
				t.Fatal(err)
			}
			info, err := snapshot.Convert(t.Context(), from, fit, snapshot.Options{Dir: dir, ID: 4, Layout: l, Created: time.Unix(1700000000, 5)}, keep, func(name string) int {
				return len(name) % shards
			})
			if err := errors.Join(err, from.Close()); err != nil {
				t.Fatal(err)
			}
			if keep != (len(info.Positions) > 0) || keep != (len(info.State) > 0) || info.Rows() != 10_000 || info.Shards != shards {
				t.Errorf("%d rows of %d shards, positions %v, state %v", info.Rows(), info.Shards, info.Positions, info.State)
			}
			s, err := snapshot.Open(t.Context(), info.Path)
			if err != nil {
				t.Fatal(err)
			}
			at := 0
			err = s.Rows(0, func(r *table.Rows) error {
				for i, fid := range r.Keys {
					was := func(from, to int) []float32 { return rows.Weights[at*6:][from:to] }
					vec := make([]float32, 5)
					param.Uniform(-1, 1).Fill(vec, 9, param.HashName("ab", "vec"), uint64(fid))
					copy(vec, was(3, 6))
					fresh := make([]float32, 2)
					param.Normal(0, 1).Fill(fresh, 9, param.HashName("ab", "new"), uint64(fid))
					want := slices.Concat(vec, fresh, was(1, 3))
					// FTRL keeps 2 for bias, SGD nothing for plain, Adagrad 3 for vec.
					state := slices.Concat(rows.State[at*5+2:][:3], []float32{1e-6, 1e-6, 1e-6, 1e-6, 0, 0}, make([]float32, 6))
					if fid != rows.Keys[at] || r.Times[i] != rows.Times[at] || r.Counts[i] != rows.Counts[at] ||
						!slices.Equal(r.Weights[i*9:][:9], want) || !slices.Equal(r.State[i*15:][:15], state[:15]) {
						t.Fatalf("row %d: %v %v, want %v %v", at, r.Weights[i*9:][:9], r.State[i*15:][:15], want, state)
					}
					at++
				}
				return nil
			})
			if err != nil || at != 10_000 {
				t.Errorf("%d rows: %v", at, err)
			}
			got, err := s.Tensors()
			if err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(got, func(a, b snapshot.Tensor) int { return strings.Compare(b.Name, a.Name) })
			want := []snapshot.Tensor{
				{Name: "w", Shape: []int64{3, 3}, Weights: []float32{1, 2, 3, 4, 5, 6, 0, 0, 0}, State: []float32{6, 5, 4, 3, 2, 1, 1e-6, 1e-6, 1e-6}},
				{Name: "head", Shape: []int64{2}, Weights: []float32{.5, .5}, State: []float32{}},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if d, err := s.Digest(); err != nil || d != info.Digest {
				t.Errorf("digest %s, want %s: %v", d, info.Digest, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// objects is a store that has nothing but whole objects, as an object store does, and counts what is read.
type objects struct {
	fsxtest.Mem
	mu   sync.Mutex
	read int64
	// dieAt is the number of the change, from 1, at which the process dies; 0 is never.
	dieAt, changes int
}

var errDied = errors.New("died")

func (o *objects) change() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes++
	if o.dieAt > 0 && o.changes >= o.dieAt {
		return errDied
	}
	return nil
}

type upload struct {
	fsx.Writer
	o *objects
}

func (u *upload) Commit(ctx context.Context) error {
	if err := u.o.change(); err != nil {
		return err
	}
	return u.Writer.Commit(ctx)
}

func (o *objects) Create(ctx context.Context, name string) (fsx.Writer, error) {
	w, err := o.Mem.Create(ctx, name)
	return &upload{w, o}, err
}

func (o *objects) Remove(ctx context.Context, name string) error {
	if _, err := o.Mem.Open(ctx, name); err == nil {
		if err := o.change(); err != nil {
			return err
		}
	}
	return o.Mem.Remove(ctx, name)
}

type download struct {
	fsx.File
	o *objects
}

func (d download) ReadAt(p []byte, at int64) (int, error) {
	n, err := d.File.ReadAt(p, at)
	d.o.mu.Lock()
	defer d.o.mu.Unlock()
	d.o.read += int64(n)
	return n, err
}

func (o *objects) Open(ctx context.Context, name string) (fsx.File, error) {
	f, err := o.Mem.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return download{f, o}, nil
}

// below are the names of the objects below a folder.
func below(t *testing.T, f fsx.FS, dir string) (out []string) {
	t.Helper()
	infos, err := f.List(t.Context(), dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, i := range infos {
		if name := filepath.Join(dir, i.Name); i.Dir {
			out = append(out, below(t, f, name)...)
		} else {
			out = append(out, name)
		}
	}
	return out
}

// put writes a snapshot of the test's layout.
func put(store fsx.FS, id uint64, rows *table.Rows) (*snapshot.Info, error) {
	l := layout()
	w, err := snapshot.Create(snapshot.Options{FS: store, Dir: "bucket/run", ID: id, Layout: l, Shards: 1, Created: time.Unix(1700000000, 5)})
	if err != nil {
		return nil, err
	}
	p := snapshot.NewPart(snapshot.PartOptions{FS: store, Dir: w.Dir(), Layout: l})
	if err := p.Rows(0, feed(rows, l.Tables[0], 0, len(rows.Keys))); err != nil {
		return nil, err
	}
	if err := p.Dense(tensors()); err != nil {
		return nil, err
	}
	w.Add(p.Part())
	return w.Commit()
}

// TestObjectStore keeps snapshots in whole objects and kills the writer, and the process that trims, at every change: a snapshot is
// there, all of it, or it is not, and what is left of one that is not is removed.
func TestObjectStore(t *testing.T) {
	t.Parallel()
	rows := randomRows(rand.New(rand.NewPCG(1, 1)), layout().Tables[0], 100)
	for at := 1; ; at++ {
		store := &objects{}
		first, err := put(store, 1, &rows)
		if err != nil {
			t.Fatal(err)
		}
		store.dieAt = store.changes + at
		_, err = put(store, 2, &rows)
		if err == nil {
			_, err = snapshot.Prune(t.Context(), store, "bucket/run", snapshot.Retention{Keep: 1}, snapshot.PruneOptions{})
		}
		if err == nil && store.changes < store.dieAt {
			if at < 10 {
				t.Errorf("only %d changes", at-1)
			}
			return
		}
		store.dieAt = 0
		if _, err := snapshot.Clean(store, "bucket/run"); err != nil {
			t.Fatal(err)
		}
		entries, err := snapshot.ListIn(store, "bucket/run")
		if err != nil || len(entries) == 0 {
			t.Fatalf("change %d: %v, %v", at, entries, err)
		}
		names := 0
		for _, e := range entries {
			s, err := snapshot.OpenWith(t.Context(), e.Path, snapshot.OpenOptions{FS: store})
			if err != nil {
				t.Fatalf("change %d: %v", at, err)
			}
			if d, err := s.Digest(); err != nil || d != first.Digest {
				t.Errorf("change %d: digest %s, %v", at, d, err)
			}
			names += len(s.Info().Files) + 1
		}
		if all := below(t, store, "bucket"); names != len(all) {
			t.Errorf("change %d: %d objects of %d snapshots that have %d", at, len(all), len(entries), names)
		}
	}
}

// TestWeightsOnly reads less than half of what a snapshot with Adagrad's state takes, and of rows and tensors the same weights.
func TestWeightsOnly(t *testing.T) {
	t.Parallel()
	rows := randomRows(rand.New(rand.NewPCG(1, 1)), layout().Tables[0], 5000)
	store := &objects{}
	info, err := put(store, 1, &rows)
	if err != nil {
		t.Fatal(err)
	}
	read := func(weightsOnly bool) (bytes int64, weights, state []float32, dense []snapshot.Tensor) {
		store.read = 0
		s, err := snapshot.OpenWith(t.Context(), info.Path, snapshot.OpenOptions{FS: store, WeightsOnly: weightsOnly})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Rows(0, func(r *table.Rows) error {
			weights, state = append(weights, r.Weights...), append(state, r.State...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if dense, err = s.Tensors(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Digest(); (err != nil) != weightsOnly {
			t.Errorf("digest, weights only %v: %v", weightsOnly, err)
		}
		return store.read, weights, state, dense
	}
	all, weights, state, dense := read(false)
	some, only, none, denseOnly := read(true)
	if !slices.Equal(weights, only) || len(none) != 0 || len(state) == 0 {
		t.Errorf("%d weights of %d, and %d of state", len(only), len(weights), len(none))
	}
	if !slices.Equal(dense[0].Weights, denseOnly[0].Weights) || denseOnly[0].State != nil {
		t.Errorf("tensors %v of %v", denseOnly, dense)
	}
	if some*4 > all*3 {
		t.Errorf("%d bytes were read for the weights, of %d", some, all)
	}
	for _, name := range below(t, store, "bucket") { // nobody misses the state
		if strings.Contains(filepath.Base(name), "state") {
			if err := store.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	read(true)
}

func TestOldVersionSaysSo(t *testing.T) {
	t.Parallel()
	_, err := snapshot.DecodeManifest([]byte(`{"version":1,"layout":"seed 1\n"}`))
	if !errors.Is(err, snapshot.ErrVersion) || !strings.Contains(err.Error(), "earlier release") {
		t.Errorf("version 1: %v", err)
	}
	_, err = snapshot.DecodeManifest([]byte(`{"version":3}`))
	if !errors.Is(err, snapshot.ErrVersion) || strings.Contains(err.Error(), "earlier release") {
		t.Errorf("version 3: %v", err)
	}
}
