package export_test

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/safetensors"
	"github.com/monolith-go/monolith/internal/testbed/readers"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/ps/table"
)

//go:embed testdata/rows.py
var rowsScript string

// wanted is what a reader is to find under a name: values in a raw file.
type wanted struct {
	Name  string  `json:"name,omitempty"`
	Shape []int64 `json:"shape"`
	File  string  `json:"file"`
}

// wantedTable is what a reader is to find of a table, sorted by ids.
type wantedTable struct {
	Name     string   `json:"name"`
	IDs      wanted   `json:"ids"`
	Segments []wanted `json:"segments"`
}

// TestReaders: pyarrow and safetensors read rows and dense tensors of exports as the snapshot has them, each bit.
func TestReaders(t *testing.T) {
	t.Parallel()
	readers.Need(t)
	info := train(t)
	m, err := export.Open(t.Context(), info.Path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	store := func(name string, values any, shape ...int64) wanted {
		w := wanted{Name: name, Shape: shape, File: filepath.Join(dir, fmt.Sprintf("%x.raw", name))}
		var b bytes.Buffer
		if err := binary.Write(&b, binary.LittleEndian, values); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(w.File, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return w
	}
	var spec struct {
		Parquet     string        `json:"parquet"`
		Arrow       string        `json:"arrow"`
		SafeTensors string        `json:"safetensors"`
		Dense       []wanted      `json:"dense"`
		Tables      []wantedTable `json:"tables"`
	}
	folders := map[string]string{}
	for _, format := range []string{"parquet", "arrow", "safetensors"} {
		r, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: info.Path, Format: format, Dir: filepath.Join(dir, format), RowsPerFile: 100})
		if err != nil {
			t.Fatal(err)
		}
		folders[format] = r.Dir
	}
	spec.Parquet, spec.Arrow, spec.SafeTensors = folders["parquet"], folders["arrow"], filepath.Join(folders["safetensors"], safetensors.Name)
	l := m.Graph.Layout()
	for i, d := range l.Dense {
		var shape []int64
		for _, n := range d.Shape {
			shape = append(shape, int64(n))
		}
		at := l.DenseOffset(i)
		spec.Dense = append(spec.Dense, store(d.Name, m.Dense[at:at+d.Len()], shape...))
	}
	rows := map[string]map[string]int64{}
	for i, tbl := range l.Tables {
		weights := map[int64][]float32{}
		var ids []int64
		if err := m.Rows(t.Context(), i, func(r *table.Rows) error {
			for k, id := range r.Keys {
				ids, weights[id] = append(ids, id), slices.Clone(r.Weights[k*tbl.Dim():][:tbl.Dim()])
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(ids)
		n := int64(len(ids))
		w := wantedTable{Name: tbl.Name, IDs: store(tbl.Name+".ids", ids, n)}
		at := 0
		for _, s := range tbl.Segments {
			var values []float32
			for _, id := range ids {
				values = append(values, weights[id][at:at+s.Dim]...)
			}
			at += s.Dim
			own := store(tbl.Name+"."+s.Name, values, n, int64(s.Dim))
			own.Name = s.Name
			w.Segments = append(w.Segments, own)
		}
		spec.Tables = append(spec.Tables, w)
		rows[tbl.Name] = map[string]int64{"parquet": n, "arrow": n, "safetensors": n}
	}
	b, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "spec.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Kind string
		Rows map[string]map[string]int64
	}
	if err := json.Unmarshal(readers.Run(t, rowsScript, file), &got); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.Rows) != fmt.Sprint(rows) || got.Kind != m.Kind {
		t.Errorf("readers find a %s with rows %v, want %v", got.Kind, got.Rows, rows)
	}
}
