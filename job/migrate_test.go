package job_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/entrydump"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// entriesOf reads a checkpoint: each entry as upstream's reader sees it, by id; a table that comes twice is named by its file.
func entriesOf(t *testing.T, path string, keep func(file string) bool) map[int64]string {
	t.Helper()
	c, err := entrydump.Find(t.Context(), fsx.Local{}, path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[int64]string{}
	for _, f := range c.Files {
		if !keep(f.Name) {
			continue
		}
		for shard := range f.Shards {
			r, err := c.Open(t.Context(), fsx.Local{}, f, shard)
			if err != nil {
				t.Fatal(err)
			}
			for {
				_, e, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				plain := *e
				plain.Count, plain.Micros = 0, 0
				out[e.ID] = string(plain.Append(nil))
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	return out
}

// smallJob is a job of which nothing is trained.
func smallJob(t *testing.T, text string) *job.Config {
	t.Helper()
	cfg, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(t.TempDir(), "run")}})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

const importJob = `
version: 1
name: imported
source: {synthetic: {examples: 2000}}
parse:
  features: [{name: user, slot: 1}, {name: item, slot: 2}, {name: category, slot: 3}]
  label: click
model: {deepfm: {dim: 32, hidden: [8]}}
optimizer: {bias: {ftrl: {lr: 0.01, initial_accumulator: 0.1}}, sparse: sgd}
`

// TestImportSample: what upstream's own tests wrote, rows of a weight with FTRL and a vector with SGD, becomes rows of a job; exported they are
// the same entries, byte for byte.
func TestImportSample(t *testing.T) {
	t.Parallel()
	data := os.Getenv("MONOLITH_DATA")
	from := filepath.Join(data, "formats/bytedance_monolith/native_training/model_export/testdata/saved_model/ps_0/1622716114")
	if _, err := os.Stat(from); data == "" || err != nil {
		testbed.Require(t, "data", "upstream's exported model is not there; MONOLITH_DATA names the folder of data sets")
	}
	cfg := smallJob(t, importJob)
	const name = "MonolithHashTable_0b9721ec6fc5396c38499b5be394b722_"
	mapping := &job.Mapping{Version: 1}
	mapping.Tables = append(mapping.Tables, job.TableMapping{Name: name + "*", To: "embedding"}, job.TableMapping{Name: "*", To: "skip"})
	r, err := job.Import(t.Context(), cfg, job.ImportOptions{From: from, Mapping: mapping})
	if err != nil {
		t.Fatal(err)
	}
	want := entriesOf(t, from, func(file string) bool { return strings.HasPrefix(file, name) })
	if len(want) == 0 || r.Rows != int64(len(want)) || len(r.Tables[0].Restarted) != 0 || len(r.Skipped) != 1 {
		t.Errorf("%d entries: %+v", len(want), r)
	}
	to := filepath.Join(t.TempDir(), "model")
	if _, err := job.Export(t.Context(), job.ExportOptions{Snapshot: cfg.Dir, To: to}); err != nil {
		t.Fatal(err)
	}
	if got := entriesOf(t, to, func(string) bool { return true }); !maps.Equal(got, want) {
		t.Errorf("%d entries are exported, %d were imported, or they differ", len(got), len(want))
	}
	trained, err := job.Run(t.Context(), cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rows, _ := inTables(t, trained.Snapshot, false)
	for id := range want {
		if _, ok := rows["embedding"][id]; !ok {
			t.Errorf("row %d is gone after training", id)
		}
	}
}

// TestExportImport: whatever files a snapshot is exported to, importing them gives the same rows, with state, times and counts, and the same
// dense weights.
func TestExportImport(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	info, err := job.InspectSnapshot(t.Context(), cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := inTables(t, info.Path, true)
	for _, tc := range []struct {
		name   string
		o      job.ExportOptions
		files  int
		shards string
	}{
		{"single", job.ExportOptions{}, 2, "1"},
		{"shards and servers", job.ExportOptions{Shards: 3, Servers: 2, Step: 77}, 12, "3"},
		{"multi", job.ExportOptions{Multi: "MonolithMultiHashTable", Shards: 2}, 4, "5"},
		{"multi of servers", job.ExportOptions{Multi: "M", Servers: 3, Names: map[string]string{"users": "u"}}, 6, "1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := tc.o
			o.Snapshot, o.To = info.Path, filepath.Join(t.TempDir(), "model")
			x, err := job.Export(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(x.Assets)
			if err != nil || len(entries) != tc.files {
				t.Errorf("%d files, %v", len(entries), err)
			}
			if _, err := job.Export(t.Context(), o); !errors.Is(err, pipeline.ErrConfig) {
				t.Errorf("exported over what is there: %v", err)
			}
			other, err := job.Decode(cfg.Raw().Text, "tables.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(t.TempDir(), "run"), "ps.shards=" + tc.shards}})
			if err != nil {
				t.Fatal(err)
			}
			r, err := job.Import(t.Context(), other, job.ImportOptions{From: o.To, Memory: 64 << 10})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Skipped) > 0 || len(r.DenseInitial) > 0 || r.Step != max(o.Step, 1) {
				t.Errorf("%+v", r)
			}
			for _, table := range r.Tables {
				if len(table.Restarted) > 0 || table.Twice > 0 {
					t.Errorf("%+v", table)
				}
			}
			got, made := inTables(t, r.Snapshot, true)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("the rows are not those that were exported")
			}
			if made.Digest != r.Digest || fmt.Sprint(made.Shards) != tc.shards {
				t.Errorf("digest %s, said %s; %d shards", made.Digest, r.Digest, made.Shards)
			}
			if was, is := denseOf(t, info.Path), denseOf(t, r.Snapshot); !maps.Equal(was, is) {
				t.Errorf("dense weights are %v, were %v", is, was)
			}
		})
	}
}

// denseOf are the bits of the dense weights, by tensor.
func denseOf(t *testing.T, path string) map[string]string {
	t.Helper()
	s, err := snapshot.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	tensors, err := s.Tensors()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, d := range tensors {
		out[d.Name] = bitsOf(d.Weights)
	}
	return out
}

// TestImportContinues: a model that was trained, exported and imported continues with the bits of the one that continued by itself. Positions are
// not in a checkpoint, so both continue with another stream; the state of dense optimizers is not either, so theirs has none.
func TestImportContinues(t *testing.T) {
	t.Parallel()
	const text = `
version: 1
name: stream
deterministic: true
source: {synthetic: {examples: 6000, seed: 3}}
source_name: first
parse:
  features: [{name: user, slot: 1, table: users}, {name: item, slot: 2}, {name: category, slot: 3}, {name: price, kind: dense}]
  label: click
model: {deepfm: {dim: 8, hidden: [8]}}
tables: [{name: users, sparse: {adam: {lr: 0.01}}, bias: adam}]
optimizer: {dense: {sgd: {lr: 0.05}}, sparse: adagrad, bias: ftrl, intercept: dense}
ps: {shards: 2}
`
	next := []string{"source.synthetic.seed=4", "source_name=second"}
	run := func(t *testing.T, dir string, set ...string) string {
		t.Helper()
		cfg, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{Set: append(set, "dir="+dir)})
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Run(t.Context(), cfg, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Snapshot
	}
	for _, durability := range []string{"none", "wal"} {
		t.Run(durability, func(t *testing.T) {
			t.Parallel()
			was, is, model := filepath.Join(t.TempDir(), "was"), filepath.Join(t.TempDir(), "is"), filepath.Join(t.TempDir(), "model")
			set := append(slices.Clone(next), "ps.durability="+durability)
			run(t, was, "ps.durability="+durability)
			if _, err := job.Export(t.Context(), job.ExportOptions{Snapshot: was, To: model, Servers: 2}); err != nil {
				t.Fatal(err)
			}
			want := run(t, was, set...)
			cfg, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{Set: append(slices.Clone(set), "dir="+is)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := job.Import(t.Context(), cfg, job.ImportOptions{From: model}); err != nil {
				t.Fatal(err)
			}
			got := run(t, is, set...)
			rows, _ := inTables(t, got, true)
			wantRows, _ := inTables(t, want, true)
			if !reflect.DeepEqual(rows, wantRows) {
				t.Errorf("rows differ")
			}
			if a, b := denseOf(t, got), denseOf(t, want); !maps.Equal(a, b) {
				t.Errorf("dense weights are %v, want %v", a, b)
			}
			if _, err := job.Import(t.Context(), cfg, job.ImportOptions{From: model}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "has snapshots already") {
				t.Errorf("imported over a job's own snapshots: %v", err)
			}
		})
	}
}

// TestExportIncremental: what is exported of a snapshot that holds only what has changed is all of the rows.
func TestExportIncremental(t *testing.T) {
	t.Parallel()
	cfg, err := job.Decode([]byte(importJob), "job.yaml", job.LoadOptions{Set: []string{
		"dir=" + filepath.Join(t.TempDir(), "run"), "snapshot.incremental=4", "epochs=3",
		"eval.source.synthetic.held_out=2000", "eval.source.synthetic.examples=200", "train.early_stop.patience=3",
	}})
	if err != nil {
		t.Fatal(err)
	}
	dir, rows := filepath.Join(t.TempDir(), "assets"), make([]entrydump.Entry, 9000) // of which most are not trained
	for i := range rows {
		rows[i] = entrydump.Entry{ID: 1<<48 | 1<<40 | int64(i), Num: make([]float32, 33)}
	}
	writeTables(t, dir, map[string][]entrydump.Entry{"T": rows})
	if _, err := job.Import(t.Context(), cfg, job.ImportOptions{From: dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	path, err := job.InspectSnapshot(t.Context(), cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	want, info := inTables(t, path.Path, true)
	if info.Base == nil {
		t.Fatalf("%s is whole", info.Path)
	}
	to := filepath.Join(t.TempDir(), "model")
	x, err := job.Export(t.Context(), job.ExportOptions{Snapshot: cfg.Dir, To: to})
	if err != nil {
		t.Fatal(err)
	}
	r, err := job.Import(t.Context(), smallJob(t, importJob), job.ImportOptions{From: to})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := inTables(t, r.Snapshot, true); !reflect.DeepEqual(got, want) || x.Rows != int64(len(want["embedding"])) {
		t.Errorf("%d rows are exported of %d, or they differ", x.Rows, len(want["embedding"]))
	}
}

// writeTables writes a checkpoint of one shard a table.
func writeTables(t *testing.T, dir string, tables map[string][]entrydump.Entry) {
	t.Helper()
	for name, entries := range tables {
		w, err := entrydump.Create(t.Context(), fsx.Local{}, dir, entrydump.File{Name: name, Shards: 1}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range entries {
			if err := w.Write(&entries[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Commit(t.Context()), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func dump(k entrydump.Kind, scalars [2]float32, vectors ...[]float32) entrydump.Dump {
	d := entrydump.Dump{Kind: k, Scalars: scalars}
	copy(d.Vectors[:], vectors)
	return d
}

// TestImportRows: where rows go, what of them starts over, and what is left out and why.
func TestImportRows(t *testing.T) {
	t.Parallel()
	const text = `
version: 1
name: rows
source: {synthetic: {examples: 2000}}
parse:
  features: [{name: user, slot: 1, table: users}, {name: item, slot: 2}, {name: category, slot: 3}]
  label: click
model: {deepfm: {dim: 2, hidden: [4]}}
tables: [{name: users, sparse: {adam: {beta1: 0.9, beta2: 0.99}}, bias: sgd}]
optimizer: {sparse: adagrad, bias: ftrl}
`
	nan := float32(math.NaN())
	none := [2]float32{nan, nan}
	adam := func(p1, p2 float32) []entrydump.Dump {
		return []entrydump.Dump{dump(entrydump.SGD, none), dump(entrydump.Adam, [2]float32{p1, p2}, []float32{1, 2}, []float32{3, 4})}
	}
	usual := func(id int64) entrydump.Entry {
		return entrydump.Entry{ID: id, Num: []float32{1, 2, 3}, HasOpt: true, HasTime: true, Time: 1000, Opt: []entrydump.Dump{
			dump(entrydump.FTRL, none, []float32{0.5}, []float32{0.25}), dump(entrydump.Adagrad, none, []float32{5, 6}),
		}}
	}
	with := func(e entrydump.Entry, change func(*entrydump.Entry)) entrydump.Entry {
		change(&e)
		return e
	}
	id := func(slot int, sig uint64) int64 {
		f, err := fid.New(slot, sig)
		if err != nil {
			t.Fatal(err)
		}
		return int64(f)
	}
	// What Adam keeps after three updates, by its own code.
	rule := optim.Adam{Beta1: 0.9, Beta2: 0.99}
	three := make([]float32, rule.StateDim(2))
	p1, p2 := float32(0.9), float32(0.99)
	for range 3 {
		rule.Update(make([]float32, 2), three, []float32{1, 1}, 1)
		p1, p2 = p1*0.9, p2*0.99
	}
	for _, tc := range []struct {
		name      string
		tables    map[string][]entrydump.Entry
		mapping   string
		rows      map[string]map[int64]string // weights and state, by table and id
		restarted string                      // of all tables
		skipped   string
		err       string
	}{
		{
			name:   "by slots",
			tables: map[string][]entrydump.Entry{"a": {usual(id(2, 7)), usual(id(3, 7)), usual(id(9, 7))}, "b": {{ID: id(1, 5), Num: []float32{7, 8, 9}, HasOpt: true, Opt: adam(p1, p2)}}},
			rows: map[string]map[int64]string{
				"embedding": {id(2, 7): bitsOf([]float32{1, 2, 3, 0.25, 0.5, 5, 6}), id(3, 7): bitsOf([]float32{1, 2, 3, 0.25, 0.5, 5, 6})},
				"users":     {id(1, 5): bitsOf([]float32{7, 8, 9, 1, 2, 3, 4}, three[4:])},
			},
			skipped: "1 slot 9 is of no sparse feature",
		},
		{
			name:   "other slots",
			tables: map[string][]entrydump.Entry{"a": {usual(id(9, 7)), usual(id(8, 7)), usual(id(7, 7))}}, mapping: "slots: [{from: 9, to: item}, {from: 8, to: '3'}, {from: 7, to: skip}]",
			rows:    map[string]map[int64]string{"embedding": {id(2, 7): bitsOf([]float32{1, 2, 3, 0.25, 0.5, 5, 6}), id(3, 7): bitsOf([]float32{1, 2, 3, 0.25, 0.5, 5, 6})}},
			skipped: "1 the mapping skips slot 7",
		},
		{
			name:   "v1",
			tables: map[string][]entrydump.Entry{"a": {usual(2<<54 | 1<<50 | 7), usual(3<<54 | 7), usual(math.MinInt64)}}, mapping: "fids: v1",
			rows:    map[string]map[int64]string{"embedding": {id(2, 7): bitsOf([]float32{1, 2, 3, 0.25, 0.5, 5, 6}), id(3, 7): bitsOf([]float32{1, 2, 3, 0.25, 0.5, 5, 6})}},
			skipped: "1 slot 512 is of no sparse feature",
		},
		{
			name:   "no slot, into a table",
			tables: map[string][]entrydump.Entry{"a_0": {usual(-3), usual(4)}, "b": {usual(5)}}, mapping: "tables: [{name: 'a_*', to: embedding}, {name: b, to: skip}]",
			rows:    map[string]map[int64]string{"embedding": {-3: bitsOf([]float32{1, 2, 3, 0.25, 0.5, 5, 6}), 4: bitsOf([]float32{1, 2, 3, 0.25, 0.5, 5, 6})}},
			skipped: "1 the mapping skips the table",
		},
		{
			name: "segments",
			tables: map[string][]entrydump.Entry{"a": {{ID: id(2, 7), Num: []float32{2, 3, 90, 91, 1}, HasOpt: true, Opt: []entrydump.Dump{
				dump(entrydump.Adagrad, none, []float32{5, 6}), dump(entrydump.SGD, none), dump(entrydump.FTRL, none, []float32{0.5}, []float32{0.25}),
			}}}},
			mapping: "tables: [{name: a, segments: [vec, 'skip:2', bias]}]",
			rows:    map[string]map[int64]string{"embedding": {id(2, 7): bitsOf([]float32{1, 2, 3, 0.25, 0.5, 5, 6})}},
		},
		{
			name:      "a segment that is not there",
			tables:    map[string][]entrydump.Entry{"a": {{ID: id(2, 7), Num: []float32{2, 3}, HasOpt: true, Opt: []entrydump.Dump{dump(entrydump.Adagrad, none, []float32{5, 6})}}}},
			mapping:   "tables: [{name: a, segments: [vec]}]",
			rows:      map[string]map[int64]string{"embedding": {id(2, 7): bitsOf([]float32{0, 2, 3, 1e-6, 0, 5, 6})}},
			restarted: "1 weights of bias: the mapping does not name the segment",
		},
		{
			name: "the newer one counts",
			tables: map[string][]entrydump.Entry{
				"a": {usual(id(2, 7)), with(usual(id(2, 8)), func(e *entrydump.Entry) { e.Time, e.Num = 2000, []float32{4, 4, 4} })},
				"b": {with(usual(id(2, 7)), func(e *entrydump.Entry) { e.Num = []float32{9, 9, 9} }), usual(id(2, 8))},
			},
			rows: map[string]map[int64]string{"embedding": {
				id(2, 7): bitsOf([]float32{9, 9, 9, 0.25, 0.5, 5, 6}), id(2, 8): bitsOf([]float32{4, 4, 4, 0.25, 0.5, 5, 6}),
			}},
		},
		{
			name: "state that cannot be taken",
			tables: map[string][]entrydump.Entry{"a": {
				with(usual(id(2, 1)), func(e *entrydump.Entry) { e.HasOpt, e.Opt = false, nil }),
				with(usual(id(2, 2)), func(e *entrydump.Entry) { e.Opt[1] = dump(entrydump.SGD, none) }),
				with(usual(id(2, 3)), func(e *entrydump.Entry) { e.Opt[1].Vectors[0] = []float32{5} }),
				with(usual(id(2, 4)), func(e *entrydump.Entry) { e.Opt[1].Vectors[0] = []float32{5, 0} }),
				with(usual(id(2, 5)), func(e *entrydump.Entry) { e.Opt = e.Opt[:1] }),
				with(usual(id(2, 6)), func(e *entrydump.Entry) { e.Num = []float32{1, nan, 3} }),
				with(usual(id(2, 7)), func(e *entrydump.Entry) { e.Num = []float32{1, 2} }),
			}, "b": {{ID: id(1, 5), Num: []float32{7, 8, 9}, HasOpt: true, Opt: adam(p2, 0.3)}}},
			rows: map[string]map[int64]string{
				"embedding": {
					id(2, 1): bitsOf([]float32{1, 2, 3, 1e-6, 0, 1e-6, 1e-6}), id(2, 2): bitsOf([]float32{1, 2, 3, 0.25, 0.5, 1e-6, 1e-6}),
					id(2, 3): bitsOf([]float32{1, 2, 3, 0.25, 0.5, 1e-6, 1e-6}), id(2, 4): bitsOf([]float32{1, 2, 3, 0.25, 0.5, 1e-6, 1e-6}),
					id(2, 5): bitsOf([]float32{1, 2, 3, 1e-6, 0, 1e-6, 1e-6}),
				},
				"users": {id(1, 5): bitsOf([]float32{7, 8, 9, 1, 2, 3, 4, 1, 1})},
			},
			restarted: "1 state of bias: the checkpoint has no state of it; 1 state of bias: the row has state of 1 segments, and is made of 2; " +
				"1 state of vec: it has 1 numbers for 2 weights; 1 state of vec: its powers of beta1 and beta2; 1 state of vec: its sum of squares is not above 0; " +
				"1 state of vec: the checkpoint has no state of it; 1 state of vec: the checkpoint's rule is sgd, the job's adagrad; 1 state of vec: the row has state of 1 segments",
			skipped: "1 a row of a has 2 numbers, table embedding is made of 3; 1 its weights are not finite",
		},
		{name: "nothing fits", tables: map[string][]entrydump.Entry{"a": {usual(id(9, 7))}}, err: "slot 9 is of no sparse feature"},
		{name: "no rows", tables: map[string][]entrydump.Entry{"a": nil}, err: "its tables have no rows"},
		{name: "no such table", mapping: "tables: [{name: a, to: embeding}]", err: `"embeding", no table of the job`},
		{name: "no such segment", mapping: "tables: [{name: a, to: users, segments: [vek]}]", err: `no segment "vek"`},
		{name: "a segment twice", mapping: "tables: [{name: a, to: users, segments: [vec, vec]}]", err: "named twice"},
		{name: "no such slot", mapping: "slots: [{from: 1, to: usr}]", err: `"usr", neither a sparse feature`},
		{name: "no such pattern", mapping: "tables: [{name: '[', to: users}]", err: "is the pattern"},
		{name: "no variables", mapping: "dense: [{name: a, to: b}]", err: "no checkpoint of variables"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg, dir := smallJob(t, text), filepath.Join(t.TempDir(), "model.ckpt-5.assets")
			if tc.tables == nil {
				tc.tables = map[string][]entrydump.Entry{"a": {usual(id(2, 7))}}
			}
			writeTables(t, dir, tc.tables)
			o := job.ImportOptions{From: dir}
			if tc.mapping != "" {
				path := filepath.Join(t.TempDir(), "mapping.yaml")
				if err := os.WriteFile(path, []byte("version: 1\n"+tc.mapping+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				m, err := job.ReadMapping(path)
				if err != nil {
					t.Fatal(err)
				}
				o.Mapping = m
			}
			dry := o
			dry.DryRun = true
			planned, dryErr := job.Import(t.Context(), cfg, dry)
			r, err := job.Import(t.Context(), cfg, o)
			if tc.err != "" {
				for _, err := range []error{err, dryErr} {
					if !errors.Is(err, pipeline.ErrConfig) && !strings.Contains(fmt.Sprint(err), "no checkpoint") || !strings.Contains(fmt.Sprint(err), tc.err) {
						t.Errorf("got %v, want %q", err, tc.err)
					}
				}
				if left, err := os.ReadDir(filepath.Join(cfg.Dir, "snapshots")); err == nil && len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
				return
			}
			if err != nil || dryErr != nil {
				t.Fatal(err, dryErr)
			}
			if planned.Snapshot != "" || !reflect.DeepEqual(planned.Skipped, r.Skipped) || planned.Entries != r.Entries {
				t.Errorf("a dry run says %+v, the import %+v", planned, r)
			}
			got, _ := inTables(t, r.Snapshot, true)
			for name, rows := range got {
				for id, p := range rows {
					if want := tc.rows[name][id]; p.bits != want {
						t.Errorf("table %s, row %s: got %s, want %s", name, fid.ID(id), p.bits, want)
					}
				}
				if len(rows) != len(tc.rows[name]) {
					t.Errorf("table %s has %d rows, want %d", name, len(rows), len(tc.rows[name]))
				}
			}
			var restarted []string
			for _, table := range r.Tables {
				for _, c := range table.Restarted {
					restarted = append(restarted, fmt.Sprintf("%d %s", c.Rows, c.What))
				}
			}
			begins(t, "starts over", restarted, tc.restarted)
			var skipped []string
			for _, c := range r.Skipped {
				skipped = append(skipped, fmt.Sprintf("%d %s", c.Rows, c.What))
			}
			begins(t, "left out", skipped, tc.skipped)
		})
	}
}

// begins compares lines with what each begins with.
func begins(t *testing.T, what string, got []string, want string) {
	t.Helper()
	slices.Sort(got)
	var wants []string
	if want != "" {
		wants = strings.Split(want, "; ")
	}
	if len(got) != len(wants) {
		t.Errorf("%s: %q, want %q", what, got, wants)
		return
	}
	for i := range got {
		if !strings.HasPrefix(got[i], wants[i]) {
			t.Errorf("%s: %q, want %q", what, got[i], wants[i])
		}
	}
}

// TestTimesAndCounts: a row of upstream's has whole seconds and counts as one update; one of ours has what it had.
func TestTimesAndCounts(t *testing.T) {
	t.Parallel()
	cfg, dir, to := smallJob(t, importJob), filepath.Join(t.TempDir(), "assets"), filepath.Join(t.TempDir(), "model")
	num := make([]float32, 33)
	writeTables(t, dir, map[string][]entrydump.Entry{"T": {
		{ID: 1 << 48, Num: num, HasTime: true, Time: 1_700_000_000},
		{ID: 1<<48 + 1, Num: num, HasTime: true, Time: 1_700_000_000, Micros: 123_456, Count: 42},
		{ID: 1<<48 + 2, Num: num},
		{ID: 1<<48 + 3, Num: num, HasTime: true, Time: math.MaxInt64},
	}})
	for _, step := range []string{"upstream's", "ours"} {
		r, err := job.Import(t.Context(), cfg, job.ImportOptions{From: dir})
		if err != nil {
			t.Fatal(err)
		}
		rows, _ := inTables(t, r.Snapshot, false)
		for id, want := range map[int64]parameters{
			0: {time: 1_700_000_000_000_000, count: 1}, 1: {time: 1_700_000_000_123_456, count: 42}, 2: {count: 1}, 3: {count: 1},
		} {
			if got := rows["embedding"][1<<48+id]; got.time != want.time || got.count != want.count {
				t.Errorf("%s: row %d has time %d and count %d, want %d and %d", step, id, got.time, got.count, want.time, want.count)
			}
		}
		if _, err := job.Export(t.Context(), job.ExportOptions{Snapshot: r.Snapshot, To: to}); step == "ours" {
			if !errors.Is(err, pipeline.ErrConfig) {
				t.Errorf("exported over what is there: %v", err)
			}
		} else if err != nil {
			t.Fatal(err)
		}
		cfg, dir = smallJob(t, importJob), to
	}
	served := filepath.Join(t.TempDir(), "served")
	if _, err := job.Export(t.Context(), job.ExportOptions{Snapshot: cfg.Dir, To: served, Serving: true}); err == nil || !strings.Contains(err.Error(), "no snapshot in") {
		t.Errorf("exported what is not there: %v", err)
	}
	if _, err := job.Import(t.Context(), cfg, job.ImportOptions{From: to}); err != nil {
		t.Fatal(err)
	}
	if _, err := job.Export(t.Context(), job.ExportOptions{Snapshot: cfg.Dir, To: served, Serving: true}); err != nil {
		t.Fatal(err)
	}
	want := entrydump.Entry{Num: num}
	for id, got := range entriesOf(t, served, func(string) bool { return true }) {
		if want.ID = id; got != string(want.Append(nil)) {
			t.Errorf("row %d for serving is %x", id, got)
		}
	}
}

// TestImportDamaged: of a damaged checkpoint nothing is left, and the error has file and place.
func TestImportDamaged(t *testing.T) {
	t.Parallel()
	cfg, dir := smallJob(t, importJob), filepath.Join(t.TempDir(), "assets")
	writeTables(t, dir, map[string][]entrydump.Entry{"T": {{ID: 1 << 48, Num: make([]float32, 33)}, {ID: 1<<48 + 1, Num: make([]float32, 33)}}})
	path := filepath.Join(dir, "T-00000-of-00001")
	b, err := os.ReadFile(path)
	if err == nil {
		b[len(b)-20] ^= 1
		err = os.WriteFile(path, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = job.Import(t.Context(), cfg, job.ImportOptions{From: filepath.Dir(dir)})
	if !errors.Is(err, entrydump.ErrDamaged) || !strings.Contains(err.Error(), path+": record 1 at byte") {
		t.Errorf("got %v", err)
	}
	err = filepath.WalkDir(cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) != ".lock" && filepath.Base(path) != "lock" {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestImportStorage: a table that keeps vectors in 16 bits takes the nearest, and gives them and the state of the rule back.
func TestImportStorage(t *testing.T) {
	t.Parallel()
	cfg := smallJob(t, importJob+"ps: {storage: bf16}\n")
	dir, to := filepath.Join(t.TempDir(), "assets"), filepath.Join(t.TempDir(), "model")
	e := entrydump.Entry{ID: 1 << 48, Num: make([]float32, 33), HasOpt: true, HasTime: true, Time: 7, Opt: []entrydump.Dump{
		dump(entrydump.FTRL, [2]float32{}, []float32{0.5}, []float32{0.25}), dump(entrydump.SGD, [2]float32{}),
	}}
	for i := range e.Num {
		e.Num[i] = 1 + float32(i)/1000
	}
	writeTables(t, dir, map[string][]entrydump.Entry{"T": {e}})
	r, err := job.Import(t.Context(), cfg, job.ImportOptions{From: dir})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Tables[0].Restarted) > 0 {
		t.Errorf("%+v", r.Tables[0])
	}
	if x, err := job.Export(t.Context(), job.ExportOptions{Snapshot: cfg.Dir, To: to}); err != nil || len(x.Tables[0].Restarted) > 0 {
		t.Fatalf("%+v, %v", x, err)
	}
	got := entriesOf(t, to, func(string) bool { return true })[e.ID]
	rounded, first := slices.Clone(e.Num), e.Num[0]
	optim.BF16.Round(rounded)
	if slices.Equal(rounded, e.Num) {
		t.Fatal("the numbers are of 16 bits already")
	}
	for _, e.Num = range [][]float32{rounded, append([]float32{first}, rounded[1:]...)} { // the weight alone may be whole
		if got == string(e.Append(nil)) {
			return
		}
	}
	t.Errorf("given back it is %x", got)
}
