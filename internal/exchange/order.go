package exchange

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// keys are the columns that rows of one record batch are ordered by.
type keys struct {
	none      func(i int) bool
	numbers   []int64
	bytes     *array.Binary
	text      *array.String
	positions []int64
}

func (x *Exchange) keysOf(rec arrow.RecordBatch) keys {
	k := keys{none: rec.Column(x.dealer.key).IsNull, positions: rec.Column(x.posCol).(*array.Int64).Int64Values()}
	switch col := rec.Column(x.dealer.key).(type) {
	case *array.Int64:
		k.numbers = col.Int64Values()
	case *array.Binary:
		k.bytes = col
	case *array.String:
		k.text = col
	case *array.List:
		values := col.ListValues().(*array.Int64)
		k.numbers = make([]int64, col.Len())
		k.none = func(i int) bool { return emptyList(col, i) }
		for i := range k.numbers {
			if !k.none(i) {
				from, _ := col.ValueOffsets(i)
				k.numbers[i] = values.Value(int(from))
			}
		}
	}
	return k
}

// emptyList reports whether a list has no first value.
func emptyList(l *array.List, i int) bool {
	from, to := l.ValueOffsets(i)
	return l.IsNull(i) || from == to || l.ListValues().IsNull(int(from))
}

// compareKeys orders row i of a and row j of b by their keys alone; no key comes first.
func compareKeys(a *keys, i int, b *keys, j int) int {
	switch noA, noB := a.none(i), b.none(j); {
	case noA && noB:
		return 0
	case noA:
		return -1
	case noB:
		return 1
	}
	switch {
	case a.bytes != nil:
		return bytes.Compare(a.bytes.Value(i), b.bytes.Value(j))
	case a.text != nil:
		return strings.Compare(a.text.Value(i), b.text.Value(j))
	default:
		return cmp.Compare(a.numbers[i], b.numbers[j])
	}
}

// row is a place in a list of record batches, and the stream that the row is of.
type row struct{ batch, at, stream int32 }

// sorted returns the rows of record batches by key, stream and position, and the columns that they are ordered by;
// rank[i] is the place of stream i among the streams.
func (x *Exchange) sorted(batches []held, rank []int32) (rows []row, columns []keys) {
	columns = make([]keys, len(batches))
	for b, h := range batches {
		columns[b] = x.keysOf(h.rec)
		for i := range int32(h.rec.NumRows()) {
			rows = append(rows, row{int32(b), i, h.stream})
		}
	}
	slices.SortFunc(rows, func(a, b row) int {
		ka, kb := &columns[a.batch], &columns[b.batch]
		if c := compareKeys(ka, int(a.at), kb, int(b.at)); c != 0 {
			return c
		}
		if c := cmp.Compare(rank[a.stream], rank[b.stream]); c != 0 {
			return c
		}
		return cmp.Compare(ka.positions[a.at], kb.positions[b.at])
	})
	return rows, columns
}
