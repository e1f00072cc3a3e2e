package snapshot_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

func layout() *param.Layout {
	return &param.Layout{
		Tables: []param.Table{
			{Name: "a/b", Segments: []param.Segment{
				{Name: "bias", Dim: 1, Optimizer: optim.FTRL{}},
				{Name: "plain", Dim: 2, Optimizer: optim.SGD{}},
				{Name: "vec", Dim: 3, Optimizer: optim.Adagrad{}},
			}},
			{Name: "empty", Segments: []param.Segment{{Name: "v", Dim: 1, Optimizer: optim.SGD{}}}},
		},
		Dense: []param.Tensor{{Name: "w", Shape: []int{2, 3}, Optimizer: optim.Adagrad{}}},
	}
}

func randomRows(r *rand.Rand, spec param.Table, n int) table.Rows {
	var rows table.Rows
	for range n {
		rows.Keys = append(rows.Keys, int64(r.Uint64()))
		rows.Times = append(rows.Times, r.Int64())
		rows.Counts = append(rows.Counts, r.Uint64())
		for range spec.Dim() {
			rows.Weights = append(rows.Weights, r.Float32())
		}
		for range spec.StateDim() {
			rows.State = append(rows.State, r.Float32())
		}
	}
	return rows
}

func tensors() []snapshot.Tensor {
	return []snapshot.Tensor{{Name: "w", Shape: []int64{2, 3}, Weights: []float32{1, 2, 3, 4, 5, 6}, State: []float32{6, 5, 4, 3, 2, 1}}}
}

// feed hands rows out from to on as a cut does.
func feed(rows *table.Rows, spec param.Table, from, to int) func(*table.Rows, int) bool {
	dim, stateDim := spec.Dim(), spec.StateDim()
	return func(dst *table.Rows, limit int) bool {
		n := min(limit, to-from)
		dst.Keys = append(dst.Keys, rows.Keys[from:from+n]...)
		dst.Times = append(dst.Times, rows.Times[from:from+n]...)
		dst.Counts = append(dst.Counts, rows.Counts[from:from+n]...)
		dst.Weights = append(dst.Weights, rows.Weights[from*dim:(from+n)*dim]...)
		dst.State = append(dst.State, rows.State[from*stateDim:(from+n)*stateDim]...)
		from += n
		return n > 0
	}
}

// write makes a snapshot of rows spread over shards.
func write(tb testing.TB, dir string, id uint64, rows *table.Rows, shards int) *snapshot.Info {
	tb.Helper()
	l, mem := layout(), memory.NewCheckedAllocator(memory.DefaultAllocator)
	if t, ok := tb.(*testing.T); ok {
		defer mem.AssertSize(t, 0)
	}
	w, err := snapshot.Create(snapshot.Options{
		Dir: dir, ID: id, Layout: l, Shards: shards, Created: time.Unix(1700000000, 5), Note: "note",
		Meta:      map[string]string{"k": "v"},
		Positions: map[string]map[string]snapshot.Progress{"s": {"x": {Position: 5, Rows: 4, Batches: 3}}},
		State:     map[string][]byte{"key": {0, 1, 255}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	n := len(rows.Keys)
	for s := range shards {
		p := snapshot.NewPart(snapshot.PartOptions{Dir: w.Dir(), Layout: l, Shard: s, Allocator: mem})
		if err := p.Rows(0, feed(rows, l.Tables[0], n*s/shards, n*(s+1)/shards)); err != nil {
			tb.Fatal(err)
		}
		if err := p.Rows(1, func(*table.Rows, int) bool { return false }); err != nil {
			tb.Fatal(err)
		}
		if s == 0 {
			if err := p.Dense(tensors()); err != nil {
				tb.Fatal(err)
			}
		}
		w.Add(p.Part())
	}
	info, err := w.Commit()
	if err != nil {
		tb.Fatal(err)
	}
	return info
}

// sizeOf is how many bytes the files of a folder have.
func sizeOf(tb testing.TB, dir string) (n int64) {
	tb.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range files {
		i, err := f.Info()
		if err != nil {
			tb.Fatal(err)
		}
		n += i.Size()
	}
	return n
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	digests := map[string]bool{}
	for _, n := range []int{0, 1, 4095, 4096, 70000} {
		rows := randomRows(rand.New(rand.NewPCG(1, uint64(n))), layout().Tables[0], n)
		clear(digests)
		for _, shards := range []int{1, 3} {
			info := write(t, t.TempDir(), 12, &rows, shards)
			digests[info.Digest] = true
			if filepath.Base(info.Path) != "snap-00000012" || info.Rows() != int64(n) {
				t.Errorf("%s has %d rows, want %d", info.Path, info.Rows(), n)
			}
			if size := sizeOf(t, info.Path); info.Bytes() != size {
				t.Errorf("%s has %d bytes, its files %d", info.Path, info.Bytes(), size)
			}
			s, err := snapshot.Open(t.Context(), info.Path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(info, s.Info()); diff != "" {
				t.Errorf("manifest (-written +read):\n%s", diff)
			}
			var got table.Rows
			err = s.Rows(0, func(r *table.Rows) error {
				if len(r.Keys) > 64<<10 {
					t.Errorf("record batch of %d rows", len(r.Keys))
				}
				got.Keys, got.Times, got.Counts = append(got.Keys, r.Keys...), append(got.Times, r.Times...), append(got.Counts, r.Counts...)
				got.Weights, got.State = append(got.Weights, r.Weights...), append(got.State, r.State...)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if n < 5000 { // go-cmp is slow; the digest compares the rest
				if diff := cmp.Diff(rows, got); diff != "" {
					t.Errorf("%d rows, %d shards (-written +read):\n%.1000s", n, shards, diff)
				}
			}
			if d, err := s.Digest(); err != nil || d != info.Digest {
				t.Errorf("digest of what was read %s, %v; want %s", d, err, info.Digest)
			}
			dense, err := s.Tensors()
			if diff := cmp.Diff(tensors(), dense); diff != "" || err != nil {
				t.Errorf("tensors: %v (-written +read):\n%s", err, diff)
			}
			boom := errors.New("boom")
			if err := s.Rows(0, func(*table.Rows) error { return boom }); n > 0 && (!errors.Is(err, boom) || errors.Is(err, snapshot.ErrCorrupt)) {
				t.Errorf("the caller's error came back as %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if len(digests) != 1 {
			t.Errorf("%d rows: the digest depends on the number of shards: %v", n, digests)
		}
	}
}

// Any Arrow tool reads the files.
func TestFilesAreArrow(t *testing.T) {
	t.Parallel()
	rows := randomRows(rand.New(rand.NewPCG(1, 1)), layout().Tables[0], 10)
	info := write(t, t.TempDir(), 1, &rows, 1)
	f, err := os.Open(filepath.Join(info.Path, "rows-0000-0000.arrow"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	r, err := ipc.NewFileReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	rec, err := r.RecordBatchAt(0)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Release()
	var names []string
	for _, f := range rec.Schema().Fields() {
		names = append(names, f.Name)
	}
	want := []string{"fid", "time", "count", "weights.bias", "weights.plain", "weights.vec"}
	if diff := cmp.Diff(want, names); diff != "" || rec.NumRows() != 10 {
		t.Errorf("%d rows, columns (-want +got):\n%s", rec.NumRows(), diff)
	}
}

// What Arrow's own reader finds in the files is what this package finds.
func TestDecodedAsArrowDoes(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 5000, 70000} {
		rows := randomRows(rng, layout().Tables[0], n)
		info := write(t, t.TempDir(), 1, &rows, 1)
		for _, f := range info.Files {
			b, err := os.ReadFile(filepath.Join(info.Path, f.Name))
			if err != nil {
				t.Fatal(err)
			}
			r, err := ipc.NewFileReader(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			if f.Kind != snapshot.KindRows {
				continue // Round trips compare tensors, and the check of the schema has seen these files.
			}
			at := 0
			_, err = snapshot.ReadRows(b, info.Tables[f.Table], func(got *table.Rows) error {
				rec, err := r.RecordBatchAt(at)
				if err != nil {
					return err
				}
				defer rec.Release()
				at++
				want := rec.Column(0).(*array.Int64).Int64Values()
				if diff := cmp.Diff(want, got.Keys); diff != "" {
					t.Errorf("fids:\n%.500s", diff)
				}
				dim, at := info.Tables[f.Table].Dim(), 0
				for i, s := range info.Tables[f.Table].Segments {
					col := rec.Column(3 + i).(*array.FixedSizeList).ListValues().(*array.Float32).Float32Values()
					for row := range got.Keys {
						if !slices.Equal(got.Weights[row*dim+at:][:s.Dim], col[row*s.Dim:][:s.Dim]) {
							t.Fatalf("segment %s of row %d: %v, want %v", s.Name, row, got.Weights[row*dim+at:][:s.Dim], col[row*s.Dim:][:s.Dim])
						}
					}
					at += s.Dim
				}
				return nil
			})
			if err != nil || at != r.NumRecords() {
				t.Errorf("%d record batches of %d: %v", at, r.NumRecords(), err)
			}
		}
	}
}

// Whatever number in a file is large, no memory is asked for by it.
func TestNumbersInFilesAskForNoMemory(t *testing.T) {
	rows := randomRows(rand.New(rand.NewPCG(1, 1)), layout().Tables[0], 3)
	info := write(t, t.TempDir(), 1, &rows, 1)
	spec := snapshot.TablesOf(layout())[0]
	for _, f := range info.Files {
		whole, err := os.ReadFile(filepath.Join(info.Path, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at+4 <= len(whole); at++ {
			for _, v := range []uint32{0x7fffffff, 0xffffffff, 0x00ffffff} {
				b := bytes.Clone(whole)
				binary.LittleEndian.PutUint32(b[at:], v)
				before := allocated()
				_, err := snapshot.ReadRows(b, spec, func(*table.Rows) error { return nil })
				_, err2 := snapshot.ReadTensors(b)
				_, err3 := snapshot.ReadRowsAndState(whole, b, spec, func(*table.Rows) error { return nil })
				if got := allocated() - before; got > 1<<20 {
					t.Fatalf("%s: %x at %d: %d bytes for a file of %d", f.Name, v, at, got, len(b))
				}
				for _, err := range []error{err, err2, err3} {
					if err != nil && !errors.Is(err, snapshot.ErrCorrupt) {
						t.Errorf("%s: %x at %d: %v is not ErrCorrupt", f.Name, v, at, err)
					}
				}
			}
		}
	}
}

// allocated is how many bytes were asked of the heap since the process began.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// fails is a file system on which opening a file fails.
type fails struct {
	fsx.OS
	err error
}

func (f fails) Open(string) (fsx.File, error) { return nil, f.err }

// A file that this process may not read, or has no handle left for, is not damaged: an older snapshot would be the wrong
// answer.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	var rows table.Rows
	info := write(t, t.TempDir(), 1, &rows, 1)
	for err, damaged := range map[error]bool{syscall.EIO: true, os.ErrNotExist: true, syscall.EMFILE: false, os.ErrPermission: false} {
		_, got := snapshot.OpenWith(t.Context(), info.Path, snapshot.OpenOptions{FS: fsx.Local{Disk: fails{err: err}}})
		if !errors.Is(got, err) || errors.Is(got, snapshot.ErrCorrupt) != damaged {
			t.Errorf("%v: %v, want ErrCorrupt: %v", err, got, damaged)
		}
	}
	if err := os.Truncate(filepath.Join(info.Path, "dense-0000.arrow"), 9); err != nil {
		t.Fatal(err)
	}
	if _, err := snapshot.Open(t.Context(), info.Path); !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "dense-0000.arrow") {
		t.Errorf("cut short: %v", err)
	}
	// A disk may fail, and a file of a server shrink, between two reads of an open file.
	rows = randomRows(rand.New(rand.NewPCG(1, 1)), layout().Tables[0], 100)
	info = write(t, t.TempDir(), 1, &rows, 1)
	s, err := snapshot.Open(t.Context(), info.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it was only read
	for _, f := range info.Files {
		if err := os.Truncate(filepath.Join(info.Path, f.Name), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Rows(0, func(*table.Rows) error { return nil }); !errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("rows of a file that was cut short after it was opened: %v", err)
	}
	if _, err := s.Tensors(); !errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("tensors of a file that was cut short after it was opened: %v", err)
	}
}

func TestDigestOfEverything(t *testing.T) {
	t.Parallel()
	rows := randomRows(rand.New(rand.NewPCG(1, 1)), layout().Tables[0], 2)
	dim, stateDim := layout().Tables[0].Dim(), layout().Tables[0].StateDim()
	base := func() *snapshot.Digest {
		var d snapshot.Digest
		d.Rows("t", dim, stateDim, &rows)
		return &d
	}
	seen := map[string]string{base().String(): "base"}
	for name, change := range map[string]func(*snapshot.Digest){
		"table":  func(d *snapshot.Digest) { *d = snapshot.Digest{}; d.Rows("u", dim, stateDim, &rows) },
		"dense":  func(d *snapshot.Digest) { d.Dense(tensors()[0]) },
		"split":  func(d *snapshot.Digest) { d.Split("a", "bc", snapshot.Progress{Position: 1}) },
		"split2": func(d *snapshot.Digest) { d.Split("ab", "c", snapshot.Progress{Position: 1}) },
		"rows":   func(d *snapshot.Digest) { d.Split("a", "bc", snapshot.Progress{Position: 1, Rows: 1}) },
		"state":  func(d *snapshot.Digest) { d.State("k", []byte("v")) },
		"twice":  func(d *snapshot.Digest) { d.Rows("t", dim, stateDim, &rows) },
		"weight": func(d *snapshot.Digest) {
			other := rows
			other.Weights = append([]float32{-rows.Weights[0]}, rows.Weights[1:]...)
			*d = snapshot.Digest{}
			d.Rows("t", dim, stateDim, &other)
		},
	} {
		d := base()
		change(d)
		if other, ok := seen[d.String()]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[d.String()] = name
	}
	var a, b snapshot.Digest
	a.State("k", []byte("v"))
	a.Add(base())
	b.Rows("t", dim, stateDim, &rows)
	b.State("k", []byte("v"))
	if a.String() != b.String() {
		t.Errorf("sum of digests %s, want %s", &a, &b)
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if e, err := snapshot.List(filepath.Join(dir, "none")); err != nil || len(e) > 0 {
		t.Errorf("a folder that is not there: %v, %v", e, err)
	}
	var rows table.Rows
	for id := range uint64(3) {
		write(t, dir, id+1, &rows, 1)
	}
	for _, name := range []string{"snap-00000009", "snap-00000004", "snap-7", "snap-x", "other"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"snap-00000004/manifest.json": "{", "snap-00000009/rows-0000-0000.arrow.tmp": "x", "snap-00000003/begun": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gone, err := snapshot.Clean(fsx.Local{}, dir)
	if diff := cmp.Diff([]string{"snap-00000009"}, gone); diff != "" || err != nil {
		t.Errorf("cleaned: %v\n%s", err, diff)
	}
	if _, err := os.Stat(filepath.Join(dir, "snap-00000003", "begun")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a snapshot that is whole says that it was begun: %v", err)
	}
	entries, err := snapshot.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, e := range entries {
		text += fmt.Sprint(e.ID, " ", e.Err == nil, "; ")
	}
	if text != "4 false; 3 true; 2 true; 1 true; " || !errors.Is(entries[0].Err, snapshot.ErrCorrupt) {
		t.Errorf("listed %s", text)
	}
	if gone, err := snapshot.Prune(t.Context(), fsx.Local{}, dir, snapshot.Retention{Keep: 2}, snapshot.PruneOptions{}); err != nil || len(gone) != 1 || filepath.Base(gone[0]) != "snap-00000001" {
		t.Errorf("pruned %v, %v", gone, err)
	}
}

func FuzzManifest(f *testing.F) {
	var rows table.Rows
	info := write(f, f.TempDir(), 1, &rows, 1)
	good, err := os.ReadFile(filepath.Join(info.Path, snapshot.ManifestName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1,"files":[{"name":"../x","table":9}]}`))
	f.Add([]byte(`{"version":3}`))
	f.Add([]byte(`{"version":2,"id":1,"shards":1,"tables":[{"name":"t","segments":[{"name":"v","dim":16777217}]}],"rules":{"seed":"1","parameters":[]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := snapshot.DecodeManifest(b)
		if err != nil {
			if !errors.Is(err, snapshot.ErrCorrupt) && !errors.Is(err, snapshot.ErrVersion) {
				t.Errorf("error %v is neither ErrCorrupt nor ErrVersion", err)
			}
			return
		}
		again, err := info.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := snapshot.DecodeManifest(again); err != nil {
			t.Errorf("encoded again: %v", err)
		}
	})
}

func FuzzRows(f *testing.F) {
	rows := randomRows(rand.New(rand.NewPCG(1, 1)), layout().Tables[0], 20)
	info := write(f, f.TempDir(), 1, &rows, 1)
	var files [][]byte
	for i, file := range info.Files {
		b, err := os.ReadFile(filepath.Join(info.Path, file.Name))
		if err != nil {
			f.Fatal(err)
		}
		files = append(files, b)
		at := len(b) * 3 / 4
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte{0, byte(at), byte(at >> 8), 0, b[at] ^ 0x10})
	}
	spec := snapshot.TablesOf(layout())[0]
	f.Fuzz(func(t *testing.T, which uint8, edits []byte) {
		b := testbed.Edit(files[int(which)%len(files)], edits)
		before := allocated()
		defer func() {
			// A row of tensors is 96 bytes in memory and 16 in the file.
			if got := allocated() - before; got > 4<<20+32*uint64(len(b)) {
				t.Errorf("%d bytes asked for by a file of %d", got, len(b))
			}
		}()
		n, err := snapshot.ReadRows(b, spec, func(r *table.Rows) error {
			if len(r.Weights) != len(r.Keys)*spec.Dim() || len(r.State) != 0 {
				t.Errorf("%d weights and %d of state for %d rows", len(r.Weights), len(r.State), len(r.Keys))
			}
			return nil
		})
		if err != nil && !errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("error %v is not ErrCorrupt", err)
		}
		if n < 0 || n > int64(len(b)) {
			t.Errorf("%d rows in %d bytes", n, len(b))
		}
		n, err = snapshot.ReadRowsAndState(files[0], b, spec, func(r *table.Rows) error {
			if len(r.State) != len(r.Keys)*spec.StateDim() {
				t.Errorf("%d of state for %d rows", len(r.State), len(r.Keys))
			}
			return nil
		})
		if err != nil && !errors.Is(err, snapshot.ErrCorrupt) || n < 0 || n > 20 {
			t.Errorf("state: %d rows, error %v is not ErrCorrupt", n, err)
		}
		if _, err := snapshot.ReadTensors(b); err != nil && !errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("error %v is not ErrCorrupt", err)
		}
	})
}

// FuzzRemoved decodes files of removed fids that are damaged.
func FuzzRemoved(f *testing.F) {
	l := layout()
	dir := f.TempDir()
	p := snapshot.NewPart(snapshot.PartOptions{Dir: dir, Layout: l})
	keys := make([]int64, 100_000) // two record batches
	for i := range keys {
		keys[i] = int64(i)
	}
	if err := p.Changed(0, func(*table.Rows, int) bool { return false }, func() (int64, []int64) { return 0, keys }); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(dir, "removed-0000-0000.arrow"))
	if err != nil {
		f.Fatal(err)
	}
	if n, err := snapshot.ReadRemoved(good); n != len(keys) || err != nil {
		f.Fatalf("%d fids of %d, %v", n, len(keys), err)
	}
	f.Add([]byte{})
	f.Add([]byte{byte(len(good) % 256), 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, edits []byte) {
		b := testbed.Edit(good, edits)
		before := allocated()
		n, err := snapshot.ReadRemoved(b)
		if err != nil && !errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("error %v is not ErrCorrupt", err)
		}
		if got := allocated() - before; n > len(b)/8 || got > 4<<20+2*uint64(len(b)) {
			t.Errorf("%d fids and %d bytes asked for by a file of %d", n, got, len(b))
		}
	})
}

// TestNotFiniteIsNotWritten puts a NaN or an infinity into a weight or a state of the first row, of one far after it, and of a
// dense tensor.
func TestNotFiniteIsNotWritten(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	l := layout()
	const n = 100_000 // several record batches
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	dim, stateDim := l.Tables[0].Dim(), l.Tables[0].StateDim()
	for name, c := range map[string]struct {
		spoil func(rows *table.Rows)
		row   int
	}{
		"weight":             {func(r *table.Rows) { r.Weights[2] = nan }, 0},
		"state":              {func(r *table.Rows) { r.State[stateDim-1] = inf }, 0},
		"weight of the last": {func(r *table.Rows) { r.Weights[n*dim-1] = inf }, n - 1},
	} {
		rows := randomRows(rand.New(rand.NewPCG(1, 1)), l.Tables[0], n)
		c.spoil(&rows)
		p := snapshot.NewPart(snapshot.PartOptions{Dir: t.TempDir(), Layout: l, Allocator: mem})
		err := p.Rows(0, feed(&rows, l.Tables[0], 0, n))
		if want := fmt.Sprintf("table a/b, row of fid %d:", rows.Keys[c.row]); !errors.Is(err, snapshot.ErrNotFinite) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want ErrNotFinite and %q", name, err, want)
		}
	}
	p := snapshot.NewPart(snapshot.PartOptions{Dir: t.TempDir(), Layout: l, Allocator: mem})
	bad := tensors()
	bad[0].State[1] = nan
	if err := p.Dense(bad); !errors.Is(err, snapshot.ErrNotFinite) || !strings.Contains(err.Error(), "tensor w") {
		t.Errorf("%v, want ErrNotFinite of tensor w", err)
	}
}

// endingFile ends a context at its first read, whose bytes it gives.
type endingFile struct {
	fsx.File
	end func()
}

// ReadAt implements [fsx.File].
func (f endingFile) ReadAt(p []byte, at int64) (int, error) {
	f.end()
	return f.File.ReadAt(p, at)
}

type endingDisk struct {
	fsx.Disk
	end func()
}

// Open implements [fsx.Disk].
func (d endingDisk) Open(path string) (fsx.File, error) {
	f, err := d.Disk.Open(path)
	if err != nil || filepath.Ext(path) != ".arrow" {
		return f, err
	}
	return endingFile{f, d.end}, nil
}

// TestOpenEndsWithItsContext: a run that is cut off while it verifies gigabytes ends, and the snapshot does not count as
// damaged, whatever the cause.
func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	rows := randomRows(rand.New(rand.NewPCG(1, 2)), layout().Tables[0], 40_000)
	info := write(t, t.TempDir(), 1, &rows, 1)
	cut := errors.New("cut off")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := snapshot.OpenWith(ctx, info.Path, snapshot.OpenOptions{FS: fsx.Local{Disk: endingDisk{fsx.OS{}, func() { cancel(cut) }}}})
	if !errors.Is(err, cut) || errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("%v, want the context's cause", err)
	}
}

// TestIncomplete: what has no manifest is not said to be damaged, and is still none that can be used.
func TestIncomplete(t *testing.T) {
	t.Parallel()
	rows := randomRows(rand.New(rand.NewPCG(1, 2)), layout().Tables[0], 40)
	info := write(t, t.TempDir(), 1, &rows, 1)
	if err := os.Remove(filepath.Join(info.Path, snapshot.ManifestName)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{info.Path, filepath.Join(t.TempDir(), "snap-00000007")} {
		_, err := snapshot.Open(t.Context(), path)
		if !errors.Is(err, snapshot.ErrCorrupt) || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
		if text := err.Error(); !strings.Contains(text, path+": no snapshot, or an incomplete one: manifest.json") || strings.Contains(text, "damaged") {
			t.Error(text)
		}
	}
}
