package native

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/sinks/filesink"
)

const (
	magic     = "monoslab"
	extension = ".slab"
	// headBytes is what is in front of the weights, tailBytes what is behind the footer.
	headBytes, tailBytes = 64, 4 + 4 + len(magic)
	// perPart is about how many ids a part of the directory has.
	perPart = 8
	// maxFooter bounds what is read of a footer.
	maxFooter = 1 << 20
	// maxRows and maxDim bound what a slab says of itself, so that no product overflows.
	maxRows, maxDim = 1 << 31, 1 << 24
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// footer describes a slab.
type footer struct {
	Table string `json:"table"`
	Rows  int64  `json:"rows"`
	Dim   int64  `json:"dim"`
	// First and Last are the hashes of the first and the last row.
	First uint64 `json:"first,string"`
	Last  uint64 `json:"last,string"`
	// Shift and Parts are those of the directory.
	Shift uint8 `json:"shift"`
	Parts int64 `json:"parts"`
	// CRC32C is that of all bytes before the footer.
	CRC32C uint32 `json:"crc32c"`
	// Meta is what the sink needs to continue.
	Meta map[string]string `json:"meta"`
}

// Where the sections begin.
func (f *footer) idsAt() int64       { return (headBytes + 4*f.Rows*f.Dim + 7) &^ 7 }
func (f *footer) directoryAt() int64 { return f.idsAt() + 8*f.Rows }
func (f *footer) end() int64         { return f.directoryAt() + 4*(f.Parts+1) }

// check refuses what no writer writes. end is where the footer begins.
func (f *footer) check(end int64) error {
	switch {
	case f.Rows < 1 || f.Rows > maxRows || f.Dim < 1 || f.Dim > maxDim || f.Parts < 1 || f.Parts > maxRows || f.Shift > 63 || f.Last < f.First:
		return fmt.Errorf("%d rows of %d, %d parts, shift %d, hashes %d to %d", f.Rows, f.Dim, f.Parts, f.Shift, f.First, f.Last)
	case f.end() != end:
		return fmt.Errorf("%d rows of %d in %d parts end at %d, the footer begins at %d", f.Rows, f.Dim, f.Parts, f.end(), end)
	case (f.Last-f.First)>>f.Shift >= uint64(f.Parts):
		return fmt.Errorf("hashes %d to %d by %d bits are more than %d parts", f.First, f.Last, f.Shift, f.Parts)
	}
	return nil
}

// readFooter reads the footer of a slab. Errors: [ErrCorrupt]; those of r.
func readFooter(r io.ReaderAt, size int64) (*footer, error) {
	damaged := func(err error) error { return fmt.Errorf("%w: %w", err, ErrCorrupt) }
	if size < headBytes+int64(tailBytes) {
		return nil, damaged(fmt.Errorf("%d bytes are no slab", size))
	}
	var tail [tailBytes]byte
	if _, err := r.ReadAt(tail[:], size-int64(tailBytes)); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if string(tail[8:]) != magic || n > maxFooter || n > size-headBytes-int64(tailBytes) {
		return nil, damaged(errors.New("it does not end as a slab does"))
	}
	text, at := make([]byte, n), size-int64(tailBytes)-n
	if _, err := r.ReadAt(text, at); err != nil {
		return nil, err
	}
	if want, is := binary.LittleEndian.Uint32(tail[4:]), crc32.Checksum(text, castagnoli); is != want {
		return nil, damaged(fmt.Errorf("its footer has the checksum %08x, not %08x", is, want))
	}
	f := &footer{}
	err := json.Unmarshal(text, f)
	if err == nil {
		err = f.check(at)
	}
	if err != nil {
		return nil, damaged(fmt.Errorf("its footer: %w", err))
	}
	return f, nil
}

// slabs is the format of files of rows, for a sink of batches that [sources/snapshotsource] reads: ids come in the order of their hashes.
type slabs struct {
	opts  filesink.Options
	table string
	dim   int
}

var _ filesink.Format = slabs{}

// Name implements [filesink.Format].
func (slabs) Name() string { return "native" }

// Extension implements [filesink.Format].
func (slabs) Extension() string { return extension }

// Fingerprint implements [filesink.Format].
func (s slabs) Fingerprint() string {
	return pipeline.Fingerprint("native "+s.table, s.opts, "RowsPerFile", "BytesPerFile", "FileEvery", "Keys")
}

// Metadata implements [filesink.Format].
func (slabs) Metadata(r io.ReaderAt, size int64) (map[string]string, error) {
	f, err := readFooter(r, size)
	if err != nil {
		if errors.Is(err, ErrCorrupt) {
			err = fmt.Errorf("%w: %w", err, filesink.ErrDamaged)
		}
		return nil, err
	}
	return f.Meta, nil
}

// The columns that are written; others are left out.
const (
	columnID      = "fid"
	columnWeights = "weights"
)

// Begin implements [filesink.Format].
func (s slabs) Begin(w io.Writer, columns *arrow.Schema) (filesink.Encoder, error) {
	e := &encoder{w: w, table: s.table, dim: s.dim, id: -1, weights: -1}
	for i, f := range columns.Fields() {
		list, isList := f.Type.(*arrow.FixedSizeListType)
		switch {
		case f.Name == columnID && f.Type.ID() == arrow.INT64:
			e.id = i
		case f.Name == columnWeights && isList && list.Elem().ID() == arrow.FLOAT32 && int(list.Len()) == s.dim:
			e.weights = i
		}
	}
	if e.id < 0 || e.weights < 0 {
		return nil, fmt.Errorf("columns %s have no ids %s, or no %d weights %s: %w", columns, columnID, s.dim, columnWeights, pipeline.ErrSchema)
	}
	head := [headBytes]byte{}
	copy(head[:], magic)
	return e, e.put(head[:])
}

// encoder writes a slab. It keeps the ids until the end.
type encoder struct {
	w           io.Writer
	table       string
	dim         int
	id, weights int // columns
	size        int64
	crc         uint32
	rows        int64
	// ids are those of the rows, perChunk in each but the last: one list that grows would be copied again and again, each time into memory that the system has to find first.
	ids  [][]int64
	last uint64
}

const (
	// perChunk is how many ids lie side by side in memory.
	perChunk = 1 << 16
	// perPiece is how many numbers of the directory are written at a time.
	perPiece = 1 << 14
)

func (e *encoder) put(b []byte) error {
	e.crc = crc32.Update(e.crc, castagnoli, b)
	n, err := e.w.Write(b)
	e.size += int64(n)
	return err
}

// Size implements [filesink.Encoder].
func (e *encoder) Size() int64 { return e.size + 8*e.rows }

// Write implements [filesink.Encoder].
func (e *encoder) Write(b *pipeline.Batch) error {
	rec := b.Record()
	ids := rec.Column(e.id).(*array.Int64).Int64Values()
	if e.rows+int64(len(ids)) > maxRows {
		return fmt.Errorf("a slab has at most %d rows: %w", maxRows, pipeline.ErrSchema)
	}
	for _, id := range ids {
		h := table.Hash(id)
		if e.rows > 0 && h <= e.last {
			return fmt.Errorf("id %d is not behind id %d in the order of hashes, as rows of a snapshot are: %w", id, table.Unhash(e.last), pipeline.ErrSchema)
		}
		e.keep(id)
		e.last = h
	}
	list := rec.Column(e.weights).(*array.FixedSizeList)
	from := list.Data().Offset() * e.dim
	return e.put(arrow.Float32Traits.CastToBytes(list.ListValues().(*array.Float32).Float32Values()[from : from+e.dim*len(ids)]))
}

// keep appends an id.
func (e *encoder) keep(id int64) {
	at := int(e.rows / perChunk)
	if at == len(e.ids) {
		e.ids = append(e.ids, make([]int64, 0, perChunk))
	}
	e.ids[at] = append(e.ids[at], id)
	e.rows++
}

// End implements [filesink.Encoder].
func (e *encoder) End(metadata map[string]string) error {
	f := footer{Table: e.table, Rows: e.rows, Dim: int64(e.dim), First: table.Hash(e.ids[0][0]), Last: e.last, Meta: metadata}
	wide := bits.Len64(uint64(f.Rows / perPart))
	f.Parts = 1 << wide
	f.Shift = uint8(min(max(0, bits.Len64(f.Last-f.First)-wide), 63))
	if (f.Last-f.First)>>f.Shift >= uint64(f.Parts) { // one part of all hashes
		f.Parts *= 2
	}
	if err := e.put(make([]byte, f.idsAt()-e.size)); err != nil {
		return err
	}
	for _, ids := range e.ids {
		if err := e.put(arrow.Int64Traits.CastToBytes(ids)); err != nil {
			return err
		}
	}
	if err := e.directory(&f); err != nil {
		return err
	}
	f.CRC32C = e.crc
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	end := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	end = append(binary.LittleEndian.AppendUint32(end, crc32.Checksum(text, castagnoli)), magic...)
	return e.put(append(text, end...))
}

// directory writes, for each part of the hashes, the number of the first row in it or behind it, and at last how many rows there are.
func (e *encoder) directory(f *footer) error {
	piece := make([]uint32, 0, perPiece)
	add := func(row int64) error {
		piece = append(piece, uint32(row))
		if len(piece) < perPiece {
			return nil
		}
		err := e.put(arrow.Uint32Traits.CastToBytes(piece))
		piece = piece[:0]
		return err
	}
	part, row := int64(0), int64(0)
	for _, ids := range e.ids {
		for _, id := range ids {
			for ; part <= int64((table.Hash(id)-f.First)>>f.Shift); part++ {
				if err := add(row); err != nil {
					return err
				}
			}
			row++
		}
	}
	for ; part <= f.Parts; part++ {
		if err := add(row); err != nil {
			return err
		}
	}
	return e.put(arrow.Uint32Traits.CastToBytes(piece))
}
