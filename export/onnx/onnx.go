// Package onnx writes models as ONNX files, of operator set 18 and ai.onnx.ml 3, which onnxruntime and others run.
//
//	model.onnx           the graph, with the ids of all tables (LabelEncoder) and what the model is as metadata
//	model-N-SUM.data     dense tensors and rows, as external data: float32, little endian
//	ids/TABLE.npy        with [Format].RowNumbers: the ids of a table as NumPy's int64 [rows], in the order of its rows
//
// Inputs are the features by their names: ids int64 [rows, n], filled up with negative numbers, their values float32 [rows, n], and numbers float32 [rows, dim]. What
// they have is what training has of them after the parse recipe. Outputs are the predictions of the heads float32 [rows, width] by their names.
//
// The ids are part of the graph, and a protobuf holds less than 2 GiB: [MaxRows] bounds the rows of all tables together. With [Format].RowNumbers they lie beside it, in files
// without a bound, and the client looks them up: what is sent in place of an id is the number of its row, or -2-id where it has none.
package onnx

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/forward"
	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/protofield"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/ps/table"
)

// MaxRows is how many rows the tables of a model may have together: an id takes up to 10 bytes of the file and its place up to 5.
const MaxRows = (1<<31 - 1<<25) / 15

// FileName is the file of the graph. It names the file of data, which is another name for each export: two exports in one folder cannot be read by one another's numbers.
const FileName = "model.onnx"

// dataName names the file of data by the snapshot and a checksum of the model: where it comes from, its graph, how many rows it has and its dense weights.
func dataName(m *export.Model, about []byte) string {
	sum := crc32.NewIEEE()
	_, _ = sum.Write(about) // it has no errors
	_ = binary.Write(sum, binary.LittleEndian, m.Dense)
	return fmt.Sprintf("model-%d-%08x.data", m.From.Snapshot, sum.Sum32())
}

// IDsName is the file of a table's ids below the folder.
func IDsName(table string) string { return filepath.Join("ids", export.Folder(table)+".npy") }

const (
	irVersion = 10
	opset     = 18
	opsetML   = 3
	domainML  = "ai.onnx.ml"
	encoder   = "LabelEncoder"
	// align is what readers that map the file of data want places to be multiples of.
	align = 4096
)

// ErrTooLarge means that the ids of a model do not fit into an ONNX file.
var ErrTooLarge = failure.New(failure.TooLarge, "the model has too many rows for ONNX, whose file has all ids and less than 2 GiB; take row numbers in place of ids (--row-numbers), drop rows by the job's retention, or use savedmodel or native")

// ErrNames means that a feature and a head have one name, which ONNX's values may not.
var ErrNames = failure.New(failure.Config, "ONNX has no two values of one name; rename the head or the feature, or use savedmodel")

// Format is the format. The zero value is ready.
type Format struct {
	// RowNumbers makes the numbers of rows the inputs of sparse features, in place of ids, which are in files beside the model.
	RowNumbers bool
}

var _ export.Format = Format{}

// Name implements [export.Format].
func (Format) Name() string { return "onnx" }

// Check implements [export.Format]. Errors: [forward.ErrRefused]; [ErrTooLarge]; [ErrNames].
func (f Format) Check(m *export.Model) error {
	faults := []error{forward.Check(m.Graph)}
	rows := int64(0)
	for _, t := range m.Tables {
		rows += t.Rows
	}
	if rows > MaxRows && !f.RowNumbers {
		faults = append(faults, fmt.Errorf("onnx: the tables have %d rows, %d are the most: %w", rows, int64(MaxRows), ErrTooLarge))
	}
	taken := map[string]bool{}
	for _, x := range m.Graph.Features() {
		taken[x.Name], taken[x.Values] = true, true
	}
	for _, h := range m.Graph.Heads() {
		if taken[h.Name] {
			faults = append(faults, fmt.Errorf("onnx: %q is a feature and a head: %w", h.Name, ErrNames))
		}
	}
	return errors.Join(faults...)
}

// Write implements [export.Format]. It holds the ids of all tables, up to 15 bytes each, but with RowNumbers none; rows are written as they are read. model.onnx is last.
func (f Format) Write(ctx context.Context, m *export.Model, to export.Target) error {
	p := newProgram(m)
	p.rowNumbers = f.RowNumbers
	inputs, outputs := p.body(m)
	about, err := m.MarshalJSON()
	if err != nil {
		return fmt.Errorf("onnx: %w", err)
	}
	p.data = dataName(m, about)
	ids, err := p.writeData(ctx, m, to)
	if err != nil {
		return err
	}
	b := p.message(inputs, outputs, ids, about)
	if len(b) > math.MaxInt32 {
		return fmt.Errorf("onnx: the file has %d bytes: %w", len(b), ErrTooLarge)
	}
	if err := fsx.WriteFile(ctx, to.FS, filepath.Join(to.Dir, FileName), b); err != nil {
		return fmt.Errorf("onnx: %w", err)
	}
	return nil
}

// newProgram has the parameters as initializers: dense tensors, then tables.
func newProgram(m *export.Model) *program {
	p := &program{consts: map[string]string{}, paddings: map[[2]string]padding{}, taken: map[string]int{}, layout: m.Graph.Layout()}
	end := int64(0)
	parameter := func(name string, dims ...int64) {
		size := int64(4)
		for _, d := range dims {
			size *= d
		}
		p.tensor = append(p.tensor, initializer{name: p.unique(name), typ: typeFloat, dims: dims, outside: true, at: end, size: size})
		end += (size + align - 1) / align * align
	}
	for _, t := range p.layout.Dense {
		var dims []int64
		for _, d := range t.Shape {
			dims = append(dims, int64(d))
		}
		parameter("dense/"+t.Name, dims...)
	}
	for i, t := range p.layout.Tables {
		n := m.Tables[i].Rows
		parameter("tables/"+t.Name+"/rows", n+1, int64(t.Dim()))
		p.counts, p.encoders = append(p.counts, n), append(p.encoders, -1)
	}
	return p
}

// value is an input or output: a ValueInfoProto. A dimension that is not known has a name, or none.
type value struct {
	name string
	typ  int64
	dims []string
}

// body adds the forward pass.
func (p *program) body(m *export.Model) (inputs, outputs []value) {
	var in forward.Inputs
	var first forward.Value
	p.Scope("inputs")
	input := func(name string, t forward.Type, columns string) forward.Value {
		inputs = append(inputs, value{name, types[t], []string{"rows", columns}})
		v := forward.Value{Name: name, Type: t}
		if first.Name == "" {
			first = v
		}
		return v
	}
	values := map[string]forward.Value{} // features may share them
	for _, f := range m.Graph.Features() {
		if f.Kind == model.Dense {
			in.Dense = append(in.Dense, input(f.Name, forward.Float, strconv.Itoa(f.Dim)))
			continue
		}
		e, places := p.entries(f.Table, input(f.Name, forward.Int, "entries of "+f.Name))
		if f.Values != "" {
			if _, ok := values[f.Values]; !ok {
				values[f.Values] = input(f.Values, forward.Float, "entries of "+f.Name)
			}
			e.Values = forward.Pick(p, values[f.Values], places)
		}
		in.Sparse = append(in.Sparse, e)
	}
	in.NumRows = p.Size(first, 0)
	heads := m.Graph.Heads()
	for i, v := range forward.Write(p, m.Graph, p.counts, in) {
		p.nodes = append(p.nodes, node{op: "Identity", inputs: []string{v.Name}, outputs: []string{heads[i].Name}})
		outputs = append(outputs, value{heads[i].Name, typeFloat, []string{"rows", strconv.Itoa(heads[i].Width)}})
	}
	return inputs, outputs
}

// entries are those of a sparse feature of a table.
func (p *program) entries(tbl int, x forward.Value) (e forward.Entries, places forward.Value) {
	if p.rowNumbers {
		return forward.UnpadNumbers(p, x, p.counts[tbl])
	}
	return forward.Unpad(p, x)
}

// writeData writes the parameters to the file of data, and the ids to theirs or returns them for each table, as fields of varints.
func (p *program) writeData(ctx context.Context, m *export.Model, to export.Target) (ids [][]byte, err error) {
	w, err := to.FS.Create(ctx, filepath.Join(to.Dir, p.data))
	if err != nil {
		return nil, fmt.Errorf("onnx: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	var buf []byte
	at, parameter := int64(0), -1
	// write writes values of a parameter, the first of which begin where its place is.
	write := func(i int, v []float32) error {
		buf = buf[:0]
		if i != parameter {
			buf, parameter = append(buf, make([]byte, p.tensor[i].at-at)...), i
		}
		for _, x := range v {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(x))
		}
		at += int64(len(buf))
		_, err := w.Write(buf)
		return err
	}
	from := 0
	for i, t := range p.layout.Dense {
		if err := write(i, m.Dense[from:from+t.Len()]); err != nil {
			return nil, fmt.Errorf("onnx: %w", err)
		}
		from += t.Len()
	}
	for i := range p.layout.Tables {
		var keys []byte
		n, rows := int64(0), len(p.layout.Dense)+i
		read := func(ids func([]int64) error) error {
			return m.Rows(ctx, i, func(r *table.Rows) error {
				n += int64(len(r.Keys))
				to.Wrote(len(r.Keys))
				return errors.Join(ids(r.Keys), write(rows, r.Weights))
			})
		}
		if p.rowNumbers {
			err = p.writeIDs(ctx, i, to, read)
		} else {
			err = read(func(ids []int64) error {
				for _, id := range ids {
					keys = protowire.AppendVarint(keys, uint64(id))
				}
				return nil
			})
		}
		if err == nil && n != p.counts[i] {
			err = fmt.Errorf("table %q has %d rows, not %d", p.layout.Tables[i].Name, n, p.counts[i])
		}
		if err == nil {
			err = write(rows, forward.Spare(&p.layout.Tables[i]))
		}
		if err != nil {
			return nil, fmt.Errorf("onnx: %w", err)
		}
		ids = append(ids, keys)
	}
	if err := w.Commit(ctx); err != nil {
		return nil, fmt.Errorf("onnx: %w", err)
	}
	return ids, nil
}

// writeIDs writes the ids of a table, which read gives, to a file of NumPy (numpy.lib.format, version 1.0): a header that says type and shape, filled up to 64 bytes, and the numbers.
func (p *program) writeIDs(ctx context.Context, tbl int, to export.Target, read func(ids func([]int64) error) error) (err error) {
	w, err := to.FS.Create(ctx, filepath.Join(to.Dir, IDsName(p.layout.Tables[tbl].Name)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	const magic, unit = "\x93NUMPY\x01\x00", 64
	text := fmt.Sprintf("{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }", p.counts[tbl])
	text += strings.Repeat(" ", (unit-(len(magic)+2+len(text)+1)%unit)%unit) + "\n"
	buf := append(binary.LittleEndian.AppendUint16([]byte(magic), uint16(len(text))), text...)
	if err := read(func(ids []int64) error {
		for _, id := range ids {
			buf = binary.LittleEndian.AppendUint64(buf, uint64(id))
		}
		_, err := w.Write(buf)
		buf = buf[:0]
		return err
	}); err != nil {
		return err
	}
	if _, err := w.Write(buf); err != nil { // the header of a table without rows
		return err
	}
	return w.Commit(ctx)
}

// message is the ModelProto.
func (p *program) message(inputs, outputs []value, ids [][]byte, about []byte) []byte {
	for t, at := range p.encoders {
		if at < 0 {
			continue
		}
		n := &p.nodes[at]
		n.attrs = append(n.attrs, attrVarints("keys_int64s", ids[t]), attrVarints("values_int64s", numbers(p.counts[t])))
	}
	var graph, out protofield.Message
	for i := range p.nodes {
		graph.Bytes(1, p.nodes[i].message())
	}
	graph.Text(2, "monolith")
	for i := range p.tensor {
		graph.Bytes(5, p.tensor[i].message(p.data))
	}
	for _, v := range inputs {
		graph.Bytes(11, v.message())
	}
	for _, v := range outputs {
		graph.Bytes(12, v.message())
	}
	out.Int(1, irVersion)
	out.Text(2, "monolith")
	out.Bytes(7, graph)
	for _, set := range []struct {
		domain  string
		version int64
	}{{"", opset}, {domainML, opsetML}} {
		var m protofield.Message
		m.Text(1, set.domain)
		m.Int(2, set.version)
		out.Bytes(8, m)
	}
	sparse := "ids"
	if p.rowNumbers {
		sparse = "row numbers"
	}
	for _, entry := range [][2]string{{"monolith", string(about)}, {"monolith.sparse", sparse}} {
		var meta protofield.Message
		meta.Text(1, entry[0])
		meta.Text(2, entry[1])
		out.Bytes(14, meta)
	}
	return out
}

// numbers are 0, 1 ... n-1 as varints.
func numbers(n int64) []byte {
	var b []byte
	for i := range n {
		b = protowire.AppendVarint(b, uint64(i))
	}
	return b
}

// attrVarints is an AttributeProto of whole numbers.
func attrVarints(name string, varints []byte) protofield.Message {
	var m protofield.Message
	m.Text(1, name)
	m.Bytes(8, varints)
	m.Int(20, 7)
	return m
}

func (n *node) message() protofield.Message {
	var m protofield.Message
	for _, in := range n.inputs {
		m.Text(1, in)
	}
	for _, o := range n.outputs {
		m.Text(2, o)
	}
	m.Text(3, n.outputs[0])
	m.Text(4, n.op)
	for _, a := range n.attrs {
		m.Bytes(5, a)
	}
	if n.domain != "" {
		m.Text(7, n.domain)
	}
	return m
}

// message is the TensorProto; data is the file of data.
func (t *initializer) message(data string) protofield.Message {
	var m protofield.Message
	m.Packed(1, t.dims...)
	m.Int(2, t.typ)
	m.Text(8, t.name)
	if !t.outside {
		m.Bytes(9, t.raw)
		return m
	}
	for _, e := range [][2]string{{"location", data}, {"offset", strconv.FormatInt(t.at, 10)}, {"length", strconv.FormatInt(t.size, 10)}} {
		var entry protofield.Message
		entry.Text(1, e[0])
		entry.Text(2, e[1])
		m.Bytes(13, entry)
	}
	m.Int(14, 1)
	return m
}

func (v *value) message() protofield.Message {
	var shape, tensor, typ, m protofield.Message
	for _, d := range v.dims {
		var dim protofield.Message
		if n, err := strconv.ParseInt(d, 10, 64); err == nil {
			dim.Int(1, n)
		} else if d != "" {
			dim.Text(2, d)
		}
		shape.Bytes(1, dim)
	}
	tensor.Int(1, v.typ)
	tensor.Bytes(2, shape)
	typ.Bytes(1, tensor)
	m.Text(1, v.name)
	m.Bytes(2, typ)
	return m
}
