// Package safetensors writes a model as one file of named tensors, in the format of huggingface/safetensors:
//
//	┌ length of the header, uint64 ┐┌ header: JSON, spaces up to a multiple of 8 bytes ┐┌ tensors, one after the other ┐
//
// For each table there are TABLE.ids, int64 [rows], and TABLE.SEGMENT, float32 [rows, dim], whose rows are those of the ids, as training has them: who computes with a segment that has a
// compressor applies it. Dense tensors have their names. The header's metadata has the model as JSON under "monolith": graph, recipe, and where it comes from.
//
// The format has no limit but that of its header, [MaxHeader]. It has one file, and readers map it or read whole tensors, so that for
// many rows Parquet is the better one. Rows are read once for each tensor of a table, and not held.
package safetensors

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/ps/table"
)

// Name is that of the file.
const Name = "model.safetensors"

// MaxHeader is what readers take of a header, in bytes (safetensors 0.5, tensor.rs: MAX_HEADER_SIZE).
const MaxHeader = 100_000_000

// Format is the format. The zero value is ready.
type Format struct{}

var _ export.Format = Format{}

// Name implements [export.Format].
func (Format) Name() string { return "safetensors" }

// tensor is an entry of the header.
type tensor struct {
	Dtype   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// part is a tensor with what writes it. A file has those of 8 bytes first, so that all lie where numbers of their size may.
type part struct {
	name string
	tensor
	write func(ctx context.Context, w *writer) error
}

// parts are the tensors of a model, in the order of the file.
func parts(m *export.Model) ([]part, error) {
	var wide, out []part
	seen := map[string]bool{}
	var faults []error
	add := func(to *[]part, name, dtype string, shape []int64, size int64, write func(ctx context.Context, w *writer) error) {
		if seen[name] || name == "__metadata__" {
			faults = append(faults, fmt.Errorf("two tensors would be called %q", name))
		}
		seen[name] = true
		for _, d := range shape {
			size *= d
		}
		*to = append(*to, part{name, tensor{dtype, shape, [2]int64{0, size}}, write})
	}
	l := m.Graph.Layout()
	for i, t := range l.Tables {
		rows, dim := m.Tables[i].Rows, t.Dim()
		add(&wide, t.Name+".ids", "I64", []int64{rows}, 8, func(ctx context.Context, w *writer) error {
			return m.Rows(ctx, i, func(r *table.Rows) error {
				w.told(len(r.Keys))
				return w.ids(r.Keys)
			})
		})
		at := 0
		for _, s := range t.Segments {
			from, to := at, at+s.Dim
			at = to
			add(&out, t.Name+"."+s.Name, "F32", []int64{rows, int64(s.Dim)}, 4, func(ctx context.Context, w *writer) error {
				return m.Rows(ctx, i, func(r *table.Rows) error {
					for k := range r.Keys {
						if err := w.floats(r.Weights[k*dim+from : k*dim+to]); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
	at := 0
	for _, t := range l.Dense {
		shape, values := make([]int64, len(t.Shape)), m.Dense[at:at+t.Len()]
		for i, d := range t.Shape {
			shape[i] = int64(d)
		}
		at += t.Len()
		add(&out, t.Name, "F32", shape, 4, func(_ context.Context, w *writer) error { return w.floats(values) })
	}
	out = append(wide, out...)
	end := int64(0)
	for i := range out {
		o := &out[i].Offsets
		o[0], o[1] = end, end+o[1]
		end = o[1]
	}
	return out, errors.Join(faults...)
}

// header is the beginning of a file, with its length.
func header(m *export.Model, parts []part) ([]byte, error) {
	model, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{"__metadata__": map[string]string{"monolith": string(model)}}
	for _, p := range parts {
		fields[p.name] = p.tensor
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	if len(text) > MaxHeader {
		return nil, fmt.Errorf("the header has %d bytes, and readers take %d", len(text), MaxHeader)
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

// Check implements [export.Format].
func (Format) Check(m *export.Model) error {
	parts, err := parts(m)
	if err == nil {
		_, err = header(m, parts)
	}
	return err
}

// Write implements [export.Format].
func (Format) Write(ctx context.Context, m *export.Model, to export.Target) (err error) {
	parts, err := parts(m)
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	head, err := header(m, parts)
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	file, err := to.FS.Create(ctx, filepath.Join(to.Dir, Name))
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := &writer{out: bufio.NewWriterSize(file, 1<<20), told: to.Wrote}
	err = w.put(head)
	for _, p := range parts {
		if err == nil {
			began := w.size
			if err = p.write(ctx, w); err == nil && w.size-began != p.Offsets[1]-p.Offsets[0] {
				err = fmt.Errorf("tensor %q has %d bytes, its shape says %d", p.name, w.size-began, p.Offsets[1]-p.Offsets[0])
			}
		}
	}
	if err == nil {
		err = w.out.Flush()
	}
	if err == nil {
		err = file.Commit(ctx)
	}
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	return nil
}

// writer writes numbers, little endian.
type writer struct {
	out  *bufio.Writer
	size int64
	buf  []byte
	told func(rows int)
}

func (w *writer) put(b []byte) error {
	n, err := w.out.Write(b)
	w.size += int64(n)
	return err
}

func (w *writer) ids(ids []int64) error {
	w.buf = w.buf[:0]
	for _, id := range ids {
		w.buf = binary.LittleEndian.AppendUint64(w.buf, uint64(id))
	}
	return w.put(w.buf)
}

func (w *writer) floats(values []float32) error {
	w.buf = w.buf[:0]
	for _, v := range values {
		w.buf = binary.LittleEndian.AppendUint32(w.buf, math.Float32bits(v))
	}
	return w.put(w.buf)
}
