package exchange

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/arrowx"
)

// run is a file of sorted rows: frames, each
//
//	length uint32 | CRC-32C of what follows uint32 | rows uint32 | a stream id int32 a row | Arrow IPC stream of one batch
//
// little-endian. Only this process reads it, so it is not synced; its checksums find a disk that does not keep its word.
type run struct {
	file       *os.File
	rows, size int64
	level      int // 0: of rows from memory; n+1: of runs of level n
}

const frameHeader = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// write sorts rows and writes them to a run.
func (x *Exchange) write(batches []held, rank []int32) (*run, error) {
	recs := make([]arrow.RecordBatch, len(batches))
	for i, h := range batches {
		recs[i] = h.rec
	}
	rows, _ := x.sorted(batches, rank)
	return x.newRun(0, func() ([]arrow.RecordBatch, []row, error) {
		part := rows[:min(x.opts.BatchRows, len(rows))]
		rows = rows[len(part):]
		return recs, part, nil
	})
}

// join merges runs into one of the next level.
func (x *Exchange) join(runs []*run, rank []int32) (_ *run, err error) {
	m := merger{x: x, rank: rank}
	defer m.close()
	for _, r := range runs {
		if err := m.addRun(r); err != nil {
			return nil, err
		}
	}
	m.init()
	var used []arrow.RecordBatch
	defer func() { release(used) }()
	return x.newRun(runs[0].level+1, func() (_ []arrow.RecordBatch, rows []row, err error) {
		release(used)
		used, rows, err = m.take(x.opts.BatchRows, x.opts.BatchRows)
		return used, rows, err
	})
}

func release(recs []arrow.RecordBatch) {
	for _, r := range recs {
		r.Release()
	}
}

// newRun writes a run of what next returns until that is no row. The record batches stay next's.
func (x *Exchange) newRun(level int, next func() ([]arrow.RecordBatch, []row, error)) (_ *run, err error) {
	f, err := os.CreateTemp(x.dir, "run-*")
	if err != nil {
		return nil, err
	}
	r := &run{file: f, level: level}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	_ = os.Remove(f.Name()) // where the system allows it, nothing stays behind when the process is killed
	w := bufio.NewWriterSize(f, 1<<20)
	var frame bytes.Buffer
	for {
		recs, rows, err := next()
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			return r, w.Flush()
		}
		rec, err := gather(x.opts.Allocator, recs, rows)
		if err != nil {
			return nil, err
		}
		frame.Reset()
		err = encode(&frame, rec, rows)
		rec.Release()
		if err == nil {
			_, err = w.Write(frame.Bytes())
		}
		if err != nil {
			return nil, err
		}
		r.rows += int64(len(rows))
		r.size += int64(frame.Len())
	}
}

// encode appends a frame.
func encode(b *bytes.Buffer, rec arrow.RecordBatch, rows []row) error {
	le := binary.LittleEndian
	head := le.AppendUint32(make([]byte, frameHeader), uint32(len(rows)))
	for _, r := range rows {
		head = le.AppendUint32(head, uint32(r.stream))
	}
	b.Write(head)
	w := ipc.NewWriter(b, ipc.WithSchema(rec.Schema()))
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		return err
	}
	frame := b.Bytes()
	le.PutUint32(frame, uint32(len(frame)-frameHeader))
	le.PutUint32(frame[4:], crc32.Checksum(frame[frameHeader:], castagnoli))
	return nil
}

func (r *run) close() error { return r.file.Close() }

// runReader reads a run from its beginning; several may read one run.
type runReader struct {
	in   *bufio.Reader
	left int64 // bytes of the file
	mem  memory.Allocator
	buf  []byte
}

func (r *run) read(mem memory.Allocator) *runReader {
	return &runReader{in: bufio.NewReaderSize(io.NewSectionReader(r.file, 0, r.size), 256<<10), left: r.size, mem: mem}
}

// next reads the next batch; the caller owns it. io.EOF ends the run.
func (r *runReader) next() (arrow.RecordBatch, []int32, error) {
	if r.left == 0 {
		return nil, nil, io.EOF
	}
	le := binary.LittleEndian
	var head [frameHeader]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return nil, nil, fmt.Errorf("exchange: a run cannot be read: %w", err)
	}
	size := int64(le.Uint32(head[:]))
	if r.left -= frameHeader + size; r.left < 0 || size < 4 {
		return nil, nil, errors.New("exchange: a run is damaged: a frame does not fit into the file")
	}
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	b := r.buf[:size]
	if _, err := io.ReadFull(r.in, b); err != nil {
		return nil, nil, fmt.Errorf("exchange: a run cannot be read: %w", err)
	}
	if crc32.Checksum(b, castagnoli) != le.Uint32(head[4:]) {
		return nil, nil, errors.New("exchange: a run is damaged: its checksum differs")
	}
	n := int64(le.Uint32(b))
	if b = b[4:]; 4*n > int64(len(b)) {
		return nil, nil, fmt.Errorf("exchange: a run is damaged: %d rows in %d bytes", n, size)
	}
	streams := make([]int32, n)
	for i := range streams {
		streams[i] = int32(le.Uint32(b[4*i:]))
	}
	in, err := ipc.NewReader(bytes.NewReader(b[4*n:]), ipc.WithAllocator(r.mem))
	if err != nil {
		return nil, nil, fmt.Errorf("exchange: a run is damaged: %w", err)
	}
	defer in.Release()
	if !in.Next() {
		return nil, nil, fmt.Errorf("exchange: a run is damaged: %w", errors.Join(in.Err(), io.ErrUnexpectedEOF))
	}
	rec := in.RecordBatch()
	rec.Retain()
	return rec, streams, nil
}

// gather makes one record batch of rows that lie in several, in their order.
func gather(mem memory.Allocator, batches []arrow.RecordBatch, rows []row) (arrow.RecordBatch, error) {
	// The rows of each record batch are taken by themselves, joined and then put in order.
	chosen := make([][]int, len(batches))
	for _, r := range rows {
		chosen[r.batch] = append(chosen[r.batch], int(r.at))
	}
	var parts []arrow.RecordBatch
	defer func() { release(parts) }()
	next := make([]int, len(batches))
	sum := 0
	for b, at := range chosen {
		next[b] = sum
		if len(at) == 0 {
			continue
		}
		sum += len(at)
		part, err := arrowx.Take(mem, batches[b], at)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	if len(parts) == 1 {
		parts[0].Retain()
		return parts[0], nil
	}
	all, err := arrowx.Concat(mem, parts)
	if err != nil {
		return nil, err
	}
	defer all.Release()
	order := make([]int, len(rows))
	for i, r := range rows {
		order[i] = next[r.batch]
		next[r.batch]++
	}
	return arrowx.Take(mem, all, order)
}
