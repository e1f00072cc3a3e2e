package kafkasink_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/testbed/realkafka"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sinks/kafkasink"
)

// committed reads what is committed in a topic, with franz-go, up to its last stable offsets: the members "value" of the rows by
// the header split, in the order of the partitions.
func committed(t testing.TB, addrs []string, topic string) map[string][]int64 {
	t.Helper()
	out := map[string][]int64{}
	for _, r := range committedRecords(t, addrs, topic) {
		split := ""
		for _, h := range r.Headers {
			if h.Key == kafkasink.HeaderSplit {
				split = string(h.Value)
			}
		}
		var v int64
		if _, err := fmt.Sscanf(string(r.Value), `{"value":%d,`, &v); err != nil {
			t.Fatalf("%q: %v", r.Value, err)
		}
		out[split] = append(out[split], v)
	}
	return out
}

func committedRecords(t testing.TB, addrs []string, topic string) (out []*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.FetchMaxWait(20*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	meta := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = &topic
	meta.Topics = append(meta.Topics, mt)
	layout, err := meta.RequestWith(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	stable := map[int32]int64{}
	for _, p := range layout.Topics[0].Partitions {
		q := kmsg.NewPtrListOffsetsRequest()
		q.IsolationLevel = 1
		qt := kmsg.NewListOffsetsRequestTopic()
		qt.Topic = topic
		qp := kmsg.NewListOffsetsRequestTopicPartition()
		qp.Partition, qp.Timestamp = p.Partition, -1
		qt.Partitions = append(qt.Partitions, qp)
		q.Topics = append(q.Topics, qt)
		a, err := q.RequestWith(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		if err := kerr.ErrorForCode(a.Topics[0].Partitions[0].ErrorCode); err != nil {
			t.Fatal(err)
		}
		if n := a.Topics[0].Partitions[0].Offset; n > 0 {
			stable[p.Partition] = n
		}
	}
	byPartition := map[int32][]*kgo.Record{}
	for len(stable) > 0 {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("still to come %v: %v", stable, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				byPartition[r.Partition] = append(byPartition[r.Partition], r)
			}
			if r.Offset >= stable[r.Partition]-1 { // a marker, mostly
				delete(stable, r.Partition)
			}
		})
	}
	for p := range int32(len(layout.Topics[0].Partitions)) {
		out = append(out, byPartition[p]...)
	}
	return out
}

func rowsSink(t testing.TB, o kafkasink.Options) *kafkasink.Sink[*pipeline.Batch] {
	t.Helper()
	s, err := kafkasink.NewRows(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func rowsWriter(t testing.TB, o kafkasink.Options) *kafkasink.Writer[*pipeline.Batch] {
	t.Helper()
	w, err := rowsSink(t, o).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w.(*kafkasink.Writer[*pipeline.Batch])
}

func resumes(t *testing.T, addrs []string, topic string, lives int, seed uint64) {
	pipelinetest.TestResumer(t, pipelinetest.ResumerHarness[*pipeline.Batch]{
		New: func(t *testing.T) pipeline.Sink[*pipeline.Batch] {
			return rowsSink(t, kafkasink.Options{
				Brokers: addrs, Topic: topic, Codec: []string{"none", "zstd", "gzip"}[seed%3], MaxBytes: 1000,
				CommitRows: 20 + int(seed)*10, CommitEvery: time.Duration(1+seed) * 5 * time.Millisecond, RetryFor: 5 * time.Minute, Timeout: 5 * time.Minute,
			})
		},
		Make: func(t *testing.T, mem memory.Allocator, split string, from, to pipeline.Position) *pipeline.Batch {
			return pipelinetest.Numbers(t, mem, split, from, to)
		},
		Stored: func(t *testing.T) map[string][]int64 { return committed(t, addrs, topic) },
		Fences: true, Lives: lives, Seed: seed,
	})
}

func TestResumer(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(strconv.Itoa(int(seed)), func(t *testing.T) {
			t.Parallel()
			b := start(t, broker.Options{Brokers: 1 + int(seed)%2, Topics: map[string]int{"out": 1 + int(seed)%4}})
			resumes(t, b.Addrs(), "out", 25, seed)
		})
	}
}

// TestApacheKafka holds the same against the real broker, also killed and started again.
func TestApacheKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a broker; part of the full run")
	}
	b := realkafka.Start(t)
	for seed, partitions := range []int{1, 3} {
		topic := fmt.Sprint("out", partitions)
		if err := kafkasink.CreateTopic(t.Context(), kafkasink.Options{Brokers: []string{b.Addr}, Topic: topic}, kafkasink.Topic{Partitions: partitions, Replication: 1}); err != nil {
			t.Fatal(err)
		}
		resumes(t, []string{b.Addr}, topic, 12, uint64(seed))
	}
	t.Run("kill -9 of the broker", func(t *testing.T) {
		o := kafkasink.Options{Brokers: []string{b.Addr}, Topic: "killed", RetryFor: 2 * time.Minute}
		if err := kafkasink.CreateTopic(t.Context(), o, kafkasink.Topic{Partitions: 1, Replication: 1}); err != nil {
			t.Fatal(err)
		}
		w := rowsWriter(t, o)
		mem := memory.NewGoAllocator()
		for i := range pipeline.Position(6) {
			if err := w.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", i*10, i*10+10)); err != nil {
				t.Fatal(err)
			}
			if i == 3 {
				if err := b.Kill(); err != nil {
					t.Fatal(err)
				}
				back := make(chan error, 1)
				go func() { back <- b.Restart(t.Context()) }()
				defer func() {
					if err := <-back; err != nil {
						t.Error(err)
					}
				}()
			}
			err := w.Flush(t.Context())
			if errors.Is(err, pipeline.ErrFenced) { // the broker has lost sight of the producer: begin again
				w = rowsWriter(t, o)
				p, err := w.Resume(t.Context(), "test", []pipeline.Split{{Name: "a"}})
				if err != nil || p["a"].Position%10 != 0 || p["a"].Position < i*10 {
					t.Fatalf("%+v, %v", p, err)
				}
				if p["a"].Position == i*10 {
					err = errors.Join(w.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", i*10, i*10+10)), w.Flush(t.Context()))
				}
				if err != nil {
					t.Fatal(err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
		}
		got := committed(t, []string{b.Addr}, "killed")["a"]
		for i, v := range got {
			if v != int64(i) {
				t.Fatalf("%d", got)
			}
		}
		if len(got) != 60 {
			t.Errorf("%d rows", len(got))
		}
	})
}

// TestDiesBeforeTheCommit: what was produced and never committed is written again by the next owner, once.
func TestDiesBeforeTheCommit(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Topics: map[string]int{"out": 2}})
	o := options(b)
	o.RetryFor = 300 * time.Millisecond
	mem := memory.NewGoAllocator()
	w := rowsWriter(t, o)
	if err := errors.Join(w.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", 0, 10)), w.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	var dead atomic.Bool
	dead.Store(true)
	var ends atomic.Int64
	b.Cluster.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster.KeepControl()
		if dead.Load() {
			ends.Add(1)
			return nil, errors.New("the connection breaks"), true
		}
		return nil, nil, false
	})
	if err := errors.Join(w.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", 10, 20)), w.Flush(t.Context())); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", 20, 30)); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("it continues although nobody knows what became of its rows: %v", err)
	}
	if ends.Load() == 0 {
		t.Fatal("nobody tried to commit")
	}
	dead.Store(false)
	w = rowsWriter(t, options(b))
	p, err := w.Resume(t.Context(), "test", []pipeline.Split{{Name: "a"}})
	if want := (pipeline.Progress{Position: 10, Rows: 10, Batches: 1}); err != nil || p["a"] != want {
		t.Fatalf("%+v, %v, want %+v", p, err, want)
	}
	if err := errors.Join(w.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", 10, 20)), w.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := committed(t, b.Addrs(), "out")["a"]; len(got) != 20 || got[10] != 10 {
		t.Errorf("%d", got)
	}
}

// TestTopicsHaveOwnersOfTheirOwn: an output of one name writes to two topics, and neither refuses the other.
func TestTopicsHaveOwnersOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Topics: map[string]int{"out": 1, "other": 1}})
	mem := memory.NewGoAllocator()
	o := options(b)
	one := rowsWriter(t, o)
	o.Topic = "other"
	two := rowsWriter(t, o)
	for i := range pipeline.Position(3) {
		for _, w := range []*kafkasink.Writer[*pipeline.Batch]{one, two} {
			if err := errors.Join(w.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", i*10, i*10+10)), w.Flush(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, topic := range []string{"out", "other"} {
		if got := committed(t, b.Addrs(), topic)["a"]; len(got) != 30 {
			t.Errorf("%d rows in %s", len(got), topic)
		}
	}
}

// TestAnswersThatAreLost: brokers that append and do not say so are asked again, and append nothing twice.
func TestAnswersThatAreLost(t *testing.T) {
	t.Parallel()
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.EndTxn, kmsg.AddPartitionsToTxn, kmsg.InitProducerID, kmsg.FindCoordinator} {
		t.Run(key.Name(), func(t *testing.T) {
			t.Parallel()
			b := start(t, broker.Options{Topics: map[string]int{"out": 1}})
			w := rowsWriter(t, options(b))
			fault := kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.RequestTimedOut, Count: 2}
			if key != kmsg.Produce {
				fault.Err = kerr.CoordinatorNotAvailable
			}
			b.Cluster.Fault(fault)
			mem := memory.NewGoAllocator()
			for i := range pipeline.Position(4) {
				if err := errors.Join(w.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", i*10, i*10+10)), w.Flush(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
			got := committed(t, b.Addrs(), "out")["a"]
			if len(got) != 40 || !slices.IsSorted(got) {
				t.Errorf("%d", got)
			}
		})
	}
}

// TestPartitionsAreAdded: a split that would go to another partition as a new one is found in the old one, and stays there.
func TestPartitionsAreAdded(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Topics: map[string]int{"out": 1}})
	mem := memory.NewGoAllocator()
	want := map[string]pipeline.Progress{}
	for n := 1; n < 6; n++ {
		if n > 1 {
			if err := b.AddPartitions(t.Context(), "out", n); err != nil {
				t.Fatal(err)
			}
		}
		w := rowsWriter(t, options(b))
		var splits []pipeline.Split
		for i := range 8 {
			splits = append(splits, pipeline.Split{Name: fmt.Sprint("split ", i)})
		}
		got, err := w.Resume(t.Context(), "test", splits)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("with %d partitions: %v\n%s", n, err, diff)
		}
		for i, sp := range splits {
			if i%n == 0 && n > 1 { // some rest for a while
				continue
			}
			from := max(got[sp.Name].Position, 0)
			if err := w.Write(t.Context(), pipelinetest.Numbers(t, mem, sp.Name, from, from+5)); err != nil {
				t.Fatal(err)
			}
			p := want[sp.Name]
			want[sp.Name] = pipeline.Progress{Position: from + 5, Rows: p.Rows + 5, Batches: p.Batches + 1}
		}
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for split, got := range committed(t, b.Addrs(), "out") {
		if !slices.IsSorted(got) || int64(len(got)) != want[split].Rows {
			t.Errorf("%s: %d rows of %d, in order: %v", split, len(got), want[split].Rows, slices.IsSorted(got))
		}
	}
}

// TestOutputsShareATopic: an output finds its own rows alone, and records that are no sink's are passed over.
func TestOutputsShareATopic(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{Topics: map[string]int{"out": 1}})
	mem := memory.NewGoAllocator()
	for i, output := range []string{"rows", "predictions"} {
		o := options(b)
		o.Output = output
		w := rowsWriter(t, o)
		p, err := w.Resume(t.Context(), "test", []pipeline.Split{{Name: "a"}})
		if err != nil || len(p) != 0 {
			t.Fatalf("%+v, %v", p, err)
		}
		n := pipeline.Position(10 + i)
		if err := errors.Join(w.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", 0, n)), w.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
		if err := producer(t, o).Produce(t.Context(), kafkasink.Record{Value: []byte("x"), Headers: []kafkasink.Header{{Key: "split", Value: []byte("a")}}}); err != nil {
			t.Fatal(err)
		}
		if p, err = rowsWriter(t, o).Resume(t.Context(), "test", []pipeline.Split{{Name: "a"}}); err != nil || p["a"].Position != n {
			t.Errorf("%s: %+v, %v", output, p, err)
		}
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	b := start(t, broker.Options{})
	pipelinetest.TestSink(t, pipelinetest.SinkHarness[*pipeline.Batch]{
		New: func(t *testing.T) pipeline.Sink[*pipeline.Batch] { return rowsSink(t, options(b)) },
		Inputs: func(t *testing.T, mem memory.Allocator) []*pipeline.Batch {
			return []*pipeline.Batch{pipelinetest.Numbers(t, mem, "a", 5, 9), pipelinetest.Numbers(t, mem, "b", 0, 1), pipelinetest.Numbers(t, mem, "a", 9, 9), pipelinetest.Numbers(t, mem, "a", 9, 30)}
		},
		Check: func(t *testing.T, rows int) {
			if n := len(committedRecords(t, b.Addrs(), "out")); n != rows {
				t.Errorf("%d rows of %d are there", n, rows)
			}
		},
	})
}
