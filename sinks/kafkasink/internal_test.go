package kafkasink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/internal/kafkawire"
	"github.com/monolith-go/monolith/pipeline"
)

// FuzzAnswers feeds every decoder of a broker's answers that is the sink's own: bounded memory, no panic.
func FuzzAnswers(f *testing.F) {
	huge := []byte{0, 0, 0, 0, 0x5d, 0x3e, 0xaa, 0xac, 0, 0, 0, 0}
	f.Add(huge)
	f.Add(huge[4:])
	f.Add([]byte(strings.Repeat("\x00\x00\x00\x01", 40)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, version := range []int16{produceOld, produceZstd, produceWithErrors} {
			_, _ = decodeProduce(b, version)
		}
		_, _, _ = decodeCreateTopic(b, "out")
		_, _, _, _ = decodeInitProducer(b)
		_, _ = decodeAddToTxn(b)
		_, _ = decodeEndTxn(b)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(1<<20+200*len(b)) {
			t.Fatalf("%d bytes were allocated for %d", n, len(b))
		}
	})
}

var someSplit = pipeline.SplitID{Source: "kafka", Split: "clicks-00003"}

// someBatch is a batch of a transaction with n rows of a split after position from, at an offset.
func someBatch(t testing.TB, codec int, offset, producer int64, from, n int) []byte {
	t.Helper()
	var records []Record
	var index []int
	for i := range n {
		r := rows{}
		r.add(nil, false, time.Time{}, func(dst []byte) []byte { return append(dst, "value"...) })
		r.spans[0].at = pipeline.Progress{Position: pipeline.Position(from + i + 1), Rows: int64(from + i + 1), Batches: 1}
		records = r.records(records, 0, []Header{{HeaderOutput, []byte("out")}, {HeaderSource, []byte(someSplit.Source)}, {HeaderSplit, []byte(someSplit.Split)}})
		index = append(index, i)
	}
	b, err := encodeBatch(records, index, codec, time.UnixMilli(1_700_000_000_000), producing{txn: "x", id: producer})
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint64(b, uint64(offset))
	return b
}

// marker is a control batch that commits or aborts.
func marker(offset, producer int64, commit byte) []byte {
	b, err := encodeBatch([]Record{{Key: []byte{0, 0, 0, commit}, Value: make([]byte, 6)}}, []int{0}, 0, time.UnixMilli(1), producing{txn: "x", id: producer})
	if err != nil {
		panic(err)
	}
	binary.BigEndian.PutUint64(b, uint64(offset))
	b[batchAttrsAt+1] |= attrControl
	binary.BigEndian.PutUint32(b[batchCRCAt:], crc32.Checksum(b[batchAttrsAt:], castagnoli))
	return b
}

func newChunk(from, to int64) *chunk {
	return &chunk{from: from, to: to, output: "out", wanted: map[pipeline.SplitID]bool{someSplit: true}, unpack: &kafkawire.Unpacker{Limit: 1 << 20}}
}

// TestBackwardsFindsTheLastCommitted reads a log whose end is anywhere, in chunks of every size from that end on, and finds the
// last committed row, however transactions straddle the chunks.
func TestBackwardsFindsTheLastCommitted(t *testing.T) {
	t.Parallel()
	var log []byte
	begins := map[int64]int{} // where batches begin, by offset
	add := func(b []byte) {
		begins[int64(binary.BigEndian.Uint64(b))] = len(log)
		log = append(log, b...)
	}
	add(someBatch(t, 0, 0, 7, 0, 3)) // 0 to 2
	add(marker(3, 7, 1))
	add(someBatch(t, kafkawire.CodecZstd, 4, 7, 3, 2)) // 4 to 5, the first part of a transaction
	add(someBatch(t, 0, 6, 8, 90, 1))                  // another producer's, which is aborted
	add(someBatch(t, 0, 7, 7, 5, 1))                   // the other part
	add(marker(8, 8, 0))
	add(marker(9, 7, 1))
	add(someBatch(t, kafkawire.CodecGzip, 10, 7, 6, 4)) // 10 to 13, aborted
	add(marker(14, 7, 0))
	add(someBatch(t, 0, 15, 9, 50, 2)) // 15 to 16, never ended
	for last, want := range map[int64]pipeline.Position{
		3: pipeline.NoPosition, 4: 3, 6: 3, 8: 3, 9: 3, 10: 6, 14: 6, 15: 6, 17: 6,
	} {
		for size := int64(1); size <= last; size++ {
			found, err := backwards(0, last, size, func(from, to int64) (*chunk, error) {
				// A broker answers with whole batches, from the one that holds the first offset on.
				begin, base := 0, int64(0)
				for offset, at := range begins {
					if offset <= from && offset >= base {
						begin, base = at, offset
					}
				}
				c := newChunk(from, to)
				next, err := c.scan(log[begin:], from)
				if err == nil && next < to {
					t.Errorf("from %d to %d: went to %d", from, to, next)
				}
				return c, err
			}, 1)
			got := pipeline.NoPosition
			if p, ok := found[someSplit]; ok {
				got = p.Position
			}
			if got != want || err != nil {
				t.Errorf("end %d, chunks of %d: position %d, %v, want %d", last, size, got, err, want)
			}
		}
	}
	damaged := bytes.Clone(log)
	damaged[len(damaged)-1] ^= 1
	if _, err := newChunk(0, 17).scan(damaged, 0); err == nil || !strings.Contains(err.Error(), "offset 15: checksum") {
		t.Errorf("a wrong checksum: %v", err)
	}
}

// FuzzScan: whatever a broker sends as records, reading it back ends, in bounded memory, and never goes back.
func FuzzScan(f *testing.F) {
	var log []byte
	for i, codec := range []int{0, 1, 2, 3, 4} {
		log = append(log, someBatch(f, codec, int64(i)*4, 7, i*3, 3)...)
		log = append(log, marker(int64(i)*4+3, 7, 1)...)
	}
	f.Add(log, int64(0), int64(20), true)
	f.Add(log, int64(5), int64(7), false)
	f.Fuzz(func(t *testing.T, records []byte, from, to int64, sum bool) {
		if from < 0 || to < from {
			return
		}
		if sum && len(records) >= batchOverhead { // so that what follows the checksum is looked at
			if n := int64(binary.BigEndian.Uint32(records[batchLengthAt:])) + batchPrefix; n <= int64(len(records)) && n >= batchOverhead {
				records = bytes.Clone(records)
				binary.BigEndian.PutUint32(records[batchCRCAt:], crc32.Checksum(records[batchAttrsAt:n], castagnoli))
			}
		}
		c := newChunk(from, to)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		next, err := c.scan(records, from)
		c.settle(nil)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(64<<20+300*len(records)) {
			t.Fatalf("%d bytes were allocated for %d", n, len(records))
		}
		if next < from {
			t.Fatalf("from %d to %d, %v", from, next, err)
		}
		for id, p := range c.found {
			if p.at.Position < 0 || p.at.Rows < 0 || p.at.Batches < 0 || p.offset < from || p.offset >= to || id != someSplit {
				t.Fatalf("%v: %+v", id, p)
			}
		}
	})
}

// TestRecordsOfRows: a column of keys is the record's key and no member of the object; its time is that of writing, whatever time
// a row has.
func TestRecordsOfRows(t *testing.T) {
	t.Parallel()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "user", Type: arrow.PrimitiveTypes.Int64},
		{Name: pipeline.ColKey, Type: arrow.BinaryTypes.Binary, Nullable: true},
		{Name: pipeline.ColTime, Type: arrow.PrimitiveTypes.Int64},
	}, nil)
	b := array.NewRecordBuilder(memory.NewGoAllocator(), schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{7, 8}, nil)
	b.Field(1).(*array.BinaryBuilder).Append([]byte("k"))
	b.Field(1).AppendNull()
	b.Field(2).(*array.Int64Builder).AppendValues([]int64{0, 1_700_000_000_000_000}, nil)
	batch, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "s", Split: "a", To: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer batch.Release()
	var r rows
	for range 2 { // its memory is used again
		r.reset()
		if err := encodeRows(batch, &r); err != nil {
			t.Fatal(err)
		}
		got := r.records(nil, 0, []Header{{HeaderSplit, []byte("a")}})
		for i, want := range []string{`{"user":7,"time":0}`, `{"user":8,"time":1700000000000000}`} {
			if string(got[i].Value) != want || !got[i].Time.IsZero() || len(got[i].Headers) != 4 {
				t.Errorf("row %d: %s at %v with %d headers, want %s", i, got[i].Value, got[i].Time, len(got[i].Headers), want)
			}
		}
		if string(got[0].Key) != "k" || got[1].Key != nil {
			t.Errorf("keys %q %q", got[0].Key, got[1].Key)
		}
	}
}

// BenchmarkRecords: what a commit of 1,000 rows makes beside the bytes of the rows.
func BenchmarkRecords(b *testing.B) {
	var r rows
	var records []Record
	fixed := []Header{{HeaderOutput, []byte("out")}, {HeaderSource, []byte("kafka")}, {HeaderSplit, []byte("clicks-00003")}}
	b.ReportAllocs()
	for b.Loop() {
		r.reset()
		for i := range 1000 {
			r.add(nil, false, time.Time{}, func(dst []byte) []byte { return append(dst, "value"...) })
			r.spans[i].at = pipeline.Progress{Position: 1 << 40, Rows: 1 << 40, Batches: 1 << 30}
		}
		records = r.records(records[:0], 0, fixed)
	}
}

// TestFencedProducers: a producer that was replaced, or that the brokers have given up, is told so by each of these codes. Other errors are tried again.
func TestFencedProducers(t *testing.T) {
	t.Parallel()
	for code, fenced := range map[kafka.Error]bool{
		kafka.ProducerFenced: true, kafka.InvalidProducerEpoch: true, kafka.InvalidProducerIDMapping: true, kafka.UnknownProducerId: true,
		kafka.InvalidTransactionState: true, kafka.OutOfOrderSequenceNumber: true,
		kafka.NotCoordinatorForGroup: false, kafka.ConcurrentTransactions: false, kafka.GroupLoadInProgress: false, kafka.RequestTimedOut: false,
	} {
		if err := fault(code); errors.Is(err, pipeline.ErrFenced) != fenced || !errors.Is(err, code) {
			t.Errorf("%v: %v, want ErrFenced: %v", code, err, fenced)
		}
	}
	if err := fault(0); err != nil {
		t.Errorf("no error: %v", err)
	}
}
