// Package shuffle keeps the rows of a [pipeline.Shuffle] for runners, in memory and on disk, and carries them between
// processes.
package shuffle

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/exchange"
	"github.com/monolith-go/monolith/pipeline"
)

// Rows are those of a shuffle, in this process: in memory up to a limit, otherwise on disk.
type Rows struct {
	info pipeline.ShuffleInfo
	x    *exchange.Exchange
}

var _ pipeline.Exchange = (*Rows)(nil)

// New makes a place for the rows of a shuffle: o.ShuffleMemory bounds those in memory, the others lie in files below
// o.ShuffleDir. The caller calls Done when everything was put, and Close. Errors: those of the file system.
func New(info pipeline.ShuffleInfo, o pipeline.RunOptions) (*Rows, error) {
	x, err := exchange.New(info.Schema, exchange.Options{
		Key: info.Key, Position: pipeline.ColPosition, Partitions: info.Partitions, MemoryLimit: o.ShuffleMemory, Dir: o.ShuffleDir,
	})
	if err != nil {
		return nil, err
	}
	return &Rows{info, x}, nil
}

// Put implements [pipeline.Exchange].
func (g *Rows) Put(ctx context.Context, b *pipeline.Batch) error {
	defer b.Release()
	return g.x.Add(ctx, b.Origin().ID().String(), b.Record())
}

// Done says that everything was put. Errors: those of the file system, also of earlier calls of Put.
func (g *Rows) Done() error { return g.x.Done() }

// Close frees memory and files, after the readers were closed. It may be called more than once.
func (g *Rows) Close() error { return g.x.Close() }

// Open implements [pipeline.Exchange].
func (g *Rows) Open(_ context.Context, _ *pipeline.Env, partition int, from pipeline.Position) (pipeline.Reader[*pipeline.Batch], error) {
	r, err := g.x.Open(partition, int64(from))
	if err != nil {
		return nil, err
	}
	return &reader{r: r, source: g.info.Name, split: g.info.Split(partition)}, nil
}

// reader returns the rows of a partition.
type reader struct {
	r             *exchange.Reader
	source, split string
}

// Next implements [pipeline.Reader].
func (r *reader) Next(ctx context.Context) (*pipeline.Batch, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	from := r.Position()
	rec, err := r.r.Next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, err
	}
	o := pipeline.Origin{Source: r.source, Split: r.split, From: from, To: r.Position()}
	o.MinTime, o.MaxTime = times(rec)
	return pipeline.NewBatch(rec, o)
}

// times are the smallest and the largest event time, 0 when there are none.
func times(rec arrow.RecordBatch) (smallest, largest int64) {
	at := rec.Schema().FieldIndices(pipeline.ColTime)
	if len(at) != 1 {
		return 0, 0
	}
	col, ok := rec.Column(at[0]).(*array.Int64)
	if !ok {
		return 0, 0
	}
	for i := range col.Len() {
		if t := col.Value(i); !col.IsNull(i) {
			if largest = max(largest, t); smallest == 0 || t < smallest {
				smallest = t
			}
		}
	}
	return smallest, largest
}

// Position implements [pipeline.Reader].
func (r *reader) Position() pipeline.Position { return pipeline.Position(r.r.Position()) }

// Close implements [pipeline.Reader].
func (r *reader) Close() error { return r.r.Close() }

// Sender carries what is put to other processes: in messages, each the rows of one batch for one partition.
type Sender struct {
	info   pipeline.ShuffleInfo
	dealer exchange.Dealer
	send   func(ctx context.Context, partition int, message []byte) error
}

var _ pipeline.Exchange = (*Sender)(nil)

// NewSender gives send the messages of a shuffle, which owns them. It is called from the goroutines that call Put.
func NewSender(info pipeline.ShuffleInfo, send func(ctx context.Context, partition int, message []byte) error) (*Sender, error) {
	dealer, err := exchange.NewDealer(info.Schema, info.Key, info.Partitions)
	return &Sender{info, dealer, send}, err
}

// Put implements [pipeline.Exchange].
func (s *Sender) Put(ctx context.Context, b *pipeline.Batch) error {
	defer b.Release()
	parts, err := s.dealer.Deal(memory.DefaultAllocator, b.Record())
	if err != nil {
		return err
	}
	defer func() {
		for _, part := range parts {
			if part != nil {
				part.Release()
			}
		}
	}()
	for p, part := range parts {
		if part == nil {
			continue
		}
		message, err := encode(b.Origin().ID(), part)
		if err != nil {
			return err
		}
		if err := s.send(ctx, p, message); err != nil {
			return err
		}
	}
	return nil
}

// Open implements [pipeline.Exchange]: nothing can be read where rows are sent away.
func (s *Sender) Open(context.Context, *pipeline.Env, int, pipeline.Position) (pipeline.Reader[*pipeline.Batch], error) {
	return nil, fmt.Errorf("shuffle %q: its rows are in other processes: %w", s.info.Name, pipeline.ErrConfig)
}

// A message is
//
//	length of the split's name uint32, little-endian | its name as [pipeline.SplitID] renders it | Arrow IPC stream
func encode(id pipeline.SplitID, rec arrow.RecordBatch) ([]byte, error) {
	name := id.String()
	var b bytes.Buffer
	b.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(name))))
	b.WriteString(name)
	w := ipc.NewWriter(&b, ipc.WithSchema(rec.Schema()))
	err := errors.Join(w.Write(rec), w.Close())
	return b.Bytes(), err
}

// Receive puts what a [Sender] has sent. Messages come from a runner that keeps them whole; one that is not whole is an
// error.
func (g *Rows) Receive(ctx context.Context, message []byte) error {
	bad := func(err error) error {
		return fmt.Errorf("shuffle %q: message of %d bytes: %w", g.info.Name, len(message), err)
	}
	if len(message) < 4 || int64(binary.LittleEndian.Uint32(message)) > int64(len(message)-4) {
		return bad(io.ErrUnexpectedEOF)
	}
	n := binary.LittleEndian.Uint32(message)
	name, rest := string(message[4:4+n]), message[4+n:]
	r, err := ipc.NewReader(bytes.NewReader(rest))
	if err != nil {
		return bad(err)
	}
	defer r.Release()
	if !r.Next() {
		return bad(errors.Join(r.Err(), io.ErrUnexpectedEOF))
	}
	return g.x.Add(ctx, name, r.RecordBatch())
}
