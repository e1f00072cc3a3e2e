package tfbundle

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/tfrecord"
)

// Variable is a variable of float32 to be written.
type Variable struct {
	Name  string
	Shape []int64
	// Values are row-major.
	Values []float32
}

// tableBlock is how many bytes of keys and values a block of the table has before the next one begins.
const tableBlock = 4 << 10

// Write writes variables, and global_step, under a prefix, in one file of data: that first, the one with the names last. Names are not
// empty, and none comes twice.
func Write(ctx context.Context, in fsx.FS, prefix string, step int64, variables []Variable) error {
	type entry struct {
		name  string
		value []byte
	}
	var data []byte
	var entries []entry
	add := func(name string, dtype uint64, shape []int64, raw []byte) {
		var dims []byte
		for _, d := range shape {
			dim := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(d))
			dims = protowire.AppendBytes(protowire.AppendTag(dims, 2, protowire.BytesType), dim)
		}
		b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), dtype)
		b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), dims)
		if len(data) > 0 {
			b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), uint64(len(data)))
		}
		b = protowire.AppendVarint(protowire.AppendTag(b, 5, protowire.VarintType), uint64(len(raw)))
		b = protowire.AppendFixed32(protowire.AppendTag(b, 6, protowire.Fixed32Type), tfrecord.Checksum(raw))
		data, entries = append(data, raw...), append(entries, entry{name, b})
	}
	add("global_step", dtInt64, nil, binary.LittleEndian.AppendUint64(nil, uint64(step)))
	for _, v := range variables {
		raw := make([]byte, 0, 4*len(v.Values))
		for _, x := range v.Values {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		add(v.Name, dtFloat, v.Shape, raw)
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	w := tableWriter{}
	w.add("", []byte{0x08, 1, 0x1a, 2, 0x08, 1}) // one file of data; written by version 1
	for k, e := range entries {
		if e.name == "" || k > 0 && e.name == entries[k-1].name {
			return fmt.Errorf("tfbundle: the variable name %q is empty or comes twice", e.name)
		}
		w.add(e.name, e.value)
	}
	return errors.Join(fsx.WriteFile(ctx, in, prefix+".data-00000-of-00001", data), fsx.WriteFile(ctx, in, prefix+".index", w.close()))
}

// tableWriter makes what readTable reads. Keys come in order; each is written whole.
type tableWriter struct {
	out, index, block []byte
	last              string
}

func appendEntry(b []byte, key string, value []byte) []byte {
	b = append(b, 0)
	b = binary.AppendUvarint(b, uint64(len(key)))
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(append(b, key...), value...)
}

func (w *tableWriter) add(key string, value []byte) {
	w.block, w.last = appendEntry(w.block, key, value), key
	if len(w.block) >= tableBlock {
		w.end()
	}
}

// end writes the block, and its place under its last key.
func (w *tableWriter) end() {
	if len(w.block) > 0 {
		w.index, w.block = appendEntry(w.index, w.last, w.put(w.block)), nil
	}
}

// put writes a block that readers search from its one restart, its first key, and returns its place.
func (w *tableWriter) put(b []byte) []byte {
	at := len(w.out)
	w.out = append(w.out, b...)
	w.out = binary.LittleEndian.AppendUint32(w.out, 0)
	w.out = binary.LittleEndian.AppendUint32(w.out, 1)
	place := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(at)), uint64(len(w.out)-at))
	w.out = append(w.out, 0) // not compressed
	w.out = binary.LittleEndian.AppendUint32(w.out, tfrecord.Checksum(w.out[at:]))
	return place
}

func (w *tableWriter) close() []byte {
	w.end()
	footer := w.put(nil)
	footer = append(footer, w.put(w.index)...)
	footer = append(footer, make([]byte, footerLen-8-len(footer))...)
	return append(w.out, binary.LittleEndian.AppendUint64(footer, tableMagic)...)
}
