package migrate

import (
	"context"
	"errors"
	"io"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/exchange"
	"github.com/monolith-go/monolith/ps/table"
)

// The columns of rows on their way into a table.
const (
	colPlace = iota // table.Hash of the id, in the order of int64
	colID
	colTime
	colCount
	colValues // weights and state
	colNumber
)

// spillRows is how many rows go into the sort at once.
const spillRows = 4096

// spill sorts the rows of one table by table.Hash.
type spill struct {
	sort          *exchange.Exchange
	build         *array.RecordBuilder
	dim, stateDim int
	stream        string
	number        int64 // of the row in its stream
	held          int

	reader *exchange.Reader
	batch  arrow.RecordBatch // being read; nil: none
	at     int
	twice  int64 // rows that another of the same id replaced
}

// place is where an id comes among the rows of a table, as a number that sorts the same.
func place(id int64) int64 { return int64(table.Hash(id) ^ 1<<63) }

func newSpill(dim, stateDim int, dir string, limit int64) (*spill, error) {
	long := arrow.PrimitiveTypes.Int64
	schema := arrow.NewSchema([]arrow.Field{
		colPlace: {Name: "place", Type: long}, colID: {Name: "id", Type: long}, colTime: {Name: "time", Type: long}, colCount: {Name: "count", Type: long},
		colValues: {Name: "values", Type: arrow.FixedSizeListOfNonNullable(int32(dim+stateDim), arrow.PrimitiveTypes.Float32)},
		colNumber: {Name: "number", Type: long},
	}, nil)
	x, err := exchange.New(schema, exchange.Options{Key: "place", Position: "number", Partitions: 1, Dir: dir, MemoryLimit: limit})
	if err != nil {
		return nil, err
	}
	return &spill{sort: x, build: array.NewRecordBuilder(memory.DefaultAllocator, schema), dim: dim, stateDim: stateDim}, nil
}

// begin says that the rows to come are those of a file.
func (s *spill) begin(ctx context.Context, stream string) error {
	err := s.flush(ctx)
	s.stream, s.number = stream, 0
	return err
}

// add adds a row. Where an id comes twice the row with the larger time stays, or the one that comes later in the order of files.
func (s *spill) add(ctx context.Context, id, time int64, count uint64, weights, state []float32) error {
	s.build.Field(colPlace).(*array.Int64Builder).Append(place(id))
	s.build.Field(colID).(*array.Int64Builder).Append(id)
	s.build.Field(colTime).(*array.Int64Builder).Append(time)
	s.build.Field(colCount).(*array.Int64Builder).Append(int64(min(count, math.MaxInt64)))
	list := s.build.Field(colValues).(*array.FixedSizeListBuilder)
	list.Append(true)
	values := list.ValueBuilder().(*array.Float32Builder)
	values.AppendValues(weights, nil)
	values.AppendValues(state, nil)
	s.build.Field(colNumber).(*array.Int64Builder).Append(s.number)
	s.number++
	if s.held++; s.held == spillRows {
		return s.flush(ctx)
	}
	return nil
}

func (s *spill) flush(ctx context.Context) error {
	if s.held == 0 {
		return nil
	}
	rec := s.build.NewRecordBatch()
	defer rec.Release()
	s.held = 0
	return s.sort.Add(ctx, s.stream, rec)
}

// open begins to read.
func (s *spill) open(ctx context.Context) error {
	if err := s.flush(ctx); err != nil {
		return err
	}
	if err := s.sort.Done(); err != nil {
		return err
	}
	var err error
	s.reader, err = s.sort.Open(0, 0)
	return err
}

// more makes sure that there is a row to be read; false: that was all.
func (s *spill) more() (bool, error) {
	for s.batch == nil || s.at == int(s.batch.NumRows()) {
		s.release()
		rec, err := s.reader.Next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		s.batch, s.at = rec, 0
	}
	return true, nil
}

func (s *spill) release() {
	if s.batch != nil {
		s.batch.Release()
		s.batch = nil
	}
}

// next appends rows in order to dst, at most limit, up to those for which end reports true, and reports whether there were any.
func (s *spill) next(dst *table.Rows, limit int, end func(id int64) bool) (bool, error) {
	n := 0
	for n < limit {
		ok, err := s.more()
		if err != nil {
			return false, err
		}
		if !ok {
			break
		}
		id := s.batch.Column(colID).(*array.Int64).Value(s.at)
		if end(id) {
			break
		}
		best, err := s.newest(dst, id)
		if err != nil {
			return false, err
		}
		n += best
	}
	return n > 0, nil
}

// newest appends the row that counts of those of an id, which come one after the other.
func (s *spill) newest(dst *table.Rows, id int64) (int, error) {
	width, first := s.dim+s.stateDim, true
	at := len(dst.Keys)
	for {
		ok, err := s.more()
		if err != nil {
			return 0, err
		}
		if !ok || s.batch.Column(colID).(*array.Int64).Value(s.at) != id {
			return 1, nil
		}
		time := s.batch.Column(colTime).(*array.Int64).Value(s.at)
		if !first {
			s.twice++
		}
		if first || time >= dst.Times[at] {
			dst.Keys, dst.Times, dst.Counts = append(dst.Keys[:at], id), append(dst.Times[:at], time), append(dst.Counts[:at], uint64(s.batch.Column(colCount).(*array.Int64).Value(s.at)))
			list := s.batch.Column(colValues).(*array.FixedSizeList)
			from, _ := list.ValueOffsets(s.at)
			row := list.ListValues().(*array.Float32).Float32Values()[from:][:width]
			dst.Weights = append(dst.Weights[:at*s.dim], row[:s.dim]...)
			dst.State = append(dst.State[:at*s.stateDim], row[s.dim:]...)
		}
		first = false
		s.at++
	}
}

func (s *spill) close() error {
	s.release()
	s.build.Release()
	var err error
	if s.reader != nil {
		err = s.reader.Close()
	}
	return errors.Join(err, s.sort.Close())
}
