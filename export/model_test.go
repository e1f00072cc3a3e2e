package export_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// text is a job of two tables on three shards, one of which keeps 16 bits and is read compressed.
const text = `
version: 1
name: clicks
source: {synthetic: {examples: 8000, splits: 2}}
parse:
  features:
    - {name: user, slot: 1, table: users}
    - {name: item, slot: 2}
    - {name: price, kind: dense}
  label: click
model: {deepfm: {dim: 4, hidden: [8]}}
tables: [{name: users, storage: fp16, compress: {kind: fixed_r8, range: 0.5}}]
ps: {shards: 3}
`

// train trains a job and returns its newest snapshot.
func train(t *testing.T, set ...string) *snapshot.Info {
	t.Helper()
	cfg, err := job.Decode([]byte(text), "clicks.yaml", job.LoadOptions{Set: append(set, "dir="+filepath.Join(t.TempDir(), "run"))})
	if err != nil {
		t.Fatal(err)
	}
	trained, err := job.Run(t.Context(), cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := snapshot.ReadInfo(trained.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestModel: a model has the graph, dense weights, rows and initial values that the shards have which are given its snapshot.
func TestModel(t *testing.T) {
	t.Parallel()
	info := train(t)
	m, err := export.Open(t.Context(), info.Path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := graph.Unmarshal(info.Model.Graph)
	if err != nil {
		t.Fatal(err)
	}
	if !graph.Equal(m.Graph, want) || m.Kind != "deepfm" || m.From.Job != "clicks" || m.From.Snapshot != info.ID || m.From.Examples != 8000 || m.From.Kernels == "" || string(m.Recipe) != string(info.Recipe) {
		t.Errorf("a %s of %+v with the recipe %s", m.Kind, m.From, m.Recipe)
	}
	if got := export.Slots(m.Recipe); len(got) != 2 || got["user"] != 1 || got["item"] != 2 {
		t.Errorf("slots are %v", got)
	}
	l := m.Graph.Layout()
	shards, err := coordinator.Open(t.Context(), coordinator.Options{Layout: l, NumShards: 2, Restore: info.Path, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := shards.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	client, err := shards.Client(t.Context(), "reader")
	if err != nil {
		t.Fatal(err)
	}
	dense := make([]float32, l.DenseLen())
	if _, err := client.Dense(t.Context(), 0, dense); err != nil || !slices.Equal(dense, m.Dense) {
		t.Errorf("dense weights are others, %v", err)
	}
	for i, tbl := range l.Tables {
		dim, last, n := tbl.Dim(), uint64(0), int64(0)
		lookup := func(keys []int64) []float32 {
			rows := param.Rows{Keys: make([][]int64, len(l.Tables)), Values: make([][]float32, len(l.Tables))}
			rows.Keys[i], rows.Values[i] = keys, make([]float32, len(keys)*dim)
			if err := client.Lookup(t.Context(), &rows); err != nil {
				t.Fatal(err)
			}
			return rows.Values[i]
		}
		if err := m.Rows(t.Context(), i, func(rows *table.Rows) error {
			if !slices.Equal(lookup(rows.Keys), rows.Weights) {
				t.Errorf("table %s: rows have other weights than on the shards", tbl.Name)
			}
			for _, k := range rows.Keys {
				if h := table.Hash(k); n > 0 && h <= last {
					t.Fatalf("table %s: row %d is not in the order of the hashes", tbl.Name, n)
				} else {
					last = h
				}
				n++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if n != m.Tables[i].Rows || n == 0 || m.Tables[i].Name != tbl.Name {
			t.Errorf("table %s: %d rows of %+v", tbl.Name, n, m.Tables[i])
		}
		unseen := []int64{-5, 0, 1 << 60}
		got := make([]float32, len(unseen)*dim)
		for k, id := range unseen {
			m.Initial(i, id, got[k*dim:][:dim])
		}
		if want := lookup(unseen); !slices.Equal(got, want) || slices.Max(want) == 0 {
			t.Errorf("table %s: initial values are %v, those of the shards %v", tbl.Name, got, want)
		}
		served := slices.Clone(got)
		m.Compress(i, served)
		at := 0
		for _, s := range tbl.Segments {
			for k := range unseen {
				w := got[k*dim+at:][:s.Dim]
				want := slices.Clone(w)
				if s.Compressor.Kind != "" {
					s.Compressor.Read(want, w, false, 0)
				}
				if is := served[k*dim+at:][:s.Dim]; !slices.Equal(is, want) || (s.Compressor.Kind != "") == slices.Equal(is, w) {
					t.Errorf("table %s segment %s: %v is read as %v", tbl.Name, s.Name, w, is)
				}
			}
			at += s.Dim
		}
	}
}

// TestModelAsJSON: what is read back is the same model, without weights.
func TestModelAsJSON(t *testing.T) {
	t.Parallel()
	m, err := export.Open(t.Context(), train(t).Path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var back export.Model
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(&back)
	if err != nil || string(again) != string(b) || !graph.Equal(m.Graph, back.Graph) || !back.From.Created.Equal(m.From.Created) {
		t.Errorf("%v\n%s\n%s", err, b, again)
	}
	x, y := make([]float32, 5), make([]float32, 5)
	m.Initial(1, 77, x)
	back.Initial(1, 77, y)
	if !slices.Equal(x, y) {
		t.Errorf("initial values are %v, before %v", y, x)
	}
	if err := back.Rows(t.Context(), 0, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("rows of a model without a snapshot: %v", err)
	}
	for from, to := range map[string]string{`"name":"users"`: `"name":"user"`, `"version":1`: `"version":9`, `"tables":[`: `"tables":[{"name":"x"},`} {
		if err := json.Unmarshal([]byte(strings.Replace(string(b), from, to, 1)), &back); err == nil {
			t.Errorf("with %s in place of %s it is read", to, from)
		}
	}
}

// TestModelFaults: what cannot be described, with the file and what to do.
func TestModelFaults(t *testing.T) {
	t.Parallel()
	info := train(t)
	copied := func(t *testing.T) string {
		to := filepath.Join(t.TempDir(), filepath.Base(info.Path))
		if err := os.CopyFS(to, os.DirFS(info.Path)); err != nil {
			t.Fatal(err)
		}
		return to
	}
	damaged := copied(t)
	if err := os.Truncate(filepath.Join(damaged, "dense-0000.arrow"), 100); err != nil {
		t.Fatal(err)
	}
	if _, err := export.Open(t.Context(), damaged); !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "dense-0000.arrow: 100 bytes of ") {
		t.Errorf("damaged tensors: %v", err)
	}
	damaged = copied(t)
	if err := os.Remove(filepath.Join(damaged, "rows-0001-0002.arrow")); err != nil {
		t.Fatal(err)
	}
	m, err := export.Open(t.Context(), damaged)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Rows(t.Context(), 1, func(*table.Rows) error { return nil }); !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "rows-0001-0002.arrow") {
		t.Errorf("rows that are gone: %v", err)
	}
	w, err := snapshot.Create(snapshot.Options{Dir: t.TempDir(), ID: 1, Layout: &param.Layout{}, Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.Add(snapshot.NewPart(snapshot.PartOptions{Dir: w.Dir(), Layout: &param.Layout{}}).Part())
	bare, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := export.Open(t.Context(), bare.Path); !errors.Is(err, export.ErrNoGraph) {
		t.Errorf("a snapshot without a graph: %v", err)
	}
}

// TestFolder keeps tables of any name inside of the export, and apart.
func TestFolder(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, name := range []string{"embedding", ".", "..", "...", "../other", "a/b", "/", "%2E.", ".hidden", "%2F"} {
		folder := export.Folder(name)
		if filepath.Dir(filepath.Join("dir", folder)) != "dir" || seen[folder] != "" {
			t.Errorf("table %q has folder %q, and %q too", name, folder, seen[folder])
		}
		seen[folder] = name
	}
}
