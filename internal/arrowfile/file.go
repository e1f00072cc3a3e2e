// Package arrowfile reads Arrow IPC files that need not be sound.
//
//	magic, schema message, record batch..., footer, length of the footer (4), magic
//
// A record batch is its metadata, 8 bytes of prefix included, and a body; the footer says where each lies. Arrow's own reader allocates by
// numbers that it reads, and panics in a caller who looks at what it has read; the tests hold it beside this one.
package arrowfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/monolith-go/monolith/internal/flat"
)

const (
	magic = "ARROW1"
	// maxFooterBytes and maxMetaBytes are far above what writers need for thousands of columns and of record batches.
	maxFooterBytes = 16 << 20
	maxMetaBytes   = 1 << 20
)

// The places of fields in the tables of Arrow's Message.fbs and File.fbs.
const (
	footerSchema, footerDictionaries, footerBatches      = 1, 2, 3
	messageHeaderID, messageHeader                       = 1, 2
	batchLength, batchNodes, batchBuffers, batchEncoding = 0, 1, 2, 3
	batchViews                                           = 4
	encodingCodec                                        = 0

	headerRecordBatch = 3
	blockBytes        = 24
)

var le = binary.LittleEndian

// block is where a record batch lies.
type block struct{ at, meta, body int64 }

// File is an open file whose footer was read: its record batches lie within it. It is not for concurrent use.
type File struct {
	// Fields are the columns.
	Fields []Field
	// Dictionaries is how many messages of the file have values of dictionaries.
	Dictionaries int

	src     io.ReaderAt
	damaged error
	blocks  []block
	buf     []byte
}

// Open reads the footer of a file of size bytes. Errors, of this and of all methods: what wraps damaged for a file that is not sound, and those of src
// with the offset.
func Open(src io.ReaderAt, size int64, damaged error) (*File, error) {
	f := &File{src: src, damaged: damaged}
	err := flat.Guard(damaged, func() error {
		const tail = 4 + len(magic)
		if size < int64(8+tail) {
			return fmt.Errorf("file of %d bytes: %w", size, damaged)
		}
		b, err := f.read(size-int64(tail), tail)
		if err != nil {
			return err
		}
		n := int64(int32(le.Uint32(b)))
		if string(b[4:]) != magic || n <= 0 || n > maxFooterBytes || n > size-int64(8+tail) {
			return fmt.Errorf("footer of %d bytes in a file of %d that ends with %q: %w", n, size, b[4:], damaged)
		}
		end := size - int64(tail) - n
		if b, err = f.read(end, int(n)); err != nil {
			return err
		}
		footer := flat.Root(b)
		if err := f.schema(footer.Table(footerSchema)); err != nil {
			return err
		}
		f.Dictionaries, _ = footer.Vector(footerDictionaries, blockBytes)
		count, blocks := footer.Vector(footerBatches, blockBytes)
		for i := range count {
			e := blocks[blockBytes*i:]
			bl := block{int64(le.Uint64(e)), int64(int32(le.Uint32(e[8:]))), int64(le.Uint64(e[16:]))}
			if bl.at < 8 || bl.at > end || bl.meta < 8 || bl.meta > maxMetaBytes || bl.meta > end-bl.at || bl.body < 0 || bl.body > end-bl.at-bl.meta {
				return fmt.Errorf("record batch %d at %d has %d bytes of metadata and %d of data in a file of %d: %w", i, bl.at, bl.meta, bl.body, size, damaged)
			}
			f.blocks = append(f.blocks, bl)
		}
		return nil
	})
	return f, err
}

// NumBatches is how many record batches there are.
func (f *File) NumBatches() int { return len(f.blocks) }

// Offset is where record batch i begins.
func (f *File) Offset(i int) int64 { return f.blocks[i].at }

// read reads n bytes into the buffer.
func (f *File) read(at int64, n int) ([]byte, error) {
	if cap(f.buf) < n {
		f.buf = make([]byte, n)
	}
	b := f.buf[:n]
	return b, f.readAt(b, at)
}

func (f *File) readAt(b []byte, at int64) error {
	if n, err := f.src.ReadAt(b, at); n < len(b) {
		if errors.Is(err, io.EOF) { // not the end that readers of rows speak of
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("offset %d: %w", at+int64(n), err)
	}
	return nil
}

// Batch is the metadata of a record batch. It is valid until the next one of its file is read.
type Batch struct {
	// Rows is what the batch says, at least 0, which its columns need not have.
	Rows int64
	// NumNodes is how many arrays its columns are made of, NumBuffers of how many buffers.
	NumNodes, NumBuffers int
	// Compressed says that each buffer is, or may be.
	Compressed bool
	// Bytes is how long the body is.
	Bytes int64

	f              *File
	at             int64 // of the body
	codec          int64
	nodes, buffers []byte
	views          []byte // how many more buffers each array of views has
}

// Batch reads the metadata of record batch i.
func (f *File) Batch(i int) (out *Batch, err error) {
	err = flat.Guard(f.damaged, func() error {
		bl := f.blocks[i]
		b, err := f.read(bl.at, int(bl.meta))
		if err != nil {
			return err
		}
		if n := int64(int32(le.Uint32(b[4:]))); le.Uint32(b) != math.MaxUint32 || n <= 0 || n > bl.meta-8 {
			return fmt.Errorf("metadata of %d bytes in %d: %w", n, bl.meta, f.damaged)
		}
		msg := flat.Root(b[8:])
		if msg.Number(messageHeaderID, 1) != headerRecordBatch {
			return fmt.Errorf("message is no record batch: %w", f.damaged)
		}
		rec := msg.Table(messageHeader)
		out = &Batch{f: f, Rows: rec.Number(batchLength, 8), Bytes: bl.body, at: bl.at + bl.meta}
		if _, out.Compressed = rec.Slot(batchEncoding); out.Compressed {
			out.codec = rec.Table(batchEncoding).Number(encodingCodec, 1)
		}
		out.NumNodes, out.nodes = rec.Vector(batchNodes, 16)
		out.NumBuffers, out.buffers = rec.Vector(batchBuffers, 16)
		_, out.views = rec.Vector(batchViews, 8)
		if out.Rows < 0 {
			return fmt.Errorf("record batch of %d rows: %w", out.Rows, f.damaged)
		}
		return nil
	})
	return out, err
}

// Node is how many values array i has, and how many of them are null; neither need be so.
func (b *Batch) Node(i int) (length, nulls int64) {
	e := b.nodes[16*i:]
	return int64(le.Uint64(e)), int64(le.Uint64(e[8:]))
}

// Fits reports, as an error, that buffer i, which is not compressed, lies outside the body or has no n values of size bytes. Memory for them is made after it.
func (b *Batch) Fits(i int, n int64, size int) error {
	at, length, err := b.buffer(i)
	if err == nil && (n < 0 || n > length/int64(size)) {
		err = fmt.Errorf("buffer of %d bytes at %d of %d for %d values of %d bytes: %w", length, at, b.Bytes, n, size, b.f.damaged)
	}
	return err
}

// buffer is where buffer i lies in the body.
func (b *Batch) buffer(i int) (at, length int64, err error) {
	at, length = int64(le.Uint64(b.buffers[16*i:])), int64(le.Uint64(b.buffers[16*i+8:]))
	if at < 0 || length < 0 || at > b.Bytes || length > b.Bytes-at {
		err = fmt.Errorf("buffer of %d bytes at %d of %d: %w", length, at, b.Bytes, b.f.damaged)
	}
	return at, length, err
}

// Into reads the beginning of buffer i, which [Batch.Fits] into dst.
func (b *Batch) Into(i int, dst []byte) error {
	if len(dst) == 0 {
		return nil
	}
	at, _, err := b.buffer(i)
	if err != nil {
		return err
	}
	return b.f.readAt(dst, b.at+at)
}
