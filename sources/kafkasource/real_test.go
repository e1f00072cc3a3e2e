package kafkasource_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/testbed/realkafka"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/kafkasink"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// TestApacheKafka runs what matters most against a real broker, where it differs from kfake most of all: its answer to a
// position outside of the log says nothing about the log's limits, topics come and go in the background, compaction
// leaves the log's start alone, and fetches are checked against the history of leader epochs.
func TestApacheKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a JVM; left out with -short")
	}
	t.Parallel()
	k := realkafka.Start(t)
	addrs := []string{k.Addr}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	create := func(t *testing.T, topic string, config map[string]string) kafkasource.Options {
		t.Helper()
		spec := kafkasink.Topic{Partitions: 1, Replication: 1, Config: config}
		if err := kafkasink.CreateTopic(t.Context(), kafkasink.Options{Brokers: addrs, Topic: topic}, spec); err != nil {
			t.Fatal(err)
		}
		o := options(addrs...)
		o.Topic, o.RetryFor, o.Timeout = topic, 2*time.Minute, time.Minute // a broker on a busy machine takes its time to start again
		return o
	}
	send := func(t *testing.T, topic string, how broker.Batch, records ...broker.Record) {
		t.Helper()
		if err := broker.Produce(t.Context(), addrs, topic, 0, how, records...); err != nil {
			t.Fatal(err)
		}
	}
	deleteTopic := func(t *testing.T, topic string) {
		t.Helper()
		q := kmsg.NewPtrDeleteTopicsRequest()
		q.TopicNames, q.TimeoutMillis = []string{topic}, 10_000
		one := kmsg.NewDeleteTopicsRequestTopic()
		one.Topic = &topic
		q.Topics = append(q.Topics, one)
		r, err := q.RequestWith(t.Context(), client)
		if err = errors.Join(err, kerr.ErrorForCode(r.Topics[0].ErrorCode)); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("codecs", func(t *testing.T) {
		o := create(t, "codecs", nil)
		for _, c := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
			send(t, "codecs", broker.Batch{Codec: c}, numbered(c, 100)...)
			p, err := kafkasink.NewProducer(kafkasink.Options{Brokers: addrs, Topic: "codecs", Codec: c})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(p.Produce(t.Context(), kafkasink.Record{Value: []byte("sink-" + c), Partition: kafkasink.ByKey}), p.Close()); err != nil {
				t.Fatal(err)
			}
		}
		o.End.Place = kafkasource.Latest
		all := open(t, source(t, o), pipeline.NoPosition, nil).take(t, -1)
		if len(all) != 505 || all[100].Value != "sink-none" || all[504].Value != "sink-zstd" {
			t.Fatalf("%d rows", len(all))
		}
		for from := 0; from <= 505; from += 61 {
			if got := open(t, source(t, o), pipeline.Position(from), nil).take(t, -1); len(got) != 505-from {
				t.Errorf("from %d: %d rows", from, len(got))
			}
		}
	})
	t.Run("transactions", func(t *testing.T) {
		create(t, "tx", nil)
		testTransactions(t, addrs, "tx")
	})
	t.Run("random transactions", func(t *testing.T) {
		create(t, "random", nil)
		testRandomLog(t, addrs, "random", rand.New(rand.NewPCG(1, 2)), 25)
	})
	t.Run("position outside of the log", func(t *testing.T) {
		o := create(t, "oor", nil)
		send(t, "oor", broker.Batch{Size: 10}, numbered("a", 200)...)
		o.MaxRows, o.MaxBytes = 10, 100
		s := source(t, o)
		split := splits(t, s)[0]
		live := openSplit(t, s, split, 0, nil)
		live.take(t, 10)
		q := kmsg.NewPtrDeleteRecordsRequest()
		topic := kmsg.NewDeleteRecordsRequestTopic()
		topic.Topic = "oor"
		part := kmsg.NewDeleteRecordsRequestTopicPartition()
		part.Offset = 150
		topic.Partitions = append(topic.Partitions, part)
		q.Topics = append(q.Topics, topic)
		if r, err := q.RequestWith(t.Context(), client); err != nil || r.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		_, err := live.fails(t)
		wantGap(t, err, live.Position(), 150, 200, "DeleteRecords")
		_, err = s.Open(t.Context(), &pipeline.Env{Source: "in"}, split, 20)
		wantGap(t, err, 20, 150, 200, "source.kafka.on_gap")
		_, err = s.Open(t.Context(), &pipeline.Env{Source: "in"}, split, 201)
		wantGap(t, err, 201, 150, 200, "truncated")
		o.OnGap, o.End.Place = kafkasource.SkipGap, kafkasource.Latest
		skip := open(t, source(t, o), 20, nil)
		if got := skip.take(t, -1); len(got) != 50 || skip.Skipped() != 130 {
			t.Errorf("%d rows, skipped %d", len(got), skip.Skipped())
		}
	})
	t.Run("topic is re-created", func(t *testing.T) {
		o := create(t, "again", nil)
		send(t, "again", broker.Batch{}, numbered("old", 10)...)
		before := splits(t, source(t, o))[0]
		r := open(t, source(t, o), pipeline.NoPosition, nil)
		r.take(t, 10)
		deleteTopic(t, "again")
		create(t, "again", nil)
		send(t, "again", broker.Batch{}, numbered("new", 30)...)
		rows, err := r.fails(t)
		if len(rows) != 0 {
			t.Errorf("read %s", values(rows))
		}
		var gap *pipeline.GapError // the limits depend on when the reader looks
		if !errors.As(err, &gap) || gap.Want != 10 || !strings.Contains(gap.Other, "re-created") {
			t.Errorf("%v", err)
		}
		o.GroupID = "stale"
		err = source(t, o).Acknowledge(t.Context(), map[string]pipeline.StoredSplit{"again-00000": {Position: 10, Memory: before.Memory}})
		if gap, ok := errors.AsType[*pipeline.GapError](err); !ok || gap.Other == "" {
			t.Errorf("acknowledging positions of the topic before: %v", err)
		}
		q := kmsg.NewPtrOffsetFetchRequest()
		q.Group = "stale"
		topic := kmsg.NewOffsetFetchRequestTopic()
		topic.Topic, topic.Partitions = "again", []int32{0}
		q.Topics = append(q.Topics, topic)
		at, err := q.RequestWith(t.Context(), client)
		for deadline := time.Now().Add(patience); errors.Is(err, kerr.CoordinatorNotAvailable) && time.Now().Before(deadline); { // it is the first group of the broker
			time.Sleep(50 * time.Millisecond)
			at, err = q.RequestWith(t.Context(), client)
		}
		if err != nil || len(at.Topics) != 1 || at.Topics[0].Partitions[0].Offset != -1 {
			t.Errorf("%+v, %v", at, err)
		}
	})
	t.Run("missing topic", func(t *testing.T) {
		o := options(addrs...)
		o.Topic = "codec"
		if _, err := source(t, o).Splits(t.Context()); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), `did you mean "codecs"?`) {
			t.Errorf("%v", err)
		}
	})
	t.Run("group", func(t *testing.T) {
		o := create(t, "group", nil)
		send(t, "group", broker.Batch{}, numbered("a", 10)...)
		o.GroupID = "trainer"
		if err := source(t, o).Acknowledge(t.Context(), map[string]pipeline.StoredSplit{"group-00000": {Position: 7, Memory: splits(t, source(t, o))[0].Memory}}); err != nil {
			t.Fatal(err)
		}
		q := kmsg.NewPtrOffsetFetchRequest()
		q.Group = "trainer"
		topic := kmsg.NewOffsetFetchRequestTopic()
		topic.Topic, topic.Partitions = "group", []int32{0}
		q.Topics = append(q.Topics, topic)
		r, err := q.RequestWith(t.Context(), client)
		if err != nil || len(r.Topics) != 1 || r.Topics[0].Partitions[0].Offset != 7 {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("security", func(t *testing.T) {
		o := create(t, "secret", nil)
		send(t, "secret", broker.Batch{}, numbered("a", 3)...)
		o.Brokers, o.End.Place = []string{k.SecureAddr}, kafkasource.Latest
		o.TLS = &kafkasource.TLS{CA: k.CAFile}
		for _, m := range []kafkasource.Mechanism{kafkasource.Plain, kafkasource.ScramSHA256, kafkasource.ScramSHA512} {
			o.SASL = &kafkasource.SASL{Mechanism: m, User: realkafka.User, Password: realkafka.Password}
			if got := values(open(t, source(t, o), pipeline.NoPosition, nil).take(t, -1)); got != "a0 a1 a2" {
				t.Errorf("%s: %s", m, got)
			}
			o.SASL = &kafkasource.SASL{Mechanism: m, User: realkafka.User, Password: "wrong"}
			if _, err := source(t, o).Splits(t.Context()); !errors.Is(err, pipeline.ErrConfig) {
				t.Errorf("%s, wrong password: %v", m, err)
			}
			o.Brokers = []string{k.Addr}
			o.TLS = nil
			if _, err := source(t, o).Splits(t.Context()); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "takes no log-in: take source.kafka.sasl out") {
				t.Errorf("%s, a log-in where none is wanted: %v", m, err)
			}
			o.Brokers, o.TLS = []string{k.SecureAddr}, &kafkasource.TLS{CA: k.CAFile}
		}
		o.SASL, o.RetryFor = nil, 200*time.Millisecond
		if _, err := source(t, o).Splits(t.Context()); err == nil || !strings.Contains(err.Error(), "if the listener wants a log-in, set source.kafka.sasl") {
			t.Errorf("without a log-in: %v", err)
		}
	})
	t.Run("compaction", func(t *testing.T) {
		o := create(t, "users", map[string]string{
			"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "500",
		})
		for i := range 20 {
			send(t, "users", broker.Batch{}, broker.Record{Key: []byte("a"), Value: fmt.Appendf(nil, "v%d", i)}, broker.Record{Key: fmt.Appendf(nil, "b%d", i%4), Value: fmt.Appendf(nil, "w%d", i)})
		}
		// The active segment is never compacted: later records close it.
		const end = 41
		time.Sleep(250 * time.Millisecond) // a segment is closed by age alone
		send(t, "users", broker.Batch{}, broker.Record{Key: []byte("last"), Value: []byte("x")})
		for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
			left := len(oracle(t, addrs, "users", kafkasource.ReadCommitted, end))
			if left < 20 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("nothing was compacted: %d records", left)
			}
		}
		o.End.Place = kafkasource.Latest
		// The cleaner continues while we read. A read counts when another client sees the same log before and after it; then
		// it must agree record by record.
		counted := 0
		for from := int64(0); from <= end; from += 3 {
			for deadline := time.Now().Add(3 * time.Minute); ; {
				before := oracle(t, addrs, "users", kafkasource.ReadCommitted, end)
				r := open(t, source(t, o), pipeline.Position(from), nil)
				got := r.take(t, -1)
				if r.Position() != end {
					t.Errorf("from %d: ends at %d, not %d", from, r.Position(), end)
				}
				if after := oracle(t, addrs, "users", kafkasource.ReadCommitted, end); slices.Equal(before, after) {
					left := slices.DeleteFunc(before, func(w row) bool { return w.At <= from })
					if diff := cmp.Diff(left, append([]row{}, got...)); diff != "" {
						t.Errorf("from %d: %s", from, diff)
					}
					counted++
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("from %d: the log does not come to rest", from)
				}
			}
		}
		t.Logf("%d reads counted, %d records left of %d", counted, len(oracle(t, addrs, "users", kafkasource.ReadCommitted, end)), end)
	})
	t.Run("kill -9", func(t *testing.T) {
		o := create(t, "kill", nil)
		send(t, "kill", broker.Batch{}, numbered("a", 100)...)
		r := open(t, source(t, o), pipeline.NoPosition, nil)
		r.take(t, 100)
		if err := k.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := k.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		send(t, "kill", broker.Batch{}, numbered("b", 10)...)
		if got := r.take(t, 10); got[0].Value != "b0" || got[0].At != 101 || r.Position() != 110 {
			t.Errorf("%s up to %d", values(got), r.Position())
		}
	})
}
