package savedmodel_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/exporttest"
	"github.com/monolith-go/monolith/export/forward"
	"github.com/monolith-go/monolith/export/savedmodel"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/protofield"
	"github.com/monolith-go/monolith/internal/tfbundle"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/ps/table"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file")

func even(i int) bool { return i%2 == 0 }

func write(t *testing.T, m *export.Model) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "1")
	if err := (savedmodel.Format{}).Write(t.Context(), m, export.Target{FS: fsx.Local{}, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestGolden holds the structure of the file: every operator with its inputs, the signatures and the variables.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]*graph.Graph{"deepfm": exporttest.Small(t), "sequence": exporttest.Sequence(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden(t, name, exporttest.Stored(t, g, 30, even))
		})
	}
}

func golden(t *testing.T, name string, m *export.Model) {
	t.Helper()
	dir := write(t, m)
	b, err := os.ReadFile(filepath.Join(dir, "saved_model.pb"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(filepath.Join(write(t, m), "saved_model.pb"))
	if err != nil || string(again) != string(b) {
		t.Errorf("equal models are other bytes: %v", err)
	}
	got := describe(t, b, "saved_model", map[string][]string{
		"saved_model": {1: "version", 2: "meta_graph"}, "meta_graph": {1: "info", 2: "graph", 3: "saver", 5: "signature"},
		"info": {4: "tag", 5: "tensorflow"}, "graph": {1: "node", 4: "versions"}, "saver": {1: "file", 2: "save", 3: "restore", 7: "version"},
		"versions": {1: "producer"}, "node": {1: "name", 2: "op", 3: "input"}, "signature": {1: "name", 2: "definition"},
		"definition": {1: "inputs", 2: "outputs", 3: "method"}, "inputs": {1: "key", 2: "tensor"}, "outputs": {1: "key", 2: "tensor"}, "tensor": {1: "name", 2: "dtype", 3: "shape"},
		"shape": {2: "dim"}, "dim": {1: "size"},
	})
	bundle, err := tfbundle.Open(t.Context(), fsx.Local{}, filepath.Join(dir, "variables", "variables"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range bundle.Tensors() {
		got += fmt.Sprintf("variable %s %d %v\n", v.Name, v.Type, v.Shape)
	}
	path := filepath.Join("testdata", name+".golden")
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

// describe renders a message: messages whose fields have names are lines, what they hold is on the line.
func describe(t *testing.T, b []byte, kind string, names map[string][]string) string {
	t.Helper()
	var out strings.Builder
	block := slices.Contains([]string{"saved_model", "meta_graph", "graph"}, kind)
	if err := protofield.Each(b, func(num protowire.Number, typ protowire.Type, v []byte, n uint64) error {
		if int(num) >= len(names[kind]) || names[kind][num] == "" {
			return nil
		}
		name := names[kind][num]
		switch {
		case names[name] != nil && (name == "meta_graph" || name == "graph"):
			out.WriteString(describe(t, v, name, names))
		case names[name] != nil:
			fmt.Fprintf(&out, "%s{%s}", name, strings.TrimSpace(describe(t, v, name, names)))
		case typ == protowire.BytesType:
			fmt.Fprintf(&out, "%s=%s ", name, v)
		default:
			fmt.Fprintf(&out, "%s=%d ", name, int64(n))
		}
		if block && name != "meta_graph" && name != "graph" {
			out.WriteByte('\n')
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestVariables: variables have the weights, ids and rows of the model, and behind the rows the one of ids that have none.
func TestVariables(t *testing.T) {
	t.Parallel()
	m := exporttest.Stored(t, exporttest.EveryOperator(t), 30, even)
	dir := write(t, m)
	bundle, err := tfbundle.Open(t.Context(), fsx.Local{}, filepath.Join(dir, "variables", "variables"))
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, d := range m.Graph.Layout().Dense {
		got, err := bundle.Float32(t.Context(), "dense/"+d.Name)
		if err != nil || !slices.Equal(got, m.Dense[at:at+d.Len()]) {
			t.Errorf("%s: %v, other weights", d.Name, err)
		}
		at += d.Len()
	}
	for i, tbl := range m.Graph.Layout().Tables {
		var ids []int64
		var rows []float32
		if err := m.Rows(t.Context(), i, func(r *table.Rows) error {
			ids, rows = append(ids, r.Keys...), append(rows, r.Weights...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		gotIDs, err := bundle.Int64(t.Context(), "tables/"+tbl.Name+"/ids")
		if err != nil || !slices.Equal(gotIDs, ids) || len(ids) != 15 {
			t.Errorf("table %s: ids %v, want %v, %v", tbl.Name, gotIDs, ids, err)
		}
		got, err := bundle.Float32(t.Context(), "tables/"+tbl.Name+"/rows")
		if want := append(rows, forward.Spare(&m.Graph.Layout().Tables[i])...); err != nil || !slices.Equal(got, want) {
			t.Errorf("table %s: %d numbers of rows, want %d, %v", tbl.Name, len(got), len(want), err)
		}
	}
	if got := forward.Spare(&m.Graph.Layout().Tables[2]); !slices.Equal(got, []float32{.5, .5, .5}) {
		t.Errorf("rows that begin alike begin with %v", got)
	}
}

// TestTooLarge: what a server could not hold is refused before a row is read.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	m := exporttest.Stored(t, exporttest.EveryOperator(t), 1, even)
	m.Tables[0].Rows = savedmodel.MaxBytes / 84 // 9 numbers, and 48 bytes
	if err := (savedmodel.Format{}).Check(m); !errors.Is(err, savedmodel.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	m.Tables[0].Rows -= 100
	if err := (savedmodel.Format{}).Check(m); err != nil {
		t.Errorf("below the limit: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "1")
	if err := (savedmodel.Format{}).Write(t.Context(), m, export.Target{FS: fsx.Local{}, Dir: dir}); err == nil || !strings.Contains(err.Error(), `variable "tables/first/ids"`) {
		t.Errorf("rows that are not all there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "saved_model.pb")); err == nil {
		t.Error("there is a saved_model.pb without all variables")
	}
}
