package kafkasource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

func TestEveryPositionResumes(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{Size: 7}, numbered("a", 40)...)
	produce(t, b, "ratings", 0, broker.Batch{Size: 10, Codec: "zstd"}, numbered(strings.Repeat("b", 100), 40)...)
	if raw := rawBatches(t, b, "ratings", 40); raw[22]&7 != 4 {
		t.Fatalf("codec %d, want zstd", raw[22]&7)
	}
	o := options(b.Addrs()...)
	o.End.Place = kafkasource.Latest
	all := open(t, source(t, o), pipeline.NoPosition, nil).take(t, -1)
	if len(all) != 80 || all[0].Value != "a0" || all[79].Value != strings.Repeat("b", 100)+"39" {
		t.Fatalf("%d rows: %s", len(all), values(all))
	}
	for _, limit := range []int{1, 3, 8192} {
		o.MaxRows = limit
		s := source(t, o)
		split := splits(t, s)[0]
		for from := 0; from <= 80; from += 1 + from%3 {
			r := openSplit(t, s, split, pipeline.Position(from), nil)
			if diff := cmp.Diff(all[from:], append([]row{}, r.take(t, -1)...)); diff != "" {
				t.Fatalf("MaxRows %d, from %d:\n%s", limit, from, diff)
			}
			if _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
				t.Errorf("after the end: %v", err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestCodecsKeysAndTimes(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	at := time.UnixMilli(1_700_000_000_123)
	for number, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} { // by Kafka's numbers
		t.Run(codec, func(t *testing.T) {
			topic := "codec-" + codec
			if err := b.CreateTopic(topic, 1, nil); err != nil {
				t.Fatal(err)
			}
			var in []broker.Record
			var want []row
			for i := range 500 {
				r := broker.Record{Value: fmt.Appendf(nil, "hello hello hello %d", i), Time: at.Add(time.Duration(i) * time.Millisecond)}
				w := row{Value: string(r.Value), Time: r.Time.UnixMicro(), At: int64(i) + 1, Null: true}
				switch i % 3 {
				case 1:
					r.Key, w.Null = []byte{}, false
				case 2:
					r.Key, w.Key, w.Null = fmt.Appendf(nil, "k%d", i), fmt.Sprintf("k%d", i), false
				}
				in, want = append(in, r), append(want, w)
			}
			produce(t, b, topic, 0, broker.Batch{Codec: codec}, in...)
			if raw := rawBatches(t, b, topic, 0); int(raw[22]&7) != number {
				t.Fatalf("the batch is stored with codec %d, want %d", raw[22]&7, number)
			}
			o := options(b.Addrs()...)
			o.Topic, o.End.Place = topic, kafkasource.Latest
			r := open(t, source(t, o), pipeline.NoPosition, nil)
			blk, err := r.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer blk.Release()
			if diff := cmp.Diff(want, rowsOf(t, blk)); diff != "" {
				t.Error(diff)
			}
			if got := blk.Origin(); got.MinTime != at.UnixMicro() || got.MaxTime != at.Add(499*time.Millisecond).UnixMicro() {
				t.Errorf("times %d to %d", got.MinTime, got.MaxTime)
			}
		})
	}
}

func TestBlocksAreBounded(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{Size: 10}, numbered("value-", 100)...)
	for _, c := range []struct {
		name           string
		rows, bytes    int
		atMost, blocks int
	}{
		{name: "rows", rows: 10, bytes: 1 << 20, atMost: 10, blocks: 10},
		{name: "rows across batches", rows: 15, bytes: 1 << 20, atMost: 15, blocks: 7},
		{name: "bytes", rows: 1000, bytes: 50, atMost: 7, blocks: 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(b.Addrs()...)
			o.End.Place, o.MaxRows, o.MaxBytes = kafkasource.Latest, c.rows, c.bytes
			r := open(t, source(t, o), pipeline.NoPosition, nil)
			total, blocks := 0, 0
			for {
				rows, err := r.next(t.Context(), t)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if len(rows) > c.atMost || len(rows) == 0 {
					t.Errorf("block of %d rows", len(rows))
				}
				total, blocks = total+len(rows), blocks+1
			}
			if total != 100 || blocks < c.blocks {
				t.Errorf("%d rows in %d blocks, want 100 in %d or more", total, blocks, c.blocks)
			}
		})
	}
}

func TestRecordsLargerThanMaxBytes(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	big := strings.Repeat("x", 300_000)
	produce(t, b, "ratings", 0, broker.Batch{Size: 1}, broker.Values("a", big, "b")...)
	o := options(b.Addrs()...)
	o.End.Place, o.MaxBytes, o.MaxBatchBytes = kafkasource.Latest, 1000, 1<<20
	rows := open(t, source(t, o), pipeline.NoPosition, nil).take(t, -1)
	if len(rows) != 3 || rows[1].Value != big {
		t.Errorf("%d rows", len(rows))
	}
	o.MaxBatchBytes = 100_000
	rows, err := open(t, source(t, o), pipeline.NoPosition, nil).fails(t)
	var bad *pipeline.DataError
	if !errors.As(err, &bad) || bad.Reason != "record batch too large" || bad.Position != 1 || !strings.Contains(err.Error(), "raise source.kafka.max_batch_bytes") {
		t.Errorf("%v", err)
	}
	if values(rows) != "a" {
		t.Errorf("before it %q", values(rows))
	}
	// Compressed it fits, unpacked it does not.
	produce(t, b, "ratings", 0, broker.Batch{Codec: "gzip"}, broker.Values(big)...)
	_, err = open(t, source(t, o), 3, nil).fails(t)
	if !errors.As(err, &bad) || bad.Reason != "record batch too large" || bad.Position != 3 {
		t.Errorf("compressed: %v", err)
	}
	// Policy skip continues after them, and at every start again.
	produce(t, b, "ratings", 0, broker.Batch{Size: 1}, broker.Values("c")...)
	for from, want := range map[pipeline.Position]string{0: "a b c", 1: "b c", 2: "b c", 3: "c"} {
		policy := &pipeline.SkipBadRows{}
		r := open(t, source(t, o), from, &pipeline.Env{BadRows: policy})
		if got := values(r.take(t, -1)); got != want || r.Position() != 5 {
			t.Errorf("skipping from %d: %q up to %d, want %q", from, got, r.Position(), want)
		}
		n := int64(1)
		if from <= 1 {
			n = 2
		}
		if diff := cmp.Diff(map[string]int64{"record batch too large": n}, policy.Counts()); diff != "" {
			t.Errorf("from %d: %s", from, diff)
		}
	}
}

func TestTombstonesAreBadRows(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{}, broker.Record{Value: []byte("a")}, broker.Record{Key: []byte("k")},
		broker.Record{Value: []byte{}}, broker.Record{Value: []byte("b")}, broker.Record{Key: []byte("k")})
	o := options(b.Addrs()...)
	o.End.Place = kafkasource.Latest
	policy := &pipeline.SkipBadRows{}
	r := open(t, source(t, o), pipeline.NoPosition, &pipeline.Env{BadRows: policy})
	if got := values(r.take(t, -1)); got != "a  b" || r.Position() != 5 {
		t.Errorf("%q up to %d", got, r.Position())
	}
	if diff := cmp.Diff(map[string]int64{"tombstone": 2}, policy.Counts()); diff != "" {
		t.Error(diff)
	}
	_, err := open(t, source(t, o), pipeline.NoPosition, nil).fails(t)
	var bad *pipeline.DataError
	if !errors.As(err, &bad) || bad.Position != 1 || bad.Reason != "tombstone" || strings.Contains(err.Error(), "train.on_bad_row") || bad.Split != "ratings-00000" {
		t.Errorf("%v", err)
	}
}

// slowPolicy blocks at a bad row until ctx ends, once.
type slowPolicy struct{ entered chan struct{} }

func (p *slowPolicy) BadRow(ctx context.Context, _ *pipeline.DataError, _ []byte) error {
	select {
	case <-p.entered:
		return nil
	default:
		close(p.entered)
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

func TestCancelledBadRowLosesNothing(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	// The block spans compressed batches, so undoing it must unpack the first one again. The values are long, because a
	// producer sends a batch as it is when compression would not make it smaller.
	long := strings.Repeat("x", 100)
	var all []broker.Record
	for i := range 3 {
		rs := numbered(fmt.Sprintf("%c%s", 'a'+i, long), 4)
		produce(t, b, "ratings", 0, broker.Batch{Codec: "gzip"}, rs...)
		all = append(all, rs...)
	}
	// The batch that is dropped overwrites what those before it were unpacked to: it is longer, and still fits into the
	// buffer they left.
	last := append([]broker.Record{{Key: []byte("k")}}, numbered("d"+long, 7)...)
	produce(t, b, "ratings", 0, broker.Batch{Codec: "gzip"}, last...)
	if raw := rawBatches(t, b, "ratings", 0); raw[22]&7 != 1 {
		t.Fatalf("the first batch has codec %d, want gzip", raw[22]&7)
	}
	o := options(b.Addrs()...)
	o.End.Place, o.MaxRows = kafkasource.Latest, 11
	policy := &slowPolicy{make(chan struct{})}
	r := open(t, source(t, o), pipeline.NoPosition, &pipeline.Env{BadRows: policy})
	got := r.take(t, 11)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-policy.entered
		cancel(errors.New("enough"))
	}()
	if _, err := r.next(ctx, t); err == nil || err.Error() != "enough" {
		t.Fatalf("%v", err)
	}
	got = append(got, r.take(t, -1)...)
	all = append(all, last[1:]...)
	want := make([]row, len(all))
	for i, r := range all {
		want[i].Value = string(r.Value)
	}
	if values(got) != values(want) {
		t.Errorf("got  %s\nwant %s", values(got), values(want))
	}
}

func TestTailing(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("a", 3)...)
	o := options(b.Addrs()...)
	o.Start.Place = kafkasource.Latest
	s := source(t, o)
	if s.Bounded() {
		t.Error("bounded without an end")
	}
	r := open(t, s, pipeline.NoPosition, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if rows, err := r.next(ctx, t); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("nothing is there, got %v, %v", rows, err)
	}
	for i := range 5 {
		produce(t, b, "ratings", 0, broker.Batch{}, numbered(fmt.Sprintf("b%d-", i), 2)...)
		if got, want := values(r.take(t, 2)), fmt.Sprintf("b%d-0 b%d-1", i, i); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestLag(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	o := options(b.Addrs()...)
	o.MaxRows = 4
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("a", 10)...) // before the first answer says how many there are
	r := open(t, source(t, o), pipeline.NoPosition, nil)
	var _ pipeline.LagReporter = r
	r.take(t, 4)
	if got := r.Lag(r.Position()); got != 6 {
		t.Errorf("lag %d after 4 of 10", got)
	}
	r.take(t, 6)
	if got := r.Lag(r.Position()); got != 0 {
		t.Errorf("lag %d at the end", got)
	}
	if got := r.Lag(3); got != 7 {
		t.Errorf("lag %d from offset 3, where the sink may still be", got)
	}
}

func TestCloseAndCancelAreQuick(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	o := options(b.Addrs()...)
	o.MaxWait = time.Minute // a fetch that hangs unless it is broken off
	r := open(t, source(t, o), pipeline.NoPosition, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	began := time.Now()
	if _, err := r.Next(ctx); !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("cancel and close took %s", took)
	}
	if _, err := r.Next(t.Context()); !errors.Is(err, pipeline.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// stuck is a log handler that blocks its callers until it is released.
type stuck struct {
	slog.Handler
	entered, released chan struct{}
	once              *sync.Once
}

func (h stuck) Enabled(context.Context, slog.Level) bool { return true }
func (h stuck) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h stuck) Handle(context.Context, slog.Record) error {
	h.once.Do(func() { close(h.entered) })
	<-h.released
	return nil
}

// TestCloseJoins: Close does not return before the goroutine that fetches has, which a log handler holds up here.
func TestCloseJoins(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	h := stuck{entered: make(chan struct{}), released: make(chan struct{}), once: &sync.Once{}}
	r := open(t, source(t, options(b.Addrs()...)), pipeline.NoPosition, &pipeline.Env{Logger: slog.New(h)})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	<-h.entered
	closed := make(chan error, 1)
	go func() { closed <- r.Close() }()
	select {
	case err := <-closed:
		t.Errorf("closed while the fetcher runs: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(h.released)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestExplicitEndIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Topics: map[string]int{"ratings": 2}})
	produce(t, b, "ratings", 1, broker.Batch{}, numbered("a", 5)...)
	o := options(b.Addrs()...)
	o.Start.Offsets = map[int]int64{1: 2}
	o.End.Offsets = map[int]int64{0: 0, 1: 7}
	s := source(t, o)
	got := splits(t, s)
	want := []pipeline.Split{{Name: "ratings-00000", Start: 0, End: 0}, {Name: "ratings-00001", Start: 2, End: 7}}
	if diff := cmp.Diff(want, places(got)); diff != "" {
		t.Fatal(diff)
	}
	if rows := openSplit(t, s, got[0], 0, nil).take(t, -1); len(rows) != 0 {
		t.Errorf("empty split: %v", rows)
	}
	r := openSplit(t, s, got[1], 2, nil)
	if v := values(r.take(t, 3)); v != "a2 a3 a4" {
		t.Error(v)
	}
	produce(t, b, "ratings", 1, broker.Batch{}, numbered("b", 10)...)
	if v := values(r.take(t, -1)); v != "b0 b1" || r.Position() != 7 {
		t.Errorf("%q up to %d", v, r.Position())
	}
}
