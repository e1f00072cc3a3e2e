package exchange_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/exchange"
)

// event is a row of the tests.
type event struct {
	stream   string
	position int64
	key      string
	null     bool
	fids     []int64
}

func schemaOf(key arrow.DataType) *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{
		{Name: "key", Type: key, Nullable: true},
		{Name: "stream", Type: arrow.BinaryTypes.String},
		{Name: "fids", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)},
		{Name: "pos", Type: arrow.PrimitiveTypes.Int64},
		{Name: "was", Type: arrow.PrimitiveTypes.Int64},
	}, nil)
}

// badSchema has columns that cannot be keys or positions.
func badSchema() *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{
		{Name: "twice", Type: arrow.PrimitiveTypes.Int64},
		{Name: "twice", Type: arrow.PrimitiveTypes.Int64},
		{Name: "floats", Type: arrow.ListOf(arrow.PrimitiveTypes.Float32)},
		{Name: "key", Type: arrow.PrimitiveTypes.Int64},
		{Name: "stream", Type: arrow.BinaryTypes.String},
		{Name: "pos", Type: arrow.PrimitiveTypes.Int64},
	}, nil)
}

func record(mem memory.Allocator, schema *arrow.Schema, events []event) arrow.RecordBatch {
	b := array.NewRecordBuilder(mem, schema)
	defer b.Release()
	for _, e := range events {
		switch k := b.Field(0).(type) {
		case *array.ListBuilder: // the first value counts
			k.Append(true)
			if !e.null {
				var n int64
				_, _ = fmt.Sscan(e.key, &n)
				k.ValueBuilder().(*array.Int64Builder).AppendValues([]int64{n, e.position}, nil)
			}
		case *array.Int64Builder:
			if e.null {
				k.AppendNull()
			} else {
				var n int64
				_, _ = fmt.Sscan(e.key, &n)
				k.Append(n)
			}
		case *array.BinaryBuilder:
			if e.null {
				k.AppendNull()
			} else {
				k.Append([]byte(e.key))
			}
		case *array.StringBuilder:
			if e.null {
				k.AppendNull()
			} else {
				k.Append(e.key)
			}
		}
		b.Field(1).(*array.StringBuilder).Append(e.stream)
		l := b.Field(2).(*array.ListBuilder)
		l.Append(true)
		l.ValueBuilder().(*array.Int64Builder).AppendValues(e.fids, nil)
		b.Field(3).(*array.Int64Builder).Append(e.position)
		b.Field(4).(*array.Int64Builder).Append(e.position)
	}
	return b.NewRecordBatch()
}

// rows renders a record batch, one row a line.
func rows(rec arrow.RecordBatch) (out []string, keys []string) {
	for i := range int(rec.NumRows()) {
		l := rec.Column(2).(*array.List)
		from, to := l.ValueOffsets(i)
		key := rec.Column(0).ValueStr(i)
		if first, ok := rec.Column(0).(*array.List); ok {
			key = array.NullValueStr
			if from, to := first.ValueOffsets(i); from < to {
				key = first.ListValues().ValueStr(int(from))
			}
		}
		keys = append(keys, key)
		out = append(out, fmt.Sprintf("%s %s %d %v", key, rec.Column(1).ValueStr(i),
			rec.Column(4).(*array.Int64).Value(i), l.ListValues().(*array.Int64).Int64Values()[from:to]))
	}
	return out, keys
}

// world makes the rows of a few streams.
func world(rng *rand.Rand, n int) []event {
	streams := []string{"clicks/b", "clicks/a", "views/0"}
	next := map[string]int64{}
	events := make([]event, n)
	for i := range events {
		s := streams[rng.IntN(len(streams))]
		next[s] += 1 + rng.Int64N(3)
		e := event{stream: s, position: next[s], key: fmt.Sprint(rng.IntN(n/4+1) - n/8), null: rng.IntN(50) == 0}
		for range rng.IntN(4) {
			e.fids = append(e.fids, rng.Int64())
		}
		events[i] = e
	}
	return events
}

// add adds events in order of a stream, in batches of any size, streams at the same time.
func add(t *testing.T, x *exchange.Exchange, mem memory.Allocator, rng *rand.Rand, events []event) {
	t.Helper()
	byStream := map[string][]event{}
	for _, e := range events {
		byStream[e.stream] = append(byStream[e.stream], e)
	}
	var wg sync.WaitGroup
	for stream, list := range byStream {
		seed := rng.Uint64()
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			for len(list) > 0 {
				n := min(1+rng.IntN(40), len(list))
				rec := record(mem, x.Schema(), list[:n])
				if err := x.Add(t.Context(), stream, rec); err != nil {
					t.Error(err)
				}
				rec.Release()
				list = list[n:]
			}
		})
	}
	wg.Wait()
	if err := x.Done(); err != nil {
		t.Fatal(err)
	}
}

// read returns all rows of a partition from a number on.
func read(t *testing.T, x *exchange.Exchange, partition int, from int64) (all []string) {
	t.Helper()
	r, err := x.Open(partition, from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	at, last := from, "nothing"
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		out, keys := rows(rec)
		for i, p := range rec.Column(3).(*array.Int64).Int64Values() {
			if p != at+int64(i)+1 {
				t.Fatalf("row %d has position %d", at+int64(i), p)
			}
		}
		if at += rec.NumRows(); at != r.Position() {
			t.Fatalf("reader is at %d after %d rows", r.Position(), at)
		}
		if keys[0] == last && len(keys) < 100 {
			t.Errorf("a group of %s is cut", last)
		}
		last = keys[len(keys)-1]
		all = append(all, out...)
		rec.Release()
	}
}

// reference sorts the rows of each partition, as the exchange found them to belong, in the obvious way.
func twin(events []event, number bool) []string {
	sorted := slices.Clone(events)
	slices.SortFunc(sorted, func(a, b event) int {
		switch {
		case a.null != b.null && a.null:
			return -1
		case a.null != b.null:
			return 1
		case !a.null && number:
			var x, y int
			_, _ = fmt.Sscan(a.key, &x)
			_, _ = fmt.Sscan(b.key, &y)
			if x != y {
				return cmp.Compare(x, y)
			}
		case !a.null && a.key != b.key:
			return cmp.Compare(a.key, b.key)
		}
		return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.position, b.position))
	})
	mem := memory.DefaultAllocator
	kind := arrow.DataType(arrow.BinaryTypes.String)
	if number {
		kind = arrow.PrimitiveTypes.Int64
	}
	rec := record(mem, schemaOf(kind), sorted)
	defer rec.Release()
	out, _ := rows(rec)
	return out
}

// TestGroups compares with sorting everything in memory: all key types, with and without spilling.
func TestGroups(t *testing.T) {
	t.Parallel()
	for _, kind := range []arrow.DataType{arrow.PrimitiveTypes.Int64, arrow.ListOf(arrow.PrimitiveTypes.Int64), arrow.BinaryTypes.String, arrow.BinaryTypes.Binary} {
		for _, limit := range []int64{1 << 30, 20_000, 1} {
			t.Run(fmt.Sprintf("%s/limit=%d", kind, limit), func(t *testing.T) {
				t.Parallel()
				mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
				defer mem.AssertSize(t, 0)
				rng := rand.New(rand.NewPCG(7, uint64(limit)))
				size := 3000
				if limit == 1 { // every batch is a run
					size = 600
				}
				events := world(rng, size)
				dir := t.TempDir()
				const partitions = 3
				var first [][]string
				for range 2 { // what comes out does not depend on when who came
					x, err := exchange.New(schemaOf(kind), exchange.Options{
						Key: "key", Position: "pos", Partitions: partitions, MemoryLimit: limit, Dir: dir, BatchRows: 64, Allocator: mem,
					})
					if err != nil {
						t.Fatal(err)
					}
					add(t, x, mem, rng, events)
					var got [][]string
					total := int64(0)
					for p := range partitions {
						got = append(got, read(t, x, p, 0))
						total += x.Rows(p)
						if n := x.Rows(p); int(n) < size/6 || int(n) != len(got[p]) {
							t.Errorf("partition %d has %d rows and returns %d", p, n, len(got[p]))
						}
						from := rng.Int64N(x.Rows(p) + 1)
						if diff := gocmp.Diff(got[p][from:], read(t, x, p, from), gocmp.Transformer("", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
							t.Errorf("from row %d: %s", from, diff)
						}
					}
					if st := x.Stats(); total != int64(size) || st.Rows != int64(size) || (st.Runs > 0) != (limit < 1<<30) || limit == 1 && (st.Spilled != int64(size) || int64(st.Runs) < st.Spilled/40) {
						t.Errorf("%d rows, %+v", total, st)
					}
					if err := errors.Join(x.Close(), x.Close()); err != nil {
						t.Fatal(err)
					}
					if first == nil {
						first = got
					} else if diff := gocmp.Diff(first, got); diff != "" {
						t.Errorf("a second time: %s", diff)
					}
				}
				// Each partition is sorted, and together they are everything.
				var all []string
				sorted := twin(events, kind.ID() == arrow.INT64 || kind.ID() == arrow.LIST)
				if kind.ID() == arrow.BINARY { // shown in base64
					sorted = nil
				}
				place := map[string]int{}
				for i, s := range sorted {
					place[s] = i
				}
				for _, p := range first {
					all = append(all, p...)
					if sorted != nil && !slices.IsSortedFunc(p, func(a, b string) int { return cmp.Compare(place[a], place[b]) }) {
						t.Error("a partition is not sorted as the twin is")
					}
				}
				if sorted != nil {
					slices.Sort(all)
					slices.Sort(sorted)
					if diff := gocmp.Diff(sorted, all); diff != "" {
						t.Error(diff)
					}
				}
				if left, _ := os.ReadDir(dir); len(left) > 0 {
					t.Errorf("%v are left", left)
				}
			})
		}
	}
}

// TestPartitionsStay: keys hash as they always did, for positions are stored by partition.
func TestPartitionsStay(t *testing.T) {
	t.Parallel()
	for kind, want := range map[arrow.DataType][]int64{arrow.PrimitiveTypes.Int64: {26, 23, 21, 30}, arrow.BinaryTypes.String: {28, 21, 23, 28}} {
		x, err := exchange.New(schemaOf(kind), exchange.Options{Key: "key", Position: "pos", Partitions: 4, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		var events []event
		for i := range 100 {
			events = append(events, event{stream: "s", position: int64(i), key: fmt.Sprint(i)})
		}
		add(t, x, memory.DefaultAllocator, rand.New(rand.NewPCG(1, 1)), events)
		var got []int64
		for p := range 4 {
			got = append(got, x.Rows(p))
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLargeGroup: a group larger than sixteen batches is cut, and no row is lost at the cut.
func TestLargeGroup(t *testing.T) {
	t.Parallel()
	var events []event
	for i := range 1000 {
		events = append(events, event{stream: "s", position: int64(i), key: "7"})
	}
	x, err := exchange.New(schemaOf(arrow.PrimitiveTypes.Int64), exchange.Options{Key: "key", Position: "pos", Partitions: 1, BatchRows: 10, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	add(t, x, memory.DefaultAllocator, rand.New(rand.NewPCG(1, 1)), events)
	r, err := x.Open(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int64
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, rec.NumRows())
		rec.Release()
	}
	if diff := gocmp.Diff([]int64{160, 160, 160, 160, 160, 160, 40}, sizes); diff != "" {
		t.Error(diff)
	}
	if err := errors.Join(r.Close(), x.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestMemoryLimit adds far more than the limit and looks at what is held.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	x, err := exchange.New(schemaOf(arrow.PrimitiveTypes.Int64), exchange.Options{
		Key: "key", Position: "pos", Partitions: 8, MemoryLimit: 1 << 20, BatchRows: 256, Dir: t.TempDir(), Allocator: mem,
	})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 3))
	peak, added := 0, 0
	for i := range 200 {
		events := world(rng, 1000)
		for j := range events {
			events[j].stream, events[j].position = "s", int64(i*1000+j)
		}
		rec := record(memory.DefaultAllocator, x.Schema(), events)
		if err := x.Add(t.Context(), "s", rec); err != nil {
			t.Fatal(err)
		}
		rec.Release()
		added += 1000
		peak = max(peak, mem.CurrentAlloc())
	}
	if err := x.Done(); err != nil {
		t.Fatal(err)
	}
	st := x.Stats()
	if peak > 3<<20 || st.Bytes < 5<<20 {
		t.Errorf("%d bytes are held at most, %+v", peak, st)
	}
	total := 0
	for p := range 8 {
		total += len(read(t, x, p, 0))
	}
	if total != added {
		t.Errorf("%d rows of %d", total, added)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFaults: what is asked for wrongly, and a disk that fails, end in errors; nothing is read of rows that are lost.
func TestFaults(t *testing.T) {
	t.Parallel()
	schema := schemaOf(arrow.PrimitiveTypes.Int64)
	for want, o := range map[string]exchange.Options{
		`0 columns "nokey"`:     {Key: "nokey", Position: "pos", Partitions: 1},
		`2 columns "twice"`:     {Key: "twice", Position: "pos", Partitions: 1},
		`column "stream" is`:    {Key: "key", Position: "stream", Partitions: 1},
		`0 partitions`:          {Key: "key", Position: "pos"},
		`column "floats" is li`: {Key: "floats", Position: "pos", Partitions: 1},
		`no such file`:          {Key: "key", Position: "pos", Partitions: 1, Dir: filepath.Join(t.TempDir(), "none")},
	} {
		if _, err := exchange.New(badSchema(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	dir := t.TempDir()
	x, err := exchange.New(schema, exchange.Options{Key: "key", Position: "pos", Partitions: 2, MemoryLimit: 1, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Open(0, 0); !errors.Is(err, exchange.ErrClosed) {
		t.Errorf("read before the end: %v", err)
	}
	other := record(memory.DefaultAllocator, schemaOf(arrow.BinaryTypes.String), []event{{}})
	defer other.Release()
	if err := x.Add(t.Context(), "s", other); err == nil {
		t.Error("rows of another schema are taken")
	}
	rec := record(memory.DefaultAllocator, schema, []event{{key: "1"}})
	defer rec.Release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.Add(ctx, "s", rec); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	folders, err := os.ReadDir(dir)
	if err != nil || len(folders) != 1 {
		t.Fatal(folders, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, folders[0].Name())); err != nil { // the disk goes
		t.Fatal(err)
	}
	if err := x.Add(t.Context(), "s", rec); err == nil || !strings.Contains(err.Error(), "could not be written") {
		t.Errorf("a row that cannot be written: %v", err)
	}
	if err := x.Done(); err == nil {
		t.Error("all is well although rows are lost")
	}
	if _, err := x.Open(0, 0); err == nil || errors.Is(err, exchange.ErrClosed) {
		t.Errorf("what is left is read: %v", err)
	}
	if err := errors.Join(x.Close(), x.Close()); err != nil {
		t.Fatal(err)
	}
	if err := x.Add(t.Context(), "s", rec); !errors.Is(err, exchange.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// BenchmarkExchange groups a million rows of about 40 bytes by a key: in memory, and with a quarter of them in memory.
func BenchmarkExchange(b *testing.B) {
	const batches, size = 250, 4000
	rng := rand.New(rand.NewPCG(5, 5))
	var recs []arrow.RecordBatch
	schema := schemaOf(arrow.PrimitiveTypes.Int64)
	for i := range batches {
		events := make([]event, size)
		for j := range events {
			events[j] = event{stream: "s", position: int64(i*size + j), key: fmt.Sprint(rng.IntN(200_000)), fids: []int64{1, 2}}
		}
		recs = append(recs, record(memory.DefaultAllocator, schema, events))
	}
	for _, limit := range []int64{1 << 40, 16 << 20} {
		b.Run(fmt.Sprintf("memory=%dMiB", limit>>20), func(b *testing.B) {
			for b.Loop() {
				x, err := exchange.New(schema, exchange.Options{Key: "key", Position: "pos", Partitions: 4, MemoryLimit: limit, Dir: b.TempDir()})
				if err != nil {
					b.Fatal(err)
				}
				for _, rec := range recs {
					if err := x.Add(b.Context(), "s", rec); err != nil {
						b.Fatal(err)
					}
				}
				if err := x.Done(); err != nil {
					b.Fatal(err)
				}
				for p := range 4 {
					r, err := x.Open(p, 0)
					if err != nil {
						b.Fatal(err)
					}
					for {
						rec, err := r.Next()
						if errors.Is(err, io.EOF) {
							break
						}
						if err != nil {
							b.Fatal(err)
						}
						rec.Release()
					}
					if err := r.Close(); err != nil {
						b.Fatal(err)
					}
				}
				if err := x.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(batches*size)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
