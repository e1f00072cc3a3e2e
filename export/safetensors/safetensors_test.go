package safetensors_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/safetensors"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/ps/table"
)

const text = `
version: 1
name: clicks
source: {synthetic: {examples: 6000}}
parse:
  features:
    - {name: user, slot: 1, table: users}
    - {name: item, slot: 2}
    - {name: price, kind: dense}
  label: click
model: {deepfm: {dim: 4, hidden: [8]}}
ps: {shards: 3}
`

func train(t *testing.T) *export.Model {
	t.Helper()
	cfg, err := job.Decode([]byte(text), "clicks.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(t.TempDir(), "run")}})
	if err != nil {
		t.Fatal(err)
	}
	trained, err := job.Run(t.Context(), cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := export.Open(t.Context(), trained.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

type tensor struct {
	Dtype string
	Shape []int
	Data  []int `json:"data_offsets"`
}

// read reads a file as its specification says, and checks what readers check: tensors lie one after the other, without holes, to the end.
func read(t *testing.T, path string) (meta map[string]string, header map[string]tensor, data []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(b)
	if n%8 != 0 || b[8] != '{' {
		t.Errorf("a header of %d bytes that begins with %q", n, b[8])
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+n], &all); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(all["__metadata__"], &meta); err != nil {
		t.Fatal(err)
	}
	delete(all, "__metadata__")
	header, data = map[string]tensor{}, b[8+n:]
	var ends, begins []int
	for name, raw := range all {
		var x tensor
		if err := json.Unmarshal(raw, &x); err != nil {
			t.Fatal(err)
		}
		size := map[string]int{"F32": 4, "I64": 8}[x.Dtype]
		if x.Data[0]%max(size, 1) != 0 {
			t.Errorf("%s begins at byte %d", name, x.Data[0])
		}
		for _, d := range x.Shape {
			size *= d
		}
		if x.Data[1]-x.Data[0] != size {
			t.Errorf("%s: %+v", name, x)
		}
		header[name] = x
		begins, ends = append(begins, x.Data[0]), append(ends, x.Data[1])
	}
	slices.Sort(begins)
	slices.Sort(ends)
	if begins[0] != 0 || ends[len(ends)-1] != len(data) || !slices.Equal(begins[1:], ends[:len(ends)-1]) {
		t.Errorf("tensors begin at %v and end at %v of %d bytes", begins, ends, len(data))
	}
	return meta, header, data
}

// TestWrite: a file has the ids and weights of all rows, the dense tensors, and the model.
func TestWrite(t *testing.T) {
	t.Parallel()
	m := train(t)
	dir, told := filepath.Join(t.TempDir(), "x"), int64(0)
	if err := (safetensors.Format{}).Check(m); err != nil {
		t.Fatal(err)
	}
	if err := (safetensors.Format{}).Write(t.Context(), m, export.Target{FS: fsx.Local{}, Dir: dir, Progress: func(n int64) { told += n }}); err != nil {
		t.Fatal(err)
	}
	meta, header, data := read(t, filepath.Join(dir, safetensors.Name))
	floats := func(name string) []float32 {
		out := make([]float32, 0)
		for b := data[header[name].Data[0]:header[name].Data[1]]; len(b) > 0; b = b[4:] {
			out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
		delete(header, name)
		return out
	}
	l, rows := m.Graph.Layout(), int64(0)
	for i, tbl := range l.Tables {
		ids := header[tbl.Name+".ids"]
		raw := data[ids.Data[0]:ids.Data[1]]
		delete(header, tbl.Name+".ids")
		var segments [][]float32
		for _, s := range tbl.Segments {
			segments = append(segments, floats(tbl.Name+"."+s.Name))
		}
		if err := m.Rows(t.Context(), i, func(r *table.Rows) error {
			for k, id := range r.Keys {
				if got := int64(binary.LittleEndian.Uint64(raw)); got != id {
					t.Fatalf("table %s: id %d, want %d", tbl.Name, got, id)
				}
				raw = raw[8:]
				var got []float32
				for j, s := range tbl.Segments {
					got, segments[j] = append(got, segments[j][:s.Dim]...), segments[j][s.Dim:]
				}
				if !slices.Equal(got, r.Weights[k*tbl.Dim():][:tbl.Dim()]) {
					t.Fatalf("table %s: id %d has the weights %v", tbl.Name, id, got)
				}
				rows++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(raw) != 0 {
			t.Errorf("table %s: %d bytes of ids are left", tbl.Name, len(raw))
		}
	}
	if rows < 500 || told != rows {
		t.Errorf("%d rows, told of %d", rows, told)
	}
	at := 0
	for _, d := range l.Dense {
		if got := floats(d.Name); !slices.Equal(got, m.Dense[at:at+d.Len()]) {
			t.Errorf("tensor %s is %v", d.Name, got)
		}
		at += d.Len()
	}
	if len(header) != 0 {
		t.Errorf("there are also %v", header)
	}
	var back export.Model
	if err := json.Unmarshal([]byte(meta["monolith"]), &back); err != nil || !graph.Equal(back.Graph, m.Graph) {
		t.Errorf("the model in the header: %v", err)
	}
}

// broken is a file system whose files cannot be written to.
type broken struct{ fsx.FS }

// Create implements [fsx.FS].
func (b broken) Create(ctx context.Context, name string) (fsx.Writer, error) {
	w, err := b.FS.Create(ctx, name)
	return brokenWriter{w}, err
}

type brokenWriter struct{ fsx.Writer }

var errFull = errors.New("full")

// Write implements [io.Writer].
func (brokenWriter) Write([]byte) (int, error) { return 0, errFull }

// TestFull: what cannot be written leaves no file.
func TestFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := (safetensors.Format{}).Write(t.Context(), train(t), export.Target{FS: broken{fsx.Local{}}, Dir: dir}); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("%v, %v", names, err)
	}
}

// TestCheck refuses tensors that would have one name.
func TestCheck(t *testing.T) {
	t.Parallel()
	m := train(t)
	m.Graph.Layout().Dense[0].Name = m.Tables[0].Name + ".ids"
	if err := (safetensors.Format{}).Check(m); err == nil {
		t.Error("two tensors of one name pass")
	}
}
