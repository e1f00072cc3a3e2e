package kafkasink_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/kafkasink"
)

func start(t testing.TB, o broker.Options) *broker.Broker {
	t.Helper()
	if o.Topics == nil {
		o.Topics = map[string]int{"out": 3}
	}
	b, err := broker.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// options are those of a test whose broker is there, but on a machine that may be busy.
func options(b *broker.Broker) kafkasink.Options {
	return kafkasink.Options{Brokers: b.Addrs(), Topic: "out", RetryFor: 5 * time.Minute, Timeout: 5 * time.Minute}
}

func producer(t testing.TB, o kafkasink.Options) *kafkasink.Producer {
	t.Helper()
	p, err := kafkasink.NewProducer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// read returns n records of a topic by partition, read with franz-go.
func read(t testing.TB, b *broker.Broker, topic string, n int) map[int32][]*kgo.Record {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs()...), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out := map[int32][]*kgo.Record{}
	for got := 0; got < n; {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", got, n, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			out[r.Partition] = append(out[r.Partition], r)
			got++
		})
	}
	return out
}

func TestPartitionsAndOrder(t *testing.T) {
	t.Parallel()
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			t.Parallel()
			b := start(t, broker.Options{})
			o := options(b)
			o.Codec, o.MaxBytes = codec, 100 // many requests
			p := producer(t, o)
			if n, err := p.Partitions(t.Context()); n != 3 || err != nil {
				t.Fatalf("%d partitions, %v", n, err)
			}
			at := time.UnixMilli(1_700_000_000_123)
			var in []kafkasink.Record
			for i := range 200 {
				r := kafkasink.Record{Value: fmt.Appendf(nil, "v%d", i), Time: at, Partition: i % 3}
				if i%2 == 0 {
					r.Key = fmt.Appendf(nil, "k%d", i%10)
					r.Partition = kafkasink.ByKey
				}
				in = append(in, r)
			}
			in = append(in, kafkasink.Record{Key: []byte("k"), Partition: 0, Headers: []kafkasink.Header{{Key: "h", Value: []byte("x")}}})
			if err := p.Produce(t.Context(), in...); err != nil {
				t.Fatal(err)
			}
			got := read(t, b, "out", len(in))
			// The choice by key is that of franz-go's and Java's partitioner.
			choose := kgo.StickyKeyPartitioner(nil).ForTopic("out")
			want := map[int32][]string{}
			for _, r := range in {
				part := int32(r.Partition)
				if r.Partition == kafkasink.ByKey {
					part = int32(choose.Partition(&kgo.Record{Key: r.Key}, 3))
				}
				want[part] = append(want[part], fmt.Sprintf("%q=%q", r.Key, r.Value))
			}
			have := map[int32][]string{}
			for part, rs := range got {
				for _, r := range rs {
					have[part] = append(have[part], fmt.Sprintf("%q=%q", r.Key, r.Value))
				}
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Error(diff)
			}
			first, last := got[0][0], got[0][len(got[0])-1]
			if !first.Timestamp.Equal(at) || last.Value != nil || len(last.Headers) != 1 || string(last.Headers[0].Value) != "x" {
				t.Errorf("first %+v, last %+v", first, last)
			}
		})
	}
}

func TestRecordsWithoutKeyTakeTurns(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	p := producer(t, options(b))
	if err := p.Produce(t.Context(), slices.Repeat([]kafkasink.Record{{Value: []byte("v"), Partition: kafkasink.ByKey}}, 30)...); err != nil {
		t.Fatal(err)
	}
	for part, rs := range read(t, b, "out", 30) {
		if len(rs) != 10 {
			t.Errorf("partition %d has %d records", part, len(rs))
		}
	}
}

// TestFaultsThatPass: nothing is lost, and the order stays, while brokers refuse now and then.
func TestFaultsThatPass(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.RequestTimedOut, kerr.UnknownTopicOrPartition} {
		t.Run(e.Message, func(t *testing.T) {
			t.Parallel()
			b := start(t, broker.Options{Topics: map[string]int{"out": 1}})
			b.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "out", Err: e, Count: 3})
			o := options(b)
			o.MaxBytes = 1 // a record a request
			p := producer(t, o)
			var in []kafkasink.Record
			for i := range 10 {
				in = append(in, kafkasink.Record{Value: []byte{byte('0' + i)}})
			}
			if err := p.Produce(t.Context(), in...); err != nil {
				t.Fatal(err)
			}
			var got string
			for _, r := range read(t, b, "out", 10)[0] {
				if s := string(r.Value); !strings.HasSuffix(got, s) { // an answer that was lost may have doubled it
					got += s
				}
			}
			if got != "0123456789" {
				t.Error(got)
			}
		})
	}
}

func TestFailuresAreNamed(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	o := options(b)
	o.MaxBytes = 1
	p := producer(t, o)
	b.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "out", Partitions: []int32{1}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	var in []kafkasink.Record
	for i := range 9 {
		in = append(in, kafkasink.Record{Value: []byte{byte('0' + i)}, Partition: i % 3})
	}
	in = append(in, kafkasink.Record{Partition: 7})
	err := p.Produce(t.Context(), in...)
	var failed *kafkasink.ProduceError
	if !errors.As(err, &failed) || !errors.Is(err, pipeline.ErrConfig) {
		t.Fatalf("%v", err)
	}
	if diff := cmp.Diff([]int{1, 4, 7, 9}, failed.Records); diff != "" {
		t.Error(diff)
	}
	if got := read(t, b, "out", 6); len(got[0]) != 3 || len(got[2]) != 3 {
		t.Errorf("%d and %d records were written", len(got[0]), len(got[2]))
	}
}

// TestAllReplicasAcknowledge: an embedded broker answers all the same, so the request is looked at.
func TestAllReplicasAcknowledge(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	acks := make(chan int16, 1)
	b.Cluster.ControlKey(int16(kmsg.Produce), func(q kmsg.Request) (kmsg.Response, error, bool) {
		acks <- q.(*kmsg.ProduceRequest).Acks
		return nil, nil, false
	})
	if err := producer(t, options(b)).Produce(t.Context(), kafkasink.Record{Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	if got := <-acks; got != -1 {
		t.Errorf("acks=%d, want all (-1)", got)
	}
}

func TestRecordTooLarge(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	err := producer(t, options(b)).Produce(t.Context(), kafkasink.Record{Value: make([]byte, 2<<20)})
	if !errors.Is(err, pipeline.ErrConfig) || !errors.Is(err, kafka.MessageSizeTooLarge) {
		t.Error(err)
	}
	for _, want := range []string{`topic "`, "1 record(s) in 2097", "max.message.bytes"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

// TestUnknownTopic: a topic that does not exist is answered with the one that is nearest to it, or those that there are, and is a mistake of the job.
func TestUnknownTopic(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Topics: map[string]int{"predictions": 2, "clicks": 1}})
	for topic, want := range map[string]string{
		"predictions2":          `it does not exist; did you mean "predictions"?: create it, or name another in `,
		"impressions of nobody": `it does not exist, nor any with a similar name (there are ["clicks" "predictions"]): create it`,
	} {
		o := options(b)
		o.Topic = strings.ReplaceAll(topic, " ", "-")
		_, err := producer(t, o).Partitions(t.Context())
		if !errors.Is(err, pipeline.ErrConfig) || errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", o.Topic, err, want)
		}
	}
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	o := kafkasink.Options{Brokers: []string{addr}, Topic: "out", RetryFor: 200 * time.Millisecond}
	err = producer(t, o).Produce(t.Context(), kafkasink.Record{}, kafkasink.Record{})
	var failed *kafkasink.ProduceError
	if !errors.Is(err, pipeline.ErrUnavailable) || !errors.As(err, &failed) || len(failed.Records) != 2 || !strings.Contains(err.Error(), addr) {
		t.Errorf("%v", err)
	}
	o.RetryFor = time.Hour
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
	if err := producer(t, o).Produce(ctx, kafkasink.Record{}); !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
	s, err := kafkasink.New(kafkasink.Options{Brokers: []string{addr}, Topic: "out", RetryFor: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), nil); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("open: %v", err)
	}
}

func TestBrokerRestarts(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Dir: t.TempDir(), Topics: map[string]int{"out": 1}})
	p := producer(t, options(b))
	if err := p.Produce(t.Context(), kafkasink.Record{Value: []byte("a")}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Produce(t.Context(), kafkasink.Record{Value: []byte("b")}) }()
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := read(t, b, "out", 2)[0]; string(got[0].Value) != "a" || string(got[1].Value) != "b" {
		t.Errorf("%q %q", got[0].Value, got[1].Value)
	}
}

func TestCreateTopic(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Brokers: 3})
	o := options(b)
	o.Topic = "made"
	spec := kafkasink.Topic{Partitions: 4, Replication: 2, Config: map[string]string{"cleanup.policy": "compact"}}
	if err := kafkasink.CreateTopic(t.Context(), o, spec); err != nil {
		t.Fatal(err)
	}
	if n, err := producer(t, o).Partitions(t.Context()); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := kafkasink.CreateTopic(t.Context(), o, spec); !errors.Is(err, kafka.TopicAlreadyExists) || !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("again: %v", err)
	}
	if err := kafkasink.CreateTopic(t.Context(), o, kafkasink.Topic{Partitions: -1}); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("-1 partitions: %v", err)
	}
	o.Topic = "made2"
	if err := kafkasink.CreateTopic(t.Context(), o, kafkasink.Topic{}); err != nil {
		t.Errorf("defaults: %v", err)
	}
}

func block(t testing.TB, mem memory.Allocator, from pipeline.Position, key, hour bool) *pipeline.Block {
	t.Helper()
	b := array.NewRecordBuilder(mem, pipeline.BlockSchema(key, hour))
	defer b.Release()
	for i := range 5 {
		b.Field(0).(*array.BinaryBuilder).Append(fmt.Appendf(nil, "v%d", i))
		b.Field(1).(*array.Int64Builder).Append(int64(from) + int64(i) + 1)
		if key {
			if i == 2 {
				b.Field(2).AppendNull()
			} else {
				b.Field(2).(*array.BinaryBuilder).Append([]byte("k"))
			}
		}
		if hour {
			b.Field(b.Schema().NumFields() - 1).(*array.Int64Builder).Append(int64(i) * 1_000_000)
		}
	}
	blk, err := pipeline.NewBlock(b.NewRecordBatch(), pipeline.Origin{Source: "in", Split: "s", From: from, To: from + 5})
	if err != nil {
		t.Fatal(err)
	}
	return blk
}

func TestSink(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, time bool }{{true, true}, {true, false}, {false, false}} {
		t.Run(fmt.Sprintf("key=%v/time=%v", c.key, c.time), func(t *testing.T) {
			t.Parallel()
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			defer mem.AssertSize(t, 0)
			b := start(t, broker.Options{Topics: map[string]int{"out": 1}})
			s, err := kafkasink.New(options(b))
			if err != nil {
				t.Fatal(err)
			}
			w, err := s.Open(t.Context(), &pipeline.Env{})
			if err != nil {
				t.Fatal(err)
			}
			for from := range pipeline.Position(2) {
				if err := errors.Join(w.Write(t.Context(), block(t, mem, from*5, c.key, c.time)), w.Flush(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
			for i, r := range read(t, b, "out", 10)[0] {
				if want := fmt.Sprintf("v%d", i%5); string(r.Value) != want || (r.Key != nil) != (c.key && i%5 != 2) {
					t.Errorf("record %d: %q=%q", i, r.Key, r.Value)
				}
				if got := r.Timestamp.Unix(); c.time && i%5 > 0 && got != int64(i%5) {
					t.Errorf("record %d at %d", i, got)
				}
			}
			if err := errors.Join(w.Close(), w.Close()); err != nil {
				t.Error(err)
			}
			if err := w.Write(t.Context(), block(t, mem, 10, c.key, c.time)); !errors.Is(err, pipeline.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		})
	}
	b := start(t, broker.Options{})
	o := options(b)
	o.Topic = "none"
	s, err := kafkasink.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), nil); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "name another in kafka.topic") {
		t.Errorf("missing topic: %v", err)
	}
	if s.String() != "kafka none" {
		t.Errorf("%q", s)
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Topics: map[string]int{"out": 1}})
	p := producer(t, options(b))
	env := &pipeline.Env{BadRows: kafkasink.NewDeadLetters(p)}
	bad := &pipeline.DataError{Source: "ratings", Split: "ratings-00003", Position: 42, Reason: "malformed example", Err: errors.New("field 3")}
	if err := env.BadRow(t.Context(), bad, []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	if err := env.BadRow(t.Context(), bad, nil); err != nil {
		t.Fatal(err)
	}
	rs := read(t, b, "out", 2)[0]
	got := map[string]string{"key": string(rs[0].Key), "value": string(rs[0].Value)}
	for _, h := range rs[0].Headers {
		got[h.Key] = string(h.Value)
	}
	want := map[string]string{
		"key": "ratings/ratings-00003", "value": "garbage", "source": "ratings", "split": "ratings-00003", "position": "42",
		"reason": "malformed example", "error": bad.Error(),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if rs[1].Value == nil || len(rs[1].Value) != 0 {
		t.Errorf("no payload became %q", rs[1].Value)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := env.BadRow(t.Context(), bad, nil); !errors.Is(err, pipeline.ErrClosed) || !errors.Is(err, pipeline.ErrBadData) {
		t.Errorf("when it cannot be written: %v", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	_, err := kafkasink.New(kafkasink.Options{Brokers: []string{"nohost"}, Codec: "rar", MaxBytes: -1, RetryFor: -1, CommitRows: -1})
	for _, want := range []string{`"nohost"`, "no Topic", `"rar"`, "MaxBytes is -1", "RetryFor", "CommitRows -1"} {
		if err == nil || !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in %v", want, err)
		}
	}
	if _, err := kafkasink.New(kafkasink.Options{Brokers: []string{"a:1"}, Topic: strings.Repeat("t", 250)}); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("a topic of 250 letters: %v", err)
	}
}

func BenchmarkProduce(b *testing.B) {
	bed, err := broker.Start(broker.Options{Topics: map[string]int{"out": 4}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = bed.Close() }()
	p, err := kafkasink.NewProducer(options(bed))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	const n, size = 10_000, 200
	records := make([]kafkasink.Record, n)
	for i := range records {
		records[i] = kafkasink.Record{Value: make([]byte, size), Partition: i % 4}
	}
	b.SetBytes(n * size)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Produce(b.Context(), records...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
