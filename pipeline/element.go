package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Element is what an edge of a graph carries. It has one owner at a time: returning, emitting, queueing and writing an
// element hand it on, and the last owner calls Release exactly once. Using an element after handing it on is a bug.
type Element interface {
	// Origin describes which records the element was made of.
	Origin() Origin
	// NumRows is the number of examples in the element; 0 is legal (every record of the range was dropped).
	NumRows() int
	// Release gives the element's memory back.
	Release()
}

// Shareable is an [Element] that may have several owners at a time: a [Tee] gives the same element to each of its branches.
// Owners of a shared element only read it, also its Arrow buffers; who wants to change something makes an element of their
// own. Blocks and batches are shareable.
type Shareable interface {
	Element
	// Retain adds an owner: Release is to be called once more. Owners may call both at the same time.
	Retain()
}

// Divisible is an [Element] whose front can be cut off, for a branch of a graph that has that part already. Blocks and
// batches with [ColPosition] are divisible.
type Divisible interface {
	Element
	// After returns the records after a position within the element's range as an element of its own, whose origin begins
	// there. The element stays whole and the caller's. Errors: [ErrSchema].
	After(at Position) (Element, error)
}

// Timed is an [Element] whose watermark can be set: the executor does so when a reader has returned it, before anybody else
// has it, unless the source says one itself ([Origin].Watermark). Blocks and batches are timed.
type Timed interface {
	Element
	SetWatermark(micros int64)
}

// Reserved column names. They begin and end with two underscores, which no feature name may.
const (
	// ColPayload holds undecoded records: binary, in blocks only.
	ColPayload = "__payload__"
	// ColKey holds record keys: binary, nullable.
	ColKey = "__key__"
	// ColTime holds event times: int64 microseconds since 1970.
	ColTime = "__time__"
	// ColPosition holds, for each row, the position just after the row's record: int64, strictly increasing. A batch
	// may be cut after any row: the first part ends, and the second starts, at that row's value. It is present in
	// every block and in every batch up to the stage that makes training batches.
	ColPosition = "__position__"
	// ColBegin holds, for each row, where the row's record begins in its split: int64. It is the place that messages name, and
	// stays what it is when rows are read in another order, or once more. Sources that pass over places between records
	// have it; without it a record begins where the one before it ended.
	ColBegin = "__begin__"
	// ColDraw holds, for each row, a number that chance for the row goes by: int64. It depends on what the row's file holds and on
	// the row's place there. Neither the reader, the file's name nor the order of reading changes it. Sources of plain columns have
	// it where they are asked for it. Without it, records are drawn by their bytes and [ColBegin], plain columns by [ColBegin] alone.
	ColDraw = "__draw__"
	// ColLabel holds the labels of a model's only head: float32, or a fixed-size list of float32 where it has several a row.
	// They are in the range that the head's loss accepts: the stage that makes the column ensures that, and nobody downstream checks
	// again. The labels of named heads lie in columns of their own, see [LabelColumn].
	ColLabel = "__label__"
	// ColWeight holds example weights: float32; absent means 1.
	ColWeight = "__weight__"
	// ColLineID holds the serialized line id (user, request time, item): binary.
	ColLineID = "__line_id__"
)

// LabelColumn returns the column of a head's labels, of the type and range of [ColLabel]: __label_HEAD__ for a named head
// (heads: in a job), and [ColLabel], __label__, for the empty name, the only head of a job with parse.label.
func LabelColumn(head string) string {
	if head == "" {
		return ColLabel
	}
	return "__label_" + head + "__"
}

// MaskColumn is the column, boolean, that is false in the rows without a label for a head; absent: all have one. What a label
// column holds in such rows means nothing.
func MaskColumn(head string) string {
	if head == "" {
		return "__mask__"
	}
	return "__mask_" + head + "__"
}

// KeyColumn is the column, binary, of the values of a key that metrics group or slice by: a user, a request, a country.
func KeyColumn(key string) string { return "__key_" + key + "__" }

// Reserved reports whether a column name is reserved, that is begins and ends with two underscores.
func Reserved(name string) bool {
	return len(name) >= 4 && name[:2] == "__" && name[len(name)-2:] == "__"
}

// PlainName is the name of a column of a schema without the prefix of reserved ones: label, weight, time and so on,
// without the underscores, unless another column has that name.
func PlainName(s *arrow.Schema, name string) string {
	if Reserved(name) {
		if plain := strings.Trim(name, "_"); plain != "" && !s.HasField(plain) {
			return plain
		}
	}
	return name
}

// Block is a run of undecoded records of one split: an Arrow record batch with a payload column, a position column
// and, where the source has them, key and time columns. See [BlockSchema].
type Block struct{ table }

// Batch is a run of examples of one split: an Arrow record batch of feature columns (sparse: list<int64> of fids in CSR
// form; dense: float32 or fixed-size list of float32; sequence: a list whose order counts) with the reserved columns.
type Batch struct{ table }

var (
	_ Shareable = (*Block)(nil)
	_ Shareable = (*Batch)(nil)
	_ Divisible = (*Block)(nil)
	_ Divisible = (*Batch)(nil)
	_ Timed     = (*Block)(nil)
	_ Timed     = (*Batch)(nil)
)

type table struct {
	rec    arrow.RecordBatch
	origin Origin
}

// NewBlock makes a block of a record batch that has [ColPayload] and [ColPosition]. It takes over the caller's
// reference. Errors: [ErrSchema].
func NewBlock(rec arrow.RecordBatch, origin Origin) (*Block, error) {
	if i := rec.Schema().FieldIndices(ColPayload); len(i) != 1 || rec.Column(i[0]).DataType().ID() != arrow.BINARY {
		return nil, fmt.Errorf("pipeline: block of %s without one binary %s column: %w", origin, ColPayload, ErrSchema)
	}
	if err := checkPositions(rec, origin); err != nil {
		return nil, err
	}
	return &Block{table{rec, origin}}, nil
}

// NewBatch makes a batch of a record batch. It takes over the caller's reference. A position column, when present, must
// be int64 without nulls. Errors: [ErrSchema].
func NewBatch(rec arrow.RecordBatch, origin Origin) (*Batch, error) {
	if rec.Schema().HasField(ColPosition) {
		if err := checkPositions(rec, origin); err != nil {
			return nil, err
		}
	}
	return &Batch{table{rec, origin}}, nil
}

func checkPositions(rec arrow.RecordBatch, origin Origin) error {
	i := rec.Schema().FieldIndices(ColPosition)
	if len(i) != 1 {
		return fmt.Errorf("pipeline: record batch of %s without one %s column: %w", origin, ColPosition, ErrSchema)
	}
	col, ok := rec.Column(i[0]).(*array.Int64)
	if !ok || col.NullN() != 0 {
		return fmt.Errorf("pipeline: column %s of %s is not int64 without nulls: %w", ColPosition, origin, ErrSchema)
	}
	if n := col.Len(); n > 0 && (Position(col.Value(0)) <= origin.From || Position(col.Value(n-1)) > origin.To) {
		return fmt.Errorf("pipeline: positions %d to %d lie outside %s: %w", col.Value(0), col.Value(n-1), origin, ErrSchema)
	}
	return nil
}

// Record returns the Arrow record batch without a new reference: it is valid until the element is handed on.
func (t *table) Record() arrow.RecordBatch { return t.rec }

// Origin implements [Element].
func (t *table) Origin() Origin { return t.origin }

// NumRows implements [Element].
func (t *table) NumRows() int { return int(t.rec.NumRows()) }

// Release implements [Element].
func (t *table) Release() { t.rec.Release() }

// Retain implements [Shareable].
func (t *table) Retain() { t.rec.Retain() }

// SetWatermark implements [Timed].
func (t *table) SetWatermark(micros int64) { t.origin.Watermark = micros }

// Column returns the named column without a new reference, or nil.
func (t *table) Column(name string) arrow.Array {
	for i, s := 0, t.rec.Schema(); i < s.NumFields(); i++ { // Schema.FieldIndices would allocate
		if s.Field(i).Name == name {
			return t.rec.Column(i)
		}
	}
	return nil
}

// Positions returns the values of [ColPosition], one a row, or nil when the column is absent. The slice belongs to the
// element.
func (t *table) Positions() []int64 {
	col, ok := t.Column(ColPosition).(*array.Int64)
	switch {
	case !ok:
		return nil
	case col.Len() == 0: // whose values are nil
		return []int64{}
	}
	return col.Int64Values()
}

// Begins returns the values of [ColBegin], one a row, or nil when the column is absent. The slice belongs to the element.
func (t *table) Begins() []int64 {
	col, ok := t.Column(ColBegin).(*array.Int64)
	if !ok {
		return nil
	}
	return col.Int64Values()
}

// Payload returns the records of a block; row i is what [array.Binary.Value] returns.
func (b *Block) Payload() *array.Binary { return b.Column(ColPayload).(*array.Binary) }

// Slice returns rows [from, to) as a batch of its own with its own reference; b stays whole and owned by the caller. The
// origin follows [ColPosition]; without that column only the whole batch can be had. Errors: [ErrSchema].
func (b *Batch) Slice(from, to int) (*Batch, error) {
	rec, origin, err := b.slice(from, to)
	if err != nil {
		return nil, err
	}
	return &Batch{table{rec, origin}}, nil
}

// After implements [Divisible]; the rows share the batch's memory.
func (b *Batch) After(at Position) (Element, error) {
	t, err := b.after(at)
	if err != nil {
		return nil, err
	}
	return &Batch{t}, nil
}

// After implements [Divisible]; the rows share the block's memory.
func (b *Block) After(at Position) (Element, error) {
	t, err := b.after(at)
	if err != nil {
		return nil, err
	}
	return &Block{t}, nil
}

func (t *table) after(at Position) (table, error) {
	pos, origin := t.Positions(), t.origin
	if pos == nil {
		return table{}, fmt.Errorf("pipeline: %s has no %s column, so it cannot be divided at %d: %w", origin, ColPosition, at, ErrSchema)
	}
	if at < origin.From || at > origin.To {
		return table{}, fmt.Errorf("pipeline: position %d lies outside of %s: %w", at, origin, ErrSchema)
	}
	first, _ := slices.BinarySearch(pos, int64(at)+1)
	origin.From = at
	return table{t.rec.NewSlice(int64(first), t.rec.NumRows()), origin}, nil
}

func (t *table) slice(from, to int) (arrow.RecordBatch, Origin, error) {
	n, pos, origin := t.NumRows(), t.Positions(), t.origin
	if from < 0 || to > n || from > to {
		return nil, origin, fmt.Errorf("pipeline: rows [%d,%d) of %d of %s: %w", from, to, n, origin, ErrSchema)
	}
	if pos == nil && (from != 0 || to != n) {
		return nil, origin, fmt.Errorf("pipeline: %s has no %s column, so it cannot be divided: %w", origin, ColPosition, ErrSchema)
	}
	if from > 0 {
		origin.From = Position(pos[from-1])
	}
	if to < n {
		origin.Watermark = min(origin.Watermark, origin.MinTime) // of the rows after
		if to > 0 {
			origin.To = Position(pos[to-1])
		} else {
			origin.To = origin.From
		}
	}
	return t.rec.NewSlice(int64(from), int64(to)), origin, nil
}

// MetadataHeader is the key, in the metadata of the schema of a block, of the line that names the columns of its records,
// where they have one.
const MetadataHeader = "header"

// MetadataKind is the key, in the metadata of a field that describes a column as it is stored, of what its whole numbers mean: date, time (of the day), timestamp, or uint64.
const MetadataKind = "kind"

// BlockSchema is the schema of blocks: payload and position, and key and time where the source has them.
func BlockSchema(key, time bool) *arrow.Schema {
	f := []arrow.Field{
		{Name: ColPayload, Type: arrow.BinaryTypes.Binary},
		{Name: ColPosition, Type: arrow.PrimitiveTypes.Int64},
	}
	if key {
		f = append(f, arrow.Field{Name: ColKey, Type: arrow.BinaryTypes.Binary, Nullable: true})
	}
	if time {
		f = append(f, arrow.Field{Name: ColTime, Type: arrow.PrimitiveTypes.Int64})
	}
	return arrow.NewSchema(f, nil)
}

// WithBegin returns a schema of blocks or batches with [ColBegin] behind its columns.
func WithBegin(s *arrow.Schema) *arrow.Schema {
	md := s.Metadata()
	return arrow.NewSchema(append(slices.Clone(s.Fields()), arrow.Field{Name: ColBegin, Type: arrow.PrimitiveTypes.Int64}), &md)
}

// CheckColumns returns one error that names every column of want that have lacks or holds with another type. Each
// problem wraps [ErrSchema].
func CheckColumns(have *arrow.Schema, want ...arrow.Field) error {
	var faults []error
	for _, w := range want {
		i := have.FieldIndices(w.Name)
		switch {
		case len(i) == 0:
			names := make([]string, 0, have.NumFields())
			for _, f := range have.Fields() {
				names = append(names, f.Name)
			}
			slices.Sort(names)
			faults = append(faults, fmt.Errorf("no column %q among %q: %w", w.Name, names, ErrSchema))
		case len(i) > 1:
			faults = append(faults, fmt.Errorf("column %q stands %d times: %w", w.Name, len(i), ErrSchema))
		case !arrow.TypeEqual(have.Field(i[0]).Type, w.Type):
			faults = append(faults, fmt.Errorf("column %q is %s, not %s: %w", w.Name, have.Field(i[0]).Type, w.Type, ErrSchema))
		}
	}
	return errors.Join(faults...)
}
