package onnx_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/exporttest"
	"github.com/monolith-go/monolith/export/forward"
	"github.com/monolith-go/monolith/export/onnx"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/protofield"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file")

func even(i int) bool { return i%2 == 0 }

func write(t *testing.T, m *export.Model) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "1")
	if err := (onnx.Format{}).Write(t.Context(), m, export.Target{FS: fsx.Local{}, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// file is what a test reads of a model.
type file struct {
	lines []string
	// outside are places and lengths in the file of data, by name.
	outside map[string][2]int64
}

func read(t *testing.T, dir string) file {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, onnx.FileName))
	if err != nil {
		t.Fatal(err)
	}
	f := file{outside: map[string][2]int64{}}
	add := func(text string, args ...any) { f.lines = append(f.lines, fmt.Sprintf(text, args...)) }
	each := func(b []byte, do func(num protowire.Number, v []byte, n int64)) {
		if err := protofield.Each(b, func(num protowire.Number, _ protowire.Type, v []byte, n uint64) error {
			do(num, v, int64(n))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	each(b, func(num protowire.Number, v []byte, n int64) {
		switch num {
		case 1:
			add("ir version %d", n)
		case 8:
			set, version := "", int64(0)
			each(v, func(_ protowire.Number, v []byte, n int64) {
				set, version = set+string(v), version+n
			})
			add("operators %q version %d", set, version)
		case 7:
			each(v, func(num protowire.Number, v []byte, _ int64) {
				switch num {
				case 1:
					add("%s", describeNode(each, v))
				case 5:
					name, text := f.tensor(each, v)
					if text != "" {
						add("parameter %s %s", name, text)
					}
				case 11:
					add("input %s", describeValue(each, v))
				case 12:
					add("output %s", describeValue(each, v))
				}
			})
		}
	})
	return f
}

type walk func(b []byte, do func(num protowire.Number, v []byte, n int64))

func describeNode(each walk, b []byte) string {
	var in, out []string
	op, attrs := "", ""
	each(b, func(num protowire.Number, v []byte, _ int64) {
		switch num {
		case 1:
			in = append(in, string(v))
		case 2:
			out = append(out, string(v))
		case 4:
			op = string(v)
		case 5:
			name, value := "", ""
			each(v, func(num protowire.Number, v []byte, n int64) {
				switch num {
				case 1:
					name = string(v)
				case 3:
					value = strconv.FormatInt(n, 10)
				case 4:
					value = string(v)
				case 6:
					value = "{\n"
					each(v, func(num protowire.Number, v []byte, _ int64) {
						switch num {
						case 1:
							value += "  " + describeNode(each, v) + "\n"
						case 11:
							value += "  input " + describeValue(each, v) + "\n"
						case 12:
							value += "  output " + describeValue(each, v) + "\n"
						}
					})
					value += "}"
				case 8:
					value = fmt.Sprintf("[%d bytes]", len(v))
				}
			})
			attrs += " " + name + "=" + value
		}
	})
	return fmt.Sprintf("%s = %s(%s)%s", strings.Join(out, ", "), op, strings.Join(in, ", "), attrs)
}

// tensor returns the name of a parameter and what it is, and remembers where it lies; of a constant in the graph there is nothing to say.
func (f *file) tensor(each walk, b []byte) (name, text string) {
	var dims []int64
	var where [2]int64
	each(b, func(num protowire.Number, v []byte, _ int64) {
		switch num {
		case 1:
			for len(v) > 0 {
				d, used := protowire.ConsumeVarint(v)
				dims, v = append(dims, int64(d)), v[used:]
			}
		case 8:
			name = string(v)
		case 13:
			var entry []string
			each(v, func(_ protowire.Number, v []byte, _ int64) { entry = append(entry, string(v)) })
			n, _ := strconv.ParseInt(entry[1], 10, 64) // the name of the file is none
			switch entry[0] {
			case "location":
				text = entry[1]
			case "offset":
				where[0] = n
			case "length":
				where[1] = n
			}
		}
	})
	if text != "" {
		f.outside[name] = where
		text = fmt.Sprintf("%v in %s at %d, %d bytes", dims, text, where[0], where[1])
	}
	return name, text
}

func describeValue(each walk, b []byte) string {
	text := ""
	each(b, func(num protowire.Number, v []byte, _ int64) {
		if num == 1 {
			text = string(v)
			return
		}
		each(v, func(_ protowire.Number, v []byte, _ int64) {
			each(v, func(num protowire.Number, v []byte, n int64) {
				if num == 1 {
					text += fmt.Sprintf(" type %d", n)
					return
				}
				each(v, func(_ protowire.Number, v []byte, _ int64) {
					each(v, func(num protowire.Number, v []byte, n int64) {
						if num == 1 {
							text += fmt.Sprintf(" [%d]", n)
						} else {
							text += fmt.Sprintf(" [%s]", v)
						}
					})
				})
			})
		})
	})
	return text
}

// TestGolden holds the structure of the file: every operator with its inputs and settings, inputs, outputs, and where parameters lie.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]*graph.Graph{"deepfm": exporttest.Small(t), "sequence": exporttest.Sequence(t)} {
		dir := write(t, exporttest.Stored(t, g, 30, even))
		got := strings.Join(read(t, dir).lines, "\n") + "\n"
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
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// dataFile is the file of data in a folder.
func dataFile(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.data"))
	if err != nil || len(found) != 1 {
		t.Fatalf("files of data %q: %v", found, err)
	}
	return found[0]
}

// TestDataNames: two exports have two files of data, also of as many rows and with other dense weights alone, so that one folder may have both; the same export has the same.
func TestDataNames(t *testing.T) {
	t.Parallel()
	name := func(change func(*export.Model)) string {
		m := exporttest.Stored(t, exporttest.EveryOperator(t), 30, even)
		change(m)
		return filepath.Base(dataFile(t, write(t, m)))
	}
	first := name(func(*export.Model) {})
	if again := name(func(*export.Model) {}); again != first {
		t.Errorf("the same export has the files %s and %s", first, again)
	}
	for what, change := range map[string]func(*export.Model){
		"snapshot": func(m *export.Model) { m.From.Snapshot++ },
		"time":     func(m *export.Model) { m.From.Created = m.From.Created.Add(time.Second) },
		"weights":  func(m *export.Model) { m.Dense[0]++ },
	} {
		if other := name(change); other == first {
			t.Errorf("an export of another %s has the same file %s", what, other)
		}
	}
}

// TestData: the file of data has dense weights and rows where the graph says.
func TestData(t *testing.T) {
	t.Parallel()
	m := exporttest.Stored(t, exporttest.EveryOperator(t), 30, even)
	dir := write(t, m)
	f := read(t, dir)
	b, err := os.ReadFile(dataFile(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string, want []float32) {
		t.Helper()
		where, ok := f.outside["/"+name]
		if !ok || where[0]%4096 != 0 || where[1] != int64(4*len(want)) {
			t.Errorf("%s lies at %v, %t", name, where, ok)
			return
		}
		for i, w := range want {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(b[where[0]+int64(4*i):])); got != w {
				t.Errorf("%s: number %d is %v, want %v", name, i, got, w)
				return
			}
		}
	}
	at := 0
	for _, d := range m.Graph.Layout().Dense {
		check("dense/"+d.Name, m.Dense[at:at+d.Len()])
		at += d.Len()
	}
	for i := range m.Graph.Layout().Tables {
		tbl := &m.Graph.Layout().Tables[i]
		var rows []float32
		if err := m.Rows(t.Context(), i, func(r *table.Rows) error {
			rows = append(rows, r.Weights...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		check("tables/"+tbl.Name+"/rows", append(rows, forward.Spare(tbl)...))
	}
}

// TestRowNumbers: with row numbers no node finds rows, the ids lie beside the model in the order of the rows, as NumPy has them, and there may be any number of rows.
func TestRowNumbers(t *testing.T) {
	t.Parallel()
	m := exporttest.Stored(t, exporttest.EveryOperator(t), 30, func(i int) bool { return i%3 == 0 })
	format, dir := onnx.Format{RowNumbers: true}, filepath.Join(t.TempDir(), "1")
	if err := format.Write(t.Context(), m, export.Target{FS: fsx.Local{}, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	for _, line := range read(t, dir).lines {
		if strings.Contains(line, "LabelEncoder") {
			t.Error(line)
		}
	}
	for i, tbl := range m.Tables {
		b, err := os.ReadFile(filepath.Join(dir, onnx.IDsName(tbl.Name)))
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		if err := m.Rows(t.Context(), i, func(r *table.Rows) error {
			for _, id := range r.Keys {
				want = binary.LittleEndian.AppendUint64(want, uint64(id))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		head, body := string(b[:len(b)-len(want)]), b[len(b)-len(want):]
		if !bytes.Equal(body, want) || len(want) == 0 || len(head)%64 != 0 || int(binary.LittleEndian.Uint16(b[8:])) != len(head)-10 ||
			!strings.HasPrefix(head, "\x93NUMPY\x01\x00") || !strings.HasSuffix(head, "\n") || !strings.Contains(head, fmt.Sprintf("{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }", tbl.Rows)) {
			t.Errorf("table %s: %q and %d bytes of ids, want %d", tbl.Name, head, len(body), len(want))
		}
	}
	m.Tables[1].Rows = 10 * onnx.MaxRows
	if err := format.Check(m); err != nil {
		t.Errorf("many rows: %v", err)
	}
}

// TestRefused: what ONNX has no form for is refused before a row is read.
func TestRefused(t *testing.T) {
	t.Parallel()
	m := exporttest.Stored(t, exporttest.EveryOperator(t), 1, even)
	m.Tables[1].Rows = onnx.MaxRows
	if err := (onnx.Format{}).Check(m); !errors.Is(err, onnx.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	m.Tables[1].Rows--
	m.Tables[0].Rows, m.Tables[2].Rows = 0, 0
	if err := (onnx.Format{}).Check(m); err != nil {
		t.Errorf("below the limit: %v", err)
	}
	m.Tables[1].Rows = 2
	if err := (onnx.Format{}).Write(t.Context(), m, export.Target{FS: fsx.Local{}, Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "rows, not") {
		t.Errorf("rows that are not all there: %v", err)
	}

	b := graph.NewBuilder()
	x := b.DenseFeature(model.Feature{Name: "price", Kind: model.Dense, Dim: 1})
	w := b.Tensor(param.Tensor{Name: "w", Shape: []int{1, 1}, Optimizer: optim.SGD{LR: 1}})
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "price", Loss: loss.Squared}, Node: b.Linear(x, w, nil)})
	if err != nil {
		t.Fatal(err)
	}
	if err := (onnx.Format{}).Check(exporttest.Stored(t, g, 0, even)); !errors.Is(err, onnx.ErrNames) || !strings.Contains(err.Error(), `"price"`) {
		t.Errorf("%v", err)
	}
}
