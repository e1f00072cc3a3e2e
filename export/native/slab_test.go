package native

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/table"
)

// TestSlabBytes: a slab has the bytes that its description says, written number by number, however many weights rows have and however they come in batches.
func TestSlabBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ dim, rows int }{{1, 1000}, {5, 1000}, {6, 1000}, {17, 1000}, {1, perChunk}, {1, 2*perChunk + 3}} {
		dim, rows := c.dim, c.rows
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		rng := rand.New(rand.NewPCG(uint64(dim), 1))
		fields := []arrow.Field{{Name: columnID, Type: arrow.PrimitiveTypes.Int64}, {Name: columnWeights, Type: arrow.FixedSizeListOfNonNullable(int32(dim), arrow.PrimitiveTypes.Float32)}}
		ids, weights := make([]int64, rows), make([][]float32, rows)
		b := array.NewRecordBuilder(mem, arrow.NewSchema(fields, nil))
		for i := range rows {
			ids[i] = table.Unhash(uint64(i)*(math.MaxUint64/uint64(rows)) + rng.Uint64N(math.MaxUint64/uint64(rows)))
			b.Field(0).(*array.Int64Builder).Append(ids[i])
			list := b.Field(1).(*array.FixedSizeListBuilder)
			list.Append(true)
			for range dim {
				w := float32(rng.NormFloat64())
				weights[i] = append(weights[i], w)
				list.ValueBuilder().(*array.Float32Builder).Append(w)
			}
		}
		all := b.NewRecordBatch()
		b.Release()

		var got bytes.Buffer
		e, err := slabs{table: "t", dim: dim}.Begin(&got, all.Schema())
		if err != nil {
			t.Fatal(err)
		}
		for from := int64(0); from < int64(rows); {
			to := min(from+1+rng.Int64N(300), int64(rows))
			part, err := pipeline.NewBatch(all.NewSlice(from, to), pipeline.Origin{Source: "s", Split: "p", From: pipeline.Position(from), To: pipeline.Position(to)})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Write(part); err != nil {
				t.Fatal(err)
			}
			part.Release()
			from = to
		}
		meta := map[string]string{"k": "v"}
		if err := e.End(meta); err != nil {
			t.Fatal(err)
		}
		all.Release()
		mem.AssertSize(t, 0)

		want := append([]byte(magic), make([]byte, headBytes-len(magic))...)
		for _, row := range weights {
			for _, w := range row {
				want = binary.LittleEndian.AppendUint32(want, math.Float32bits(w))
			}
		}
		for len(want)%8 != 0 {
			want = append(want, 0)
		}
		for _, id := range ids {
			want = binary.LittleEndian.AppendUint64(want, uint64(id))
		}
		first, last := table.Hash(ids[0]), table.Hash(ids[rows-1])
		parts, shift := int64(1), uint8(0)
		for parts <= int64(rows/perPart) {
			parts *= 2
		}
		for (last-first)>>shift >= uint64(parts) {
			shift++
		}
		in := make([]uint32, parts+1) // rows by parts
		for _, id := range ids {
			in[(table.Hash(id)-first)>>shift]++
		}
		before := uint32(0)
		for _, n := range in {
			want = binary.LittleEndian.AppendUint32(want, before)
			before += n
		}
		text, err := json.Marshal(footer{Table: "t", Rows: int64(rows), Dim: int64(dim), First: first, Last: last, Shift: shift, Parts: parts, CRC32C: crc32.Checksum(want, castagnoli), Meta: meta})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, text...)
		want = binary.LittleEndian.AppendUint32(want, uint32(len(text)))
		want = append(binary.LittleEndian.AppendUint32(want, crc32.Checksum(text, castagnoli)), magic...)
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%d rows of %d weights: %d bytes, want %d, or others", rows, dim, got.Len(), len(want))
		}
	}
}
