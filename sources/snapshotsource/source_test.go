package snapshotsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/sources/snapshotsource"
)

var layout = &param.Layout{Tables: []param.Table{
	{Name: "users", Segments: []param.Segment{
		{Name: "bias", Dim: 1, Optimizer: optim.FTRL{}}, {Name: "plain", Dim: 2, Optimizer: optim.SGD{}}, {Name: "vec", Dim: 3, Optimizer: optim.Adagrad{}},
	}},
	{Name: "none", Segments: []param.Segment{{Name: "v", Dim: 1, Optimizer: optim.SGD{}}}},
}}

// random are rows of the first table, of slots 0 to 4.
func random(t testing.TB, n int) *table.Rows {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, uint64(n)))
	rows := &table.Rows{}
	for i := range n {
		id, err := fid.New(rng.IntN(5), uint64(i)+1)
		if err != nil {
			t.Fatal(err)
		}
		rows.Keys, rows.Times, rows.Counts = append(rows.Keys, int64(id)), append(rows.Times, 1_700_000_000_000_000+rng.Int64N(1000)), append(rows.Counts, rng.Uint64N(9))
		for range layout.Tables[0].Dim() {
			rows.Weights = append(rows.Weights, rng.Float32()-.5)
		}
		for range layout.Tables[0].StateDim() {
			rows.State = append(rows.State, rng.Float32())
		}
	}
	return rows
}

// write makes a snapshot of rows that are spread over shards.
func write(t testing.TB, rows *table.Rows, shards int) *snapshot.Info {
	t.Helper()
	w, err := snapshot.Create(snapshot.Options{Dir: t.TempDir(), ID: 7, Layout: layout, Shards: shards, Created: time.Unix(1700000000, 0)})
	if err != nil {
		t.Fatal(err)
	}
	dim, stateDim := layout.Tables[0].Dim(), layout.Tables[0].StateDim()
	for s := range shards {
		p := snapshot.NewPart(snapshot.PartOptions{Dir: w.Dir(), Layout: layout, Shard: s})
		at, end := len(rows.Keys)*s/shards, len(rows.Keys)*(s+1)/shards
		if err := p.Rows(0, func(dst *table.Rows, limit int) bool {
			n := min(limit, end-at)
			dst.Keys, dst.Times, dst.Counts = append(dst.Keys, rows.Keys[at:at+n]...), append(dst.Times, rows.Times[at:at+n]...), append(dst.Counts, rows.Counts[at:at+n]...)
			dst.Weights, dst.State = append(dst.Weights, rows.Weights[at*dim:(at+n)*dim]...), append(dst.State, rows.State[at*stateDim:(at+n)*stateDim]...)
			at += n
			return n > 0
		}); err != nil {
			t.Fatal(err)
		}
		w.Add(p.Part())
	}
	info, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func source(t testing.TB, info *snapshot.Info, o snapshotsource.Options) *snapshotsource.Source {
	t.Helper()
	if o.Table == "" {
		o.Table = "users"
	}
	s, err := snapshotsource.New(info, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestConformance reads splits of one shard and of several, from every position, with all rows and with few.
func TestConformance(t *testing.T) {
	t.Parallel()
	info := write(t, random(t, 1000), 2)
	for name, o := range map[string]snapshotsource.Options{
		"all":   {RowsPerSplit: 300, BatchRows: 64, State: true},
		"some":  {RowsPerSplit: 300, BatchRows: 64, Slots: []int{2, 4}},
		"ahead": {RowsPerSplit: 300, BatchRows: 64, Ahead: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := map[string]int{}
			pipelinetest.ReadAll(t, source(t, info, o), &pipeline.Env{}, func(s pipeline.Split, b *pipeline.Batch) { rows[s.Name] += b.NumRows() })
			if len(rows) != 4 || name != "some" && (rows["shard-00000-part-000000"] != 300 || rows["shard-00001-part-000001"] != 200) {
				t.Errorf("splits are %v", rows)
			}
			pipelinetest.TestSource(t, pipelinetest.SourceHarness[*pipeline.Batch]{
				New:  func(t *testing.T) pipeline.Source[*pipeline.Batch] { return source(t, info, o) },
				Rows: rows,
			})
		})
	}
}

// TestRowsAgainstALoop: the rows of a snapshot, to the bit, and of filters those that a plain loop over all rows keeps.
func TestRowsAgainstALoop(t *testing.T) {
	t.Parallel()
	const n = 150_000 // several record batches a shard
	rows := random(t, n)
	dim, stateDim := layout.Tables[0].Dim(), layout.Tables[0].StateDim()
	after := int64(1_700_000_000_000_500)
	for _, shards := range []int{1, 3} {
		info := write(t, rows, shards)
		for name, o := range map[string]snapshotsource.Options{
			"all":         {},
			"state":       {State: true, RowsPerSplit: 40_000},
			"slots":       {Slots: []int{4, 1}, BatchRows: 100},
			"updated":     {UpdatedAfter: after},
			"norm":        {MinNorm: .9, RowsPerSplit: 7777},
			"count":       {MinCount: 5},
			"all of them": {Slots: []int{3}, UpdatedAfter: after, MinNorm: .8, MinCount: 2, State: true},
			"nothing":     {MinNorm: 100},
			"whole":       {Whole: true},
			"some whole":  {Whole: true, Slots: []int{4, 1}},
		} {
			t.Run(fmt.Sprintf("%s/shards=%d", name, shards), func(t *testing.T) {
				t.Parallel()
				mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
				defer mem.AssertSize(t, 0)
				at := 0 // in rows: shards have them in order
				skip := func() {
					for ; at < n; at++ {
						sum := 0.0
						for _, w := range rows.Weights[at*dim : (at+1)*dim] {
							sum += float64(w) * float64(w)
						}
						slot := fid.ID(rows.Keys[at]).Slot()
						if (len(o.Slots) == 0 || slices.Contains(o.Slots, slot)) && (o.UpdatedAfter == 0 || rows.Times[at] > after) && rows.Counts[at] >= uint64(o.MinCount) && (o.MinNorm == 0 || math.Sqrt(sum) >= o.MinNorm) {
							return
						}
					}
				}
				read := 0
				pipelinetest.ReadAll(t, source(t, info, o), &pipeline.Env{Allocator: mem}, func(_ pipeline.Split, b *pipeline.Batch) {
					list := func(column string, i, dim int) []float32 {
						col := b.Column(column).(*array.FixedSizeList)
						from, _ := col.ValueOffsets(i)
						return col.ListValues().(*array.Float32).Float32Values()[from:][:dim]
					}
					for i := range b.NumRows() {
						if skip(); at == n {
							t.Fatal("more rows than the loop keeps")
						}
						var got, want []float32
						want = append(want, rows.Weights[at*dim:(at+1)*dim]...)
						if o.Whole {
							if id := b.Column("fid").(*array.Int64).Value(i); b.Record().NumCols() != 3 || id != rows.Keys[at] || !slices.Equal(list("weights", i, dim), want) {
								t.Fatalf("row %d is id %d; want id %d with %v", at, id, rows.Keys[at], want)
							}
							at++
							read++
							continue
						}
						got = append(append(append(got, list("weights_bias", i, 1)...), list("weights_plain", i, 2)...), list("weights_vec", i, 3)...)
						if o.State {
							got = append(append(got, list("state_bias", i, 2)...), list("state_vec", i, stateDim-2)...)
							want = append(want, rows.State[at*stateDim:(at+1)*stateDim]...)
						}
						numbers := []int64{b.Column("fid").(*array.Int64).Value(i), int64(b.Column("slot").(*array.Int32).Value(i)), b.Column(pipeline.ColTime).(*array.Int64).Value(i), b.Column("count").(*array.Int64).Value(i)}
						if !slices.Equal(got, want) || !slices.Equal(numbers, []int64{rows.Keys[at], int64(fid.ID(rows.Keys[at]).Slot()), rows.Times[at], int64(rows.Counts[at])}) {
							t.Fatalf("row %d is %v %v; want %v of id %d", at, numbers, got, want, rows.Keys[at])
						}
						at++
						read++
					}
				})
				if skip(); at != n {
					t.Errorf("%d rows are read, the loop keeps more", read)
				}
			})
		}
	}
}

// TestDamage: a snapshot that is damaged is an error with its file, before any row of that is read; one that is damaged after it was verified,
// one with the place.
func TestDamage(t *testing.T) {
	t.Parallel()
	rows := random(t, 100_000)
	damaged := func(t *testing.T, name string, change func(path string) error, wants ...string) {
		info := write(t, rows, 2)
		path := filepath.Join(info.Path, name)
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		s := source(t, info, snapshotsource.Options{State: true})
		splits, err := s.Splits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // what was found out once is not forgotten
			_, err = s.Open(t.Context(), &pipeline.Env{}, splits[1], splits[1].Start)
			if !errors.Is(err, pipeline.ErrBadData) || !errors.Is(err, snapshot.ErrCorrupt) {
				t.Fatalf("%v", err)
			}
			for _, want := range append(wants, name) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v: does not say %q", err, want)
				}
			}
		}
		r, err := s.Open(t.Context(), &pipeline.Env{}, splits[0], splits[0].Start)
		if err != nil {
			t.Fatalf("the other shard: %v", err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"rows-0000-0001.arrow", "state-0000-0001.arrow"} {
		damaged(t, name, os.Remove, "no such file")
		damaged(t, name, func(path string) error { return os.Truncate(path, 5000) }, "5000 bytes of ")
		damaged(t, name, func(path string) error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte{0xff}, 4000)
			return errors.Join(err, f.Close())
		}, "checksum mismatch")
	}
	info := write(t, rows, 1)
	s := source(t, info, snapshotsource.Options{FS: fsx.Local{}})
	splits, err := s.Splits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Open(t.Context(), &pipeline.Env{}, splits[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if err := os.Truncate(filepath.Join(info.Path, "rows-0000-0000.arrow"), 1<<20); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		var b *pipeline.Batch
		if b, err = r.Next(t.Context()); err == nil {
			b.Release()
		}
	}
	if errors.Is(err, io.EOF) || !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "rows-0000-0000.arrow: record batch 0 at offset ") {
		t.Errorf("cut short while it is read: %v", err)
	}
}

// held holds up who verifies files until release is closed: it reads whole MiB, and who decodes rows reads less.
type held struct {
	fsx.FS

	release chan struct{}
}

type heldFile struct {
	fsx.File

	release chan struct{}
}

func (h held) Open(ctx context.Context, name string) (fsx.File, error) {
	f, err := h.FS.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return heldFile{f, h.release}, nil
}

func (f heldFile) ReadAt(p []byte, at int64) (int, error) {
	if len(p) == 1<<20 {
		<-f.release
	}
	return f.File.ReadAt(p, at)
}

// TestAhead: all rows are read while their files are being verified, and the reader ends when they are; who asks whether they are waits as long. One that is closed before joins who verifies, and
// the next who asks does it.
func TestAhead(t *testing.T) {
	t.Parallel()
	const n = 100_000
	info := write(t, random(t, n), 1)
	release := make(chan struct{})
	s := source(t, info, snapshotsource.Options{FS: held{fsx.Local{}, release}, Ahead: true, RowsPerSplit: n / 2})
	splits, err := s.Splits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ends sync.WaitGroup
	for _, split := range splits {
		r, err := s.Open(t.Context(), &pipeline.Env{}, split, split.Start)
		if err != nil {
			t.Fatal(err)
		}
		for rows := 0; rows < n/2; {
			b, err := r.Next(t.Context())
			if err != nil {
				t.Fatalf("behind %d rows: %v", rows, err)
			}
			rows += b.NumRows()
			b.Release()
		}
		ends.Go(func() {
			if _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			if err := s.Settle(t.Context(), split.Name); err != nil {
				t.Error(err)
			}
			select {
			case <-release:
			default:
				t.Error("it ends before its files are verified")
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Settle(gone, splits[0].Name); !errors.Is(err, context.Canceled) {
		t.Errorf("while files are verified: %v", err)
	}
	close(release)
	ends.Wait()

	s = source(t, info, snapshotsource.Options{Ahead: true})
	r, err := s.Open(t.Context(), &pipeline.Env{}, splits[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(s.Settle(t.Context(), splits[1].Name), s.SettleAll(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestDamageAhead: whatever bit of a file is another one, no reader of its shard ends as if all were well, and the error is that of the file.
func TestDamageAhead(t *testing.T) {
	t.Parallel()
	info := write(t, random(t, 3000), 2)
	path := filepath.Join(info.Path, "rows-0000-0001.arrow")
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		bit := rng.IntN(8 * len(sound))
		damaged := slices.Clone(sound)
		damaged[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, damaged, 0o644); err != nil {
			t.Fatal(err)
		}
		s := source(t, info, snapshotsource.Options{Ahead: true, RowsPerSplit: 800})
		splits, err := s.Splits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, split := range splits {
			r, err := s.Open(t.Context(), &pipeline.Env{}, split, split.Start)
			for err == nil {
				var b *pipeline.Batch
				if b, err = r.Next(t.Context()); err == nil {
					b.Release()
				}
			}
			if r != nil {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
			for _, err := range []error{err, s.Settle(t.Context(), split.Name)} {
				switch bad := strings.HasPrefix(split.Name, "shard-00001"); {
				case !bad && err != nil && !errors.Is(err, io.EOF):
					t.Errorf("bit %d, %s: %v", bit, split.Name, err)
				case bad && (!errors.Is(err, pipeline.ErrBadData) || !strings.Contains(err.Error(), "rows-0000-0001.arrow: bytes 0 to ") || !strings.Contains(err.Error(), "checksum mismatch")):
					t.Errorf("bit %d, %s: %v", bit, split.Name, err)
				}
			}
		}
		if err := s.SettleAll(t.Context()); !errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("bit %d: %v", bit, err)
		}
	}
}

// TestFaults: what is no table, slot or split of a snapshot.
func TestFaults(t *testing.T) {
	t.Parallel()
	info := write(t, random(t, 10), 1)
	_, err := snapshotsource.New(info, snapshotsource.Options{Table: "user", Slots: []int{-1, fid.NumSlots}, MinNorm: math.NaN(), State: true, Whole: true})
	for _, want := range []string{`no table "user"; it has ["users" "none"]`, "slot -1 is none", "MinNorm NaN", "Whole has weights alone"} {
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	s := source(t, info, snapshotsource.Options{})
	for _, split := range []pipeline.Split{{Name: "x"}, {Name: "shard-00001-part-000000", End: 1}, {Name: "shard-00000-part-000000", End: 11}} {
		if _, err := s.Open(t.Context(), &pipeline.Env{}, split, 0); !errors.Is(err, pipeline.ErrConfig) {
			t.Errorf("split %+v: %v", split, err)
		}
	}
	none, err := source(t, info, snapshotsource.Options{Table: "none"}).Splits(t.Context())
	if err != nil || len(none) > 0 {
		t.Errorf("splits of an empty table: %v, %v", none, err)
	}
}

// TestSplitsAreFew: splits cover all rows of each shard, none twice, and are no more than can be read at once.
func TestSplitsAreFew(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3, 40} {
		info := &snapshot.Info{Shards: shards, Tables: []snapshot.Table{{TableShape: layout.Shape().Tables[0]}}}
		for s := range shards {
			info.Files = append(info.Files, snapshot.FileInfo{Kind: snapshot.KindRows, Shard: s, Rows: int64(s+1) * 3_000_001})
		}
		splits, err := source(t, info, snapshotsource.Options{}).Splits(t.Context())
		if err != nil || len(splits) > max(32, shards) {
			t.Errorf("%d splits of %d shards, %v", len(splits), shards, err)
		}
		at := map[string]pipeline.Position{}
		for _, s := range splits {
			shard, _, _ := strings.Cut(s.Name, "-part")
			if s.Start != at[shard] || s.End <= s.Start {
				t.Errorf("split %+v begins elsewhere than at %d", s, at[shard])
			}
			at[shard] = s.End
		}
		for s := range shards {
			if got := at[fmt.Sprintf("shard-%05d", s)]; int64(got) != int64(s+1)*3_000_001 {
				t.Errorf("shard %d is covered up to %d", s, got)
			}
		}
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	info := write(t, random(t, 10), 1)
	type options struct {
		Digest  string
		Options snapshotsource.Options
	}
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[options]{
		Options: options{info.Digest, snapshotsource.Options{Table: "users", Slots: []int{1}, UpdatedAfter: 1, MinNorm: 1, MinCount: 1, RowsPerSplit: 1, BatchRows: 1}},
		New: func(t *testing.T, o options) interface{ Fingerprint() string } {
			of := *info
			of.Digest = o.Digest
			of.Tables = slices.Clone(of.Tables)
			of.Tables[0].Name = o.Options.Table
			return source(t, &of, o.Options)
		},
		Other: map[string]any{"Options.FS": fsx.Local{}},
		Free:  map[string]string{"Options.BatchRows": "rows and positions are the same however they are cut into batches", "Options.FS": "where a snapshot lies, whose digest is in", "Options.Ahead": "rows are the same, whenever their files are verified"},
	})
	if diff := cmp.Diff(source(t, info, snapshotsource.Options{}).String(), "snap-00000007 table users"); diff != "" {
		t.Error(diff)
	}
}
