package exchange

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/zeebo/xxh3"

	"github.com/monolith-go/monolith/internal/arrowx"
)

// Dealer deals rows among partitions by the hash of a key: the same on every machine and in every version, because it
// may be stored beside positions. It is safe for concurrent use.
type Dealer struct {
	key        int
	partitions int
}

// NewDealer deals rows of a schema by a column as [Options] describe it. Errors: a column that is not there or of another
// type, less than one partition.
func NewDealer(schema *arrow.Schema, key string, partitions int) (Dealer, error) {
	if partitions < 1 {
		return Dealer{}, fmt.Errorf("exchange: %d partitions, want 1 or more", partitions)
	}
	at, err := column(schema, key, arrow.INT64, arrow.BINARY, arrow.STRING, arrow.LIST)
	if err != nil {
		return Dealer{}, err
	}
	if l, ok := schema.Field(at).Type.(*arrow.ListType); ok && l.Elem().ID() != arrow.INT64 {
		return Dealer{}, fmt.Errorf("exchange: column %q is %s, want list<int64>", key, l)
	}
	return Dealer{at, partitions}, nil
}

// Deal returns the rows of each partition, nil where there are none; the caller owns them, and rec stays the caller's.
func (d Dealer) Deal(mem memory.Allocator, rec arrow.RecordBatch) (parts []arrow.RecordBatch, err error) {
	chosen := make([][]int, d.partitions)
	keys := rec.Column(d.key)
	for i := range int(rec.NumRows()) {
		p := d.partition(keys, i)
		chosen[p] = append(chosen[p], i)
	}
	parts = make([]arrow.RecordBatch, d.partitions)
	for p, rows := range chosen {
		if len(rows) == 0 {
			continue
		}
		if parts[p], err = arrowx.Take(mem, rec, rows); err != nil {
			for _, part := range parts[:p] {
				if part != nil {
					part.Release()
				}
			}
			return nil, err
		}
	}
	return parts, nil
}

func (d Dealer) partition(keys arrow.Array, i int) int {
	if keys.IsNull(i) || d.partitions == 1 {
		return 0
	}
	var sum uint64
	switch k := keys.(type) {
	case *array.Int64:
		sum = hashOf(k.Value(i))
	case *array.List:
		if emptyList(k, i) {
			return 0
		}
		from, _ := k.ValueOffsets(i)
		sum = hashOf(k.ListValues().(*array.Int64).Value(int(from)))
	case *array.Binary:
		sum = xxh3.Hash(k.Value(i))
	case *array.String:
		sum = xxh3.HashString(k.Value(i))
	}
	return int(sum % uint64(d.partitions))
}

func hashOf(v int64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(v))
	return xxh3.Hash(b[:])
}
