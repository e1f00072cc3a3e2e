// Package tfbundle reads and writes TensorFlow's checkpoints of variables («tensor bundles», tensorflow/core/util/tensor_bundle): a file of what
// there is, and files with the numbers:
//
//	model.ckpt-1200.index                  a table as LevelDB writes it: names and BundleEntryProtos, sorted; under "" the BundleHeaderProto
//	model.ckpt-1200.data-00000-of-00001    the tensors one after the other, row-major, little endian; there may be several
//
// The table is blocks of keys that share prefixes, then one block with the place of each, then 48 bytes that say where that is. Every
// block, and every tensor, has a masked CRC-32C, which is verified.
package tfbundle

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/protofield"
	"github.com/monolith-go/monolith/internal/tfrecord"
)

var (
	// ErrDamaged means that a file is not what TensorFlow wrote. Fetch the checkpoint again, or take an older one.
	ErrDamaged = failure.New(failure.Corrupt, "the checkpoint of variables is damaged")
	// ErrNone means that there is no checkpoint of variables under a prefix.
	ErrNone = failure.New(failure.Config, "no checkpoint of variables")
	// ErrTensor means that a variable is not there, or of a kind that is not read.
	ErrTensor = failure.New(failure.Config, "the variable cannot be read")
)

const (
	// maxIndex bounds the file of names: a variable takes some hundred bytes.
	maxIndex = 1 << 30
	// maxElements bounds a tensor.
	maxElements = 1 << 31
)

// TensorFlow's DataTypes of the variables that are read and written.
const (
	Float32 = 1
	Int64   = 9
)

// Tensor describes a variable.
type Tensor struct {
	Name string
	// Type is TensorFlow's DataType, such as [Float32].
	Type  int
	Shape []int64

	shard        int32
	offset, size int64
	crc          uint32
	sliced       bool
}

// Bundle is an open checkpoint of variables. Its methods may overlap.
type Bundle struct {
	in      fsx.FS
	prefix  string
	shards  int32
	tensors map[string]Tensor
}

// Open reads what there is under a prefix such as …/model.ckpt-1200. Errors: [ErrNone], [ErrDamaged] with the file.
func Open(ctx context.Context, in fsx.FS, prefix string) (*Bundle, error) {
	name := prefix + ".index"
	raw, err := fsx.ReadFile(ctx, in, name, maxIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("tfbundle: %s is not there: %w", name, ErrNone)
	}
	if err != nil {
		return nil, fmt.Errorf("tfbundle: %w", err)
	}
	b := &Bundle{in: in, prefix: prefix, tensors: map[string]Tensor{}}
	if err := readTable(raw, b.add); err != nil {
		return nil, fmt.Errorf("tfbundle: %s: %w: %w", name, err, ErrDamaged)
	}
	if b.shards < 1 {
		return nil, fmt.Errorf("tfbundle: %s has no header: %w", name, ErrDamaged)
	}
	return b, nil
}

// add takes a key of the table.
func (b *Bundle) add(key string, value []byte) error {
	if key == "" {
		return b.header(value)
	}
	t := Tensor{Name: key}
	err := protofield.Each(value, func(num protowire.Number, _ protowire.Type, v []byte, n uint64) error {
		switch num {
		case 1:
			t.Type = int(int32(n))
		case 2:
			return protofield.Each(v, func(num protowire.Number, _ protowire.Type, v []byte, _ uint64) error {
				if num != 2 {
					return nil
				}
				size := int64(0)
				err := protofield.Each(v, func(num protowire.Number, _ protowire.Type, _ []byte, n uint64) error {
					if num == 1 {
						size = int64(n)
					}
					return nil
				})
				t.Shape = append(t.Shape, size)
				return err
			})
		case 3:
			t.shard = int32(n)
		case 4:
			t.offset = int64(n)
		case 5:
			t.size = int64(n)
		case 6:
			t.crc = uint32(n)
		case 7:
			t.sliced = true
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("entry of %q: %w", key, err)
	}
	b.tensors[key] = t
	return nil
}

func (b *Bundle) header(value []byte) error {
	b.shards = 0
	return protofield.Each(value, func(num protowire.Number, _ protowire.Type, _ []byte, n uint64) error {
		switch {
		case num == 1:
			b.shards = int32(n)
		case num == 2 && n != 0:
			return errors.New("it was written on a machine of the other byte order")
		}
		return nil
	})
}

// Tensors lists the variables, sorted by name.
func (b *Bundle) Tensors() []Tensor {
	out := make([]Tensor, 0, len(b.tensors))
	for _, name := range slices.Sorted(maps.Keys(b.tensors)) {
		out = append(out, b.tensors[name])
	}
	return out
}

// Float32 reads a variable of float32, row-major. Errors: [ErrTensor] for one that is not there or of another type; [ErrDamaged] with the file.
func (b *Bundle) Float32(ctx context.Context, name string) ([]float32, error) {
	raw, err := b.read(ctx, name, Float32, 4)
	if err != nil {
		return nil, err
	}
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out, nil
}

// Int64 reads a variable of int64, row-major. Errors: as Float32.
func (b *Bundle) Int64(ctx context.Context, name string) ([]int64, error) {
	raw, err := b.read(ctx, name, Int64, 8)
	if err != nil {
		return nil, err
	}
	out := make([]int64, len(raw)/8)
	for i := range out {
		out[i] = int64(binary.LittleEndian.Uint64(raw[8*i:]))
	}
	return out, nil
}

// read returns the bytes of a variable.
func (b *Bundle) read(ctx context.Context, name string, dtype, width int) (raw []byte, err error) {
	t, ok := b.tensors[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("tfbundle: %s has no variable %q: %w", b.prefix, name, ErrTensor)
	case t.sliced:
		return nil, fmt.Errorf("tfbundle: %s: variable %q is stored in slices (a partitioned variable): %w", b.prefix, name, ErrTensor)
	case t.Type != dtype:
		return nil, fmt.Errorf("tfbundle: %s: variable %q is of type %d, not %d: %w", b.prefix, name, t.Type, dtype, ErrTensor)
	}
	path := dataName(b.prefix, int(t.shard), int(b.shards))
	damaged := func(text string, args ...any) error {
		return fmt.Errorf("tfbundle: %s: variable %q at byte %d: %s: %w", path, name, t.offset, fmt.Sprintf(text, args...), ErrDamaged)
	}
	n := int64(1)
	for _, d := range t.Shape {
		if d < 0 || d > 0 && n > maxElements/d {
			return nil, damaged("the shape %v", t.Shape)
		}
		n *= d
	}
	f, err := b.in.Open(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("tfbundle: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if size := f.Info().Size; t.shard < 0 || t.shard >= b.shards || t.size != n*int64(width) || t.offset < 0 || t.offset > size || t.size > size-t.offset {
		return nil, damaged("%d bytes for the shape %v, in a file of %d", t.size, t.Shape, size)
	}
	raw = make([]byte, t.size)
	if _, err := f.ReadAt(raw, t.offset); err != nil {
		return nil, fmt.Errorf("tfbundle: %s: %w", path, err)
	}
	if got := tfrecord.Checksum(raw); got != t.crc {
		return nil, damaged("crc mismatch (want %08x, got %08x)", t.crc, got)
	}
	return raw, nil
}
