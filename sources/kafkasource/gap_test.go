package kafkasource_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// dropped counts dropped rows by reason.
type dropped struct {
	mu sync.Mutex
	n  map[string]int
}

func (d *dropped) RowDropped(_, reason string, _ int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.n == nil {
		d.n = map[string]int{}
	}
	d.n[reason]++
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// waitFor waits until the log has words a number of times.
func (b *buffer) waitFor(t *testing.T, words string, times int) {
	t.Helper()
	for deadline := time.Now().Add(patience); strings.Count(b.String(), words) < times; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%q is not in the log %d times:\n%s", words, times, b)
			return
		}
	}
}

func (b *buffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func TestPositionBeforeTheLog(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{Size: 10}, numbered("a", 200)...)
	o := options(b.Addrs()...)
	o.MaxRows, o.MaxBytes = 10, 100 // so that little is read ahead
	s := source(t, o)
	split := splits(t, s)[0]
	live := openSplit(t, s, split, 0, nil)
	live.take(t, 10)
	if err := b.DeleteRecords("ratings", 0, 150); err != nil {
		t.Fatal(err)
	}
	// A reader that has come so far finds out when it asks for more; it never delivers anything from after the gap.
	rows, err := live.fails(t)
	for i, r := range rows {
		if want := fmt.Sprintf("a%d", 10+i); r.Value != want {
			t.Fatalf("row %q, want %q", r.Value, want)
		}
	}
	wantGap(t, err, live.Position(), 150, 200, "DeleteRecords")
	// So does one that is opened there.
	_, err = s.Open(t.Context(), &pipeline.Env{Source: "in"}, split, 20)
	wantGap(t, err, 20, 150, 200, "source.kafka.on_gap")
	// At the limits there is no gap.
	if got := openSplit(t, s, split, 150, nil).take(t, 50); got[0].Value != "a150" {
		t.Errorf("first %q", got[0].Value)
	}
	openSplit(t, s, split, 200, nil)
	// A start of «earliest» that nothing was read of follows the log.
	log := &buffer{}
	late := openSplit(t, s, split, 0, &pipeline.Env{Logger: log.logger()})
	if got := late.take(t, 1); got[0].Value != "a150" || late.Skipped() != 150 || !strings.Contains(log.String(), "oldest records went away") {
		t.Errorf("first %q, skipped %d, log %q", got[0].Value, late.Skipped(), log)
	}
	// An explicit start is meant.
	o.Start.Offsets = map[int]int64{0: 0}
	_, err = source(t, o).Open(t.Context(), &pipeline.Env{Source: "in"}, split, 0)
	wantGap(t, err, 0, 150, 200, "source.kafka.on_gap")
}

func TestSkipGap(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{Size: 10}, numbered("a", 200)...)
	o := options(b.Addrs()...)
	o.MaxRows, o.MaxBytes, o.OnGap, o.End.Place = 10, 100, kafkasource.SkipGap, kafkasource.Latest
	s := source(t, o)
	hooks, log := &dropped{}, &buffer{}
	r := open(t, s, pipeline.NoPosition, &pipeline.Env{Hooks: pipeline.NewHooks(hooks), Logger: log.logger()})
	before := r.take(t, 10)
	if err := b.DeleteRecords("ratings", 0, 150); err != nil {
		t.Fatal(err)
	}
	all := append(before, r.take(t, -1)...)
	if last := all[len(all)-1].Value; last != "a199" || r.Position() != 200 {
		t.Errorf("last %q at %d", last, r.Position())
	}
	if lost := int(r.Skipped()); lost == 0 || len(all)+lost != 200 {
		t.Errorf("%d rows and %d skipped, want 200 together", len(all), lost)
	}
	if hooks.n["gap"] != 1 || !strings.Contains(log.String(), "records are gone") || !strings.Contains(log.String(), fmt.Sprintf("lost=%d", r.Skipped())) {
		t.Errorf("dropped %v, log %s", hooks.n, log)
	}
	// Opened in the gap: the first block covers it.
	opened := open(t, s, 20, nil)
	rows, err := opened.next(t.Context(), t)
	if err != nil || len(rows) != 0 || opened.Position() != 150 || opened.Skipped() != 130 {
		t.Errorf("%d rows up to %d, skipped %d, %v", len(rows), opened.Position(), opened.Skipped(), err)
	}
	if got := opened.take(t, -1); len(got) != 50 || got[0].Value != "a150" {
		t.Errorf("%d rows", len(got))
	}
	// Backwards nothing is skipped.
	_, err = s.Open(t.Context(), &pipeline.Env{Source: "in"}, pipeline.Split{Name: "ratings-00000", End: pipeline.NoPosition}, 500)
	wantGap(t, err, 500, 150, 200, "truncated")
}

func TestPositionBehindTheLog(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("a", 5)...)
	s := source(t, options(b.Addrs()...))
	_, err := s.Open(t.Context(), &pipeline.Env{Source: "in"}, splits(t, s)[0], 6)
	wantGap(t, err, 6, 0, 5, "truncated")
}

func TestTopicIsRecreated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		after int // records in the new topic
	}{{"shorter", 2}, {"longer", 50}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := start(t, broker.Options{})
			produce(t, b, "ratings", 0, broker.Batch{}, numbered("old", 10)...)
			o := options(b.Addrs()...)
			o.OnGap = kafkasource.SkipGap // must not help
			s := source(t, o)
			split := splits(t, s)[0]
			r := openSplit(t, s, split, 0, nil)
			r.take(t, 10)
			if err := b.DeleteTopic("ratings"); err != nil {
				t.Fatal(err)
			}
			if err := b.CreateTopic("ratings", 1, nil); err != nil {
				t.Fatal(err)
			}
			produce(t, b, "ratings", 0, broker.Batch{}, numbered("new", c.after)...)
			rows, err := r.fails(t)
			if len(rows) != 0 {
				t.Errorf("read %s", values(rows))
			}
			gap, ok := errors.AsType[*pipeline.GapError](err) // the reader, which fetches ahead, may have met it before it was filled
			if !ok || gap.Want != 10 || gap.First != 0 || gap.Last != 0 && gap.Last != pipeline.Position(c.after) || !strings.Contains(gap.Other, "re-created") {
				t.Errorf("error %v", err)
			}
			// The same source knows the topic it listed.
			_, err = s.Open(t.Context(), &pipeline.Env{Source: "in"}, split, 10)
			wantGap(t, err, 10, 0, pipeline.Position(c.after), "re-created")
		})
	}
}

func TestCompactedTopicHasHoles(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	if err := b.CreateTopic("users", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	// kfake moves the log's start after what compaction took, Apache Kafka does not: a first key of its own keeps it at 0.
	produce(t, b, "users", 0, broker.Batch{}, broker.Record{Key: []byte("first"), Value: []byte("v")}, broker.Record{Key: []byte("same"), Value: []byte("w")})
	for i := range 20 {
		key := []byte{byte('a' + i%3)}
		produce(t, b, "users", 0, broker.Batch{}, broker.Record{Key: key, Value: fmt.Appendf(nil, "v%d", i)}, broker.Record{Key: []byte("same"), Value: fmt.Appendf(nil, "w%d", i)})
	}
	const end = 42
	b.Cluster.Compact()
	o := options(b.Addrs()...)
	o.Topic, o.End.Place = "users", kafkasource.Latest
	want := oracle(t, b.Addrs(), "users", kafkasource.ReadCommitted, end)
	if len(want) > 10 {
		t.Fatalf("%d records are left, so nothing was compacted", len(want))
	}
	for from := range int64(end + 1) {
		left := want[:0:0]
		for _, w := range want {
			if w.At > from {
				left = append(left, w)
			}
		}
		r := open(t, source(t, o), pipeline.Position(from), nil)
		got := r.take(t, -1)
		if !slices.Equal(got, left) || r.Position() != end {
			t.Errorf("from %d: %s up to %d, want %s up to %d", from, values(got), r.Position(), values(left), end)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// answer replaces the answers to fetches whose offset is at, n times.
func answer(b *broker.Broker, at int64, n int, change func(*kmsg.FetchResponseTopicPartition)) {
	b.Cluster.ControlKey(int16(kmsg.Fetch), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster.KeepControl()
		f := q.(*kmsg.FetchRequest)
		if n == 0 || len(f.Topics) != 1 || f.Topics[0].Partitions[0].FetchOffset != at {
			return nil, nil, false
		}
		n--
		r := f.ResponseKind().(*kmsg.FetchResponse)
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = f.Topics[0].Topic, f.Topics[0].TopicID
		p := kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.LastStableOffset, p.LogStartOffset = 10, 10, 0
		change(&p)
		topic.Partitions = append(topic.Partitions, p)
		r.Topics = append(r.Topics, topic)
		return r, nil, true
	})
}

// TestHoleAtTheEnd: a log that continues without records has a hole where it is compacted; otherwise its broker is at fault.
func TestHoleAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"compact", "delete"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			b := start(t, broker.Options{Topics: map[string]int{}})
			if err := b.CreateTopic("ratings", 1, map[string]string{"cleanup.policy": policy}); err != nil {
				t.Fatal(err)
			}
			produce(t, b, "ratings", 0, broker.Batch{}, broker.Record{Key: []byte("k"), Value: []byte("a")})
			answer(b, 1, -1, func(*kmsg.FetchResponseTopicPartition) {}) // a log up to 10, without records
			o := options(b.Addrs()...)
			o.End.Offsets, o.MaxWait, o.RetryFor = map[int]int64{0: 9}, 10*time.Millisecond, patience
			split := splits(t, source(t, o))[0]
			if policy != "compact" {
				o.RetryFor = 500 * time.Millisecond
			}
			r := openSplit(t, source(t, o), split, 0, nil)
			if policy == "compact" {
				if got := values(r.take(t, -1)); got != "a" || r.Position() != 9 {
					t.Errorf("%q up to %d", got, r.Position())
				}
				return
			}
			if _, err := r.fails(t); !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), "continues to offset 10") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestEmptyAnswersAreNoHole: a broker that gives nothing for a while, although it has records, loses none.
func TestEmptyAnswersAreNoHole(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"compact", "delete"} {
		b := start(t, broker.Options{Topics: map[string]int{}})
		if err := b.CreateTopic("ratings", 1, map[string]string{"cleanup.policy": policy}); err != nil {
			t.Fatal(err)
		}
		var records []broker.Record
		for i := range 10 {
			records = append(records, broker.Record{Key: []byte{byte(i)}, Value: fmt.Appendf(nil, "a%d", i)})
		}
		produce(t, b, "ratings", 0, broker.Batch{Size: 5}, records...)
		answer(b, 5, 6, func(*kmsg.FetchResponseTopicPartition) { time.Sleep(50 * time.Millisecond) }) // which takes longer than so many answers need
		o := options(b.Addrs()...)
		o.End.Place, o.MaxBytes, o.OnGap, o.MaxWait = kafkasource.Latest, 1, kafkasource.SkipGap, time.Millisecond
		r := open(t, source(t, o), 0, nil)
		if got := len(r.take(t, -1)); got != 10 || r.Skipped() != 0 {
			t.Errorf("%s: %d rows, %d skipped", policy, got, r.Skipped())
		}
	}
}

func TestHoleInTopicThatIsNotCompacted(t *testing.T) {
	t.Parallel()
	for _, policy := range []kafkasource.GapPolicy{kafkasource.FailOnGap, kafkasource.SkipGap} {
		t.Run(string(policy), func(t *testing.T) {
			b := start(t, broker.Options{})
			produce(t, b, "ratings", 0, broker.Batch{Size: 5}, numbered("a", 10)...)
			tail := rawBatches(t, b, "ratings", 5)
			answer(b, 0, 1, func(p *kmsg.FetchResponseTopicPartition) { p.RecordBatches = tail })
			o := options(b.Addrs()...)
			o.OnGap, o.End.Place = policy, kafkasource.Latest
			r := open(t, source(t, o), 0, nil)
			if policy == kafkasource.SkipGap {
				if got := values(r.take(t, -1)); got != "a5 a6 a7 a8 a9" || r.Skipped() != 5 {
					t.Errorf("%q, skipped %d", got, r.Skipped())
				}
				return
			}
			rows, err := r.fails(t)
			if len(rows) != 0 {
				t.Errorf("read %s", values(rows))
			}
			wantGap(t, err, 0, 5, 10, "not compacted")
		})
	}
}

// TestHoleOfUnknownCause: who may read a topic need not be allowed to read its configuration.
func TestHoleOfUnknownCause(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{Size: 5}, numbered("a", 10)...)
	tail := rawBatches(t, b, "ratings", 5)
	answer(b, 0, 1, func(p *kmsg.FetchResponseTopicPartition) { p.RecordBatches = tail })
	b.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	o := options(b.Addrs()...)
	o.End.Place = kafkasource.Latest
	log := &buffer{}
	r := open(t, source(t, o), 0, &pipeline.Env{Logger: log.logger()})
	if got := values(r.take(t, -1)); got != "a5 a6 a7 a8 a9" || !strings.Contains(log.String(), "offsets are missing") {
		t.Errorf("%q, log %s", got, log)
	}
}

// TestCutAnswer: an answer that ends within its first batch is asked for again, larger, up to a limit.
func TestCutAnswer(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("a", 10)...)
	raw := rawBatches(t, b, "ratings", 0)
	for _, times := range []int{2, 20} {
		answer(b, 0, times, func(p *kmsg.FetchResponseTopicPartition) { p.RecordBatches = raw[:len(raw)-1] })
		o := options(b.Addrs()...)
		o.End.Place, o.MaxBytes, o.MaxBatchBytes = kafkasource.Latest, 10, 1000
		r := open(t, source(t, o), 0, nil)
		if times == 2 {
			if got := len(r.take(t, -1)); got != 10 {
				t.Errorf("%d rows", got)
			}
			continue
		}
		_, err := r.fails(t)
		if bad, ok := asDataError(err); !ok || bad.Reason != "record batch too large" || bad.Position != 0 {
			t.Errorf("%v", err)
		}
	}
}

func TestLogIsCutBack(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("a", 10)...)
	answer(b, 10, 1, func(p *kmsg.FetchResponseTopicPartition) {
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 0, 7
	})
	r := open(t, source(t, options(b.Addrs()...)), 0, nil)
	_, err := r.fails(t)
	wantGap(t, err, 10, 0, 10, "truncated to offset 7")
}

// TestOutOfRangeInRange: a broker without a history of leader epochs may refuse a position that is in its log.
func TestOutOfRangeInRange(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{Size: 5}, numbered("a", 10)...)
	answer(b, 5, 2, func(p *kmsg.FetchResponseTopicPartition) {
		p.ErrorCode, p.HighWatermark, p.LogStartOffset = kerr.OffsetOutOfRange.Code, -1, -1
	})
	o := options(b.Addrs()...)
	o.MaxBytes = 1 // one batch at a time
	if got := len(open(t, source(t, o), 0, nil).take(t, 10)); got != 10 {
		t.Errorf("%d rows", got)
	}
}

// TestCorruptBatch: the records of a damaged batch are bad rows. Policy fail names where it is; policy skip continues after it.
func TestCorruptBatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(p *kmsg.FetchResponseTopicPartition)
		times  int // that the broker sends it for each offset
		reason string
		want   string // the rows that are left
	}{
		"checksum": {func(p *kmsg.FetchResponseTopicPartition) { p.RecordBatches[70] ^= 1 }, 1, "crc mismatch", "a10 a11 a12 a13 a14"},
		"checksum, alone": {func(p *kmsg.FetchResponseTopicPartition) {
			p.RecordBatches = alone(p.RecordBatches)
			p.RecordBatches[70] ^= 1
		}, 1, "crc mismatch", "a10 a11 a12 a13 a14"},
		"number of records": {func(p *kmsg.FetchResponseTopicPartition) { p.RecordBatches[26] = 200 }, 1, "crc mismatch", "a10 a11 a12 a13 a14"},
		"record":            {func(p *kmsg.FetchResponseTopicPartition) { p.RecordBatches[61] = 1; checksum(p.RecordBatches) }, 1, "corrupt record batch", "a10 a11 a12 a13 a14"},
		"length":            {func(p *kmsg.FetchResponseTopicPartition) { p.RecordBatches[11] = 3 }, 5, "corrupt record batch", "a10 a11 a12 a13 a14"},
		"format":            {func(p *kmsg.FetchResponseTopicPartition) { p.RecordBatches[16] = 7 }, 5, "corrupt record batch", "a10 a11 a12 a13 a14"},
		"old":               {func(p *kmsg.FetchResponseTopicPartition) { p.RecordBatches[16] = 1 }, 5, "old record format", "a10 a11 a12 a13 a14"},
		"the broker's own log": {func(p *kmsg.FetchResponseTopicPartition) {
			p.RecordBatches, p.ErrorCode = nil, kerr.CorruptMessage.Code
		}, 5, "corrupt record batch", "a10 a11 a12 a13 a14"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, broker.Options{})
			produce(t, b, "ratings", 0, broker.Batch{Size: 5}, numbered("a", 15)...)
			raw := rawBatches(t, b, "ratings", 5)
			for at := int64(5); at < 5+int64(c.times); at++ {
				answer(b, at, -1, func(p *kmsg.FetchResponseTopicPartition) {
					p.RecordBatches, p.HighWatermark, p.LastStableOffset = slices.Clone(raw), 15, 15
					c.spoil(p)
				})
			}
			o := options(b.Addrs()...)
			o.MaxBytes, o.End.Place = 1, kafkasource.Latest
			rows, err := open(t, source(t, o), 0, nil).fails(t)
			bad, ok := asDataError(err)
			if !ok || bad.Reason != c.reason || bad.Position != 5 || bad.Source != "in" || bad.Split != "ratings-00000" {
				t.Errorf("%v", err)
			}
			if len(rows) != 5 {
				t.Errorf("%d rows before it", len(rows))
			}
			for _, from := range []pipeline.Position{0, 5} {
				policy := &pipeline.SkipBadRows{}
				r := open(t, source(t, o), from, &pipeline.Env{BadRows: policy})
				want := c.want
				if from == 0 {
					want = "a0 a1 a2 a3 a4 " + want
				}
				if got := values(r.take(t, -1)); got != want || r.Position() != 15 {
					t.Errorf("skipping from %d: %q up to %d, want %q", from, got, r.Position(), want)
				}
				if n := policy.Counts()[c.reason]; n != 5 {
					t.Errorf("skipping from %d: %v bad rows, want the batch's 5", from, policy.Counts())
				}
			}
		})
	}
}

// alone returns the first of several batches.
func alone(raw []byte) []byte { return raw[:12+binary.BigEndian.Uint32(raw[8:])] }

// checksum puts that of the first batch right.
func checksum(raw []byte) {
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(alone(raw)[21:], crc32.MakeTable(crc32.Castagnoli)))
}

func TestGapErrorNamesFault(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	b.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.TopicAuthorizationFailed})
	_, err := source(t, options(b.Addrs()...)).Splits(t.Context())
	if err == nil || !strings.Contains(err.Error(), "Topic Authorization Failed") {
		t.Errorf("%v", err)
	}
}
