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
	"github.com/monolith-go/monolith/internal/protofield"
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
func Write(ctx context.Context, in fsx.FS, prefix string, step int64, variables []Variable) (err error) {
	w, err := Create(ctx, in, prefix, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.Begin(0, "global_step", Int64).Ints(step); err != nil {
		return err
	}
	for _, v := range variables {
		if err := w.Begin(0, v.Name, Float32, v.Shape...).Floats(v.Values...); err != nil {
			return err
		}
	}
	return w.Commit(ctx)
}

// Writer writes variables, which need not be held, to files of data: in each they lie one after the other. Not for concurrent use.
type Writer struct {
	in      fsx.FS
	prefix  string
	files   []dataFile
	tensors []*Stream
}

type dataFile struct {
	w    fsx.Writer
	size int64
}

// Create begins the files of data under a prefix.
func Create(ctx context.Context, in fsx.FS, prefix string, files int) (*Writer, error) {
	w := &Writer{in: in, prefix: prefix}
	for i := range files {
		f, err := in.Create(ctx, dataName(prefix, i, files))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("tfbundle: %w", err), w.Close())
		}
		w.files = append(w.files, dataFile{w: f})
	}
	return w, nil
}

func dataName(prefix string, file, files int) string {
	return fmt.Sprintf("%s.data-%05d-of-%05d", prefix, file, files)
}

// Stream takes the values of one variable, row-major and in any number of pieces.
type Stream struct {
	Tensor
	to  *dataFile
	sum tfrecord.Sum
	buf []byte
}

// Begin begins a variable behind what a file has. Nothing more may be written to the variable before it in that file.
func (w *Writer) Begin(file int, name string, dtype int, shape ...int64) *Stream {
	s := &Stream{Tensor: Tensor{Name: name, Type: dtype, Shape: shape, shard: int32(file), offset: w.files[file].size}, to: &w.files[file]}
	w.tensors = append(w.tensors, s)
	return s
}

// Floats writes values of a variable of float32.
func (s *Stream) Floats(values ...float32) error {
	s.buf = s.buf[:0]
	for _, x := range values {
		s.buf = binary.LittleEndian.AppendUint32(s.buf, math.Float32bits(x))
	}
	return s.write()
}

// Ints writes values of a variable of int64.
func (s *Stream) Ints(values ...int64) error {
	s.buf = s.buf[:0]
	for _, x := range values {
		s.buf = binary.LittleEndian.AppendUint64(s.buf, uint64(x))
	}
	return s.write()
}

func (s *Stream) write() error {
	if _, err := s.to.w.Write(s.buf); err != nil {
		return fmt.Errorf("tfbundle: variable %q: %w", s.Name, err)
	}
	s.sum.Add(s.buf)
	s.size += int64(len(s.buf))
	s.to.size += int64(len(s.buf))
	return nil
}

// entry is what the file of names says of the variable.
func (s *Stream) entry() (protofield.Message, error) {
	want := int64(4)
	if s.Type == Int64 {
		want = 8
	}
	var dims, b protofield.Message
	for _, d := range s.Shape {
		var dim protofield.Message
		dim.Int(1, d)
		dims.Bytes(2, dim)
		want *= d
	}
	if want != s.size {
		return nil, fmt.Errorf("tfbundle: variable %q of the shape %v has %d bytes, not %d", s.Name, s.Shape, s.size, want)
	}
	b.Int(1, int64(s.Type))
	b.Bytes(2, dims)
	if s.shard > 0 {
		b.Int(3, int64(s.shard))
	}
	if s.offset > 0 {
		b.Int(4, s.offset)
	}
	b.Int(5, s.size)
	return protowire.AppendFixed32(protowire.AppendTag(b, 6, protowire.Fixed32Type), s.sum.Checksum()), nil
}

// Commit makes the files of data durable and writes the one with the names. Errors: a name that is empty or comes twice; a variable that has not all its
// values, or more.
func (w *Writer) Commit(ctx context.Context) error {
	slices.SortFunc(w.tensors, func(a, b *Stream) int { return cmp.Compare(a.Name, b.Name) })
	var t tableWriter
	var header, version protofield.Message
	version.Int(1, 1)
	header.Int(1, int64(len(w.files)))
	header.Bytes(3, version)
	t.add("", header)
	for k, s := range w.tensors {
		if s.Name == "" || k > 0 && s.Name == w.tensors[k-1].Name {
			return fmt.Errorf("tfbundle: the variable name %q is empty or comes twice", s.Name)
		}
	}
	for _, s := range w.tensors {
		value, err := s.entry()
		if err != nil {
			return err
		}
		t.add(s.Name, value)
	}
	for i := range w.files {
		if err := w.files[i].w.Commit(ctx); err != nil {
			return fmt.Errorf("tfbundle: %w", err)
		}
	}
	if err := fsx.WriteFile(ctx, w.in, w.prefix+".index", t.close()); err != nil {
		return fmt.Errorf("tfbundle: %w", err)
	}
	return nil
}

// Close discards files that are not committed.
func (w *Writer) Close() error {
	var err error
	for i := range w.files {
		err = errors.Join(err, w.files[i].w.Close())
	}
	return err
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
