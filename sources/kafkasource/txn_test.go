package kafkasource_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

func producer(t testing.TB, addrs []string, id string) *broker.Producer {
	t.Helper()
	p, err := broker.NewProducer(addrs, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// transaction writes one transaction of n records; it leaves it open when end is nil.
func transaction(t testing.TB, p *broker.Producer, topic, tag string, n int, end *bool) {
	t.Helper()
	if err := p.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := p.Produce(t.Context(), topic, 0, numbered(tag, n)...); err != nil {
		t.Fatal(err)
	}
	if end != nil {
		if err := p.End(t.Context(), *end); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	testTransactions(t, b.Addrs(), "ratings")
}

// testTransactions runs against kfake and, in real_test.go, against Apache Kafka.
func testTransactions(t *testing.T, addrs []string, topic string) {
	p := producer(t, addrs, "tx-"+topic)
	yes, no := true, false
	transaction(t, p, topic, "C", 3, &yes) // 0-2, marker 3
	transaction(t, p, topic, "A", 3, &no)  // 4-6, marker 7
	transaction(t, p, topic, "D", 2, &yes) // 8-9, marker 10
	transaction(t, p, topic, "O", 2, nil)  // 11-12, open

	o := options(addrs...)
	o.Topic = topic
	committed := open(t, source(t, o), pipeline.NoPosition, nil)
	if got := values(committed.until(t, 11)); got != "C0 C1 C2 D0 D1" {
		t.Errorf("committed: %s", got)
	}
	if committed.Position() != 11 || committed.Lag(11) != 0 {
		t.Errorf("before the open transaction: position %d, lag %d; want 11, 0", committed.Position(), committed.Lag(11))
	}
	o.Isolation = kafkasource.ReadUncommitted
	all := open(t, source(t, o), pipeline.NoPosition, nil)
	if got := values(all.until(t, 13)); got != "C0 C1 C2 A0 A1 A2 D0 D1 O0 O1" {
		t.Errorf("uncommitted: %s", got)
	}
	// From every position, within aborted transactions and at markers too.
	want := map[int]string{0: "C0 C1 C2 D0 D1", 1: "C1 C2 D0 D1", 3: "D0 D1", 5: "D0 D1", 7: "D0 D1", 9: "D1", 10: ""}
	o.Isolation = kafkasource.ReadCommitted
	for from, w := range want {
		if got := values(open(t, source(t, o), pipeline.Position(from), nil).until(t, 11)); got != w {
			t.Errorf("committed from %d: %q, want %q", from, got, w)
		}
	}
	// A bounded source ends at the last stable offset as of now.
	bounded := o
	bounded.End.Place = kafkasource.Latest
	s := source(t, bounded)
	if got := splits(t, s)[0].End; got != 11 {
		t.Errorf("end %d, want the last stable offset 11", got)
	}
	// The transaction ends: what follows becomes readable.
	if err := p.End(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got := values(committed.until(t, 14)); got != "O0 O1" {
		t.Errorf("after the commit: %s", got)
	}
}

// TestRandomTransactions reads random logs of interleaved transactions, with both isolation levels, from random positions
// and with random sizes of blocks, and compares with what was written and with what franz-go reads.
func TestRandomTransactions(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			b := start(t, broker.Options{})
			testRandomLog(t, b.Addrs(), "ratings", rng, 60)
		})
	}
}

func testRandomLog(t *testing.T, addrs []string, topic string, rng *rand.Rand, steps int) {
	producers := []*broker.Producer{producer(t, addrs, topic+"-a"), producer(t, addrs, topic+"-b"), producer(t, addrs, topic+"-c")}
	running := map[*broker.Producer][]string{} // values of the open transactions
	committed := map[string]bool{}
	commit := func(values []string) {
		for _, v := range values {
			committed[v] = true
		}
	}
	codecs := []string{"none", "gzip", "snappy", "lz4", "zstd"}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for step := range steps {
		records := numbered(fmt.Sprintf("s%d-%s-", step, strings.Repeat("x", 100*rng.IntN(2))), 1+rng.IntN(4)) // half of them worth compressing
		texts := make([]string, len(records))
		for i, r := range records {
			texts[i] = string(r.Value)
		}
		if rng.IntN(3) == 0 {
			commit(texts)
			ok(broker.Produce(t.Context(), addrs, topic, 0, broker.Batch{Codec: codecs[rng.IntN(5)]}, records...))
			continue
		}
		p := producers[rng.IntN(len(producers))]
		switch {
		case running[p] == nil:
			ok(p.Begin())
			fallthrough
		case rng.IntN(2) == 0:
			ok(p.Produce(t.Context(), topic, 0, records...))
			running[p] = append(running[p], texts...)
		default:
			if rng.IntN(2) == 0 {
				commit(running[p])
				ok(p.End(t.Context(), true))
			} else {
				ok(p.End(t.Context(), false))
			}
			running[p] = nil
		}
	}
	for p, texts := range running {
		if texts != nil {
			commit(texts)
			ok(p.End(t.Context(), true))
		}
	}
	listed := func(level kafkasource.Isolation) (kafkasource.Options, pipeline.Position) {
		o := options(addrs...)
		o.Topic, o.Isolation, o.End.Place = topic, level, kafkasource.Latest
		return o, splits(t, source(t, o))[0].End
	}
	// Apache Kafka writes the markers of a transaction after it has answered that the transaction has ended.
	for {
		_, stable := listed(kafkasource.ReadCommitted)
		if _, all := listed(kafkasource.ReadUncommitted); all == stable {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, level := range []kafkasource.Isolation{kafkasource.ReadUncommitted, kafkasource.ReadCommitted} {
		o, end := listed(level)
		want := oracle(t, addrs, topic, level, int64(end))
		for _, r := range want {
			if level == kafkasource.ReadCommitted && !committed[r.Value] {
				t.Errorf("franz-go reads %q of an aborted transaction", r.Value)
			}
		}
		if level == kafkasource.ReadCommitted && len(want) != len(committed) {
			t.Errorf("franz-go reads %d records, %d were committed", len(want), len(committed))
		}
		for range 10 {
			o.MaxRows, o.MaxBytes = 1+rng.IntN(20), 1+rng.IntN(1500)
			from := rng.Int64N(int64(end) + 1)
			i := slices.IndexFunc(want, func(r row) bool { return r.At > from })
			if i < 0 {
				i = len(want)
			}
			r := open(t, source(t, o), pipeline.Position(from), nil)
			got := r.take(t, -1)
			if diff := cmp.Diff(want[i:], append([]row{}, got...)); diff != "" {
				t.Fatalf("%s from %d with %d rows and %d bytes a block:\n%s", level, from, o.MaxRows, o.MaxBytes, diff)
			}
			if r.Position() != end {
				t.Errorf("%s: ends at %d, not %d", level, r.Position(), end)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// oracle reads a log up to end with franz-go.
func oracle(t testing.TB, addrs []string, topic string, level kafkasource.Isolation, end int64) []row {
	t.Helper()
	iso := kgo.ReadCommitted()
	if level == kafkasource.ReadUncommitted {
		iso = kgo.ReadUncommitted()
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.FetchIsolationLevel(iso), kgo.FetchMaxWait(50*time.Millisecond), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out := []row{}
	for at := int64(0); at < end; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("oracle at %d of %d: %v", at, end, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			at = r.Offset + 1
			if !r.Attrs.IsControl() {
				out = append(out, row{Key: string(r.Key), Null: r.Key == nil, Value: string(r.Value), Time: r.Timestamp.UnixMicro(), At: at})
			}
		})
	}
	return out
}

// TestEndBehindAnOpenTransaction: what lies behind the end that was looked up, because a transaction was open, is said when the split has been read.
func TestEndBehindAnOpenTransaction(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	produce(t, b, "ratings", 0, broker.Batch{}, numbered("a", 5)...)
	transaction(t, producer(t, b.Addrs(), "tx"), "ratings", "open", 3, nil)
	o := options(b.Addrs()...)
	o.End.Place = kafkasource.Latest
	for _, level := range []kafkasource.Isolation{kafkasource.ReadCommitted, kafkasource.ReadUncommitted} {
		log := &buffer{}
		o.Isolation = level
		r := open(t, source(t, o), pipeline.NoPosition, &pipeline.Env{Logger: log.logger()})
		rows := r.take(t, -1)
		told := strings.Contains(log.String(), "a transaction was open") && strings.Contains(log.String(), "behind=3")
		if committed := level == kafkasource.ReadCommitted; told != committed || (len(rows) == 5) != committed {
			t.Errorf("%s: %d rows, log %s", level, len(rows), log)
		}
	}
}
