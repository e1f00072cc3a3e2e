package kafkasource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// TestMain checks that no goroutine of the package outlives the tests.
func TestMain(m *testing.M) {
	if m.Run() != 0 {
		return // with that code
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		buf := make([]byte, 4<<20)
		stacks := string(buf[:runtime.Stack(buf, true)])
		leaked := strings.Contains(stacks, "kafkasource.(*fetcher)") || strings.Contains(stacks, "kafkawire.(*Conn)")
		if !leaked {
			return
		}
		if time.Now().After(deadline) {
			panic("goroutines of kafkasource outlive the tests:\n" + stacks)
		}
	}
}

// start runs a broker with one topic of one partition, and more as the options say.
func start(t testing.TB, o broker.Options) *broker.Broker {
	t.Helper()
	if o.Topics == nil {
		o.Topics = map[string]int{"ratings": 1}
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

func produce(t testing.TB, b *broker.Broker, topic string, partition int, how broker.Batch, records ...broker.Record) {
	t.Helper()
	if err := broker.Produce(t.Context(), b.Addrs(), topic, partition, how, records...); err != nil {
		t.Fatal(err)
	}
}

// numbered makes n records "tag0", "tag1" ...
func numbered(tag string, n int) []broker.Record {
	out := make([]broker.Record, n)
	for i := range out {
		out[i].Value = fmt.Appendf(nil, "%s%d", tag, i)
	}
	return out
}

// patience bounds what a test waits for: far more than it takes on a busy machine.
const patience = 5 * time.Minute

// options are those of a test whose broker answers quickly, but on a machine that may be busy.
func options(addrs ...string) kafkasource.Options {
	return kafkasource.Options{
		Brokers: addrs, Topic: "ratings", MaxWait: 50 * time.Millisecond, RetryFor: patience, Timeout: patience,
	}
}

func source(t testing.TB, o kafkasource.Options) *kafkasource.Source {
	t.Helper()
	s, err := kafkasource.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// refusal is what listing splits at a listener that answers ends with. An attempt that a busy machine has not answered in time
// says nothing of the listener, unless that is what a test wants to see.
func refusal(t testing.TB, o kafkasource.Options, wants func(error) bool) error {
	t.Helper()
	for late := time.Now().Add(patience); ; {
		_, err := source(t, o).Splits(t.Context())
		if err == nil || wants(err) || !strings.Contains(err.Error(), "timeout") || time.Now().After(late) {
			return err
		}
	}
}

func splits(t testing.TB, s *kafkasource.Source) []pipeline.Split {
	t.Helper()
	out, err := s.Splits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// places leaves out what is remembered of splits.
func places(splits []pipeline.Split) []pipeline.Split {
	for i := range splits {
		splits[i].Memory = ""
	}
	return splits
}

// rig is a reader with a checked allocator.
type rig struct {
	*kafkasource.Reader
	env *pipeline.Env
}

// open opens the first split of a source at a position; pipeline.NoPosition: at its start.
func open(t testing.TB, s *kafkasource.Source, from pipeline.Position, env *pipeline.Env) rig {
	t.Helper()
	split := splits(t, s)[0]
	if from == pipeline.NoPosition {
		from = split.Start
	}
	return openSplit(t, s, split, from, env)
}

func openSplit(t testing.TB, s *kafkasource.Source, split pipeline.Split, from pipeline.Position, env *pipeline.Env) rig {
	t.Helper()
	if env == nil {
		env = &pipeline.Env{}
	}
	checked := memory.NewCheckedAllocator(memory.NewGoAllocator())
	env.Source, env.Allocator = "in", checked
	r, err := s.Open(t.Context(), env, split, from)
	if err != nil {
		t.Fatalf("open at %d: %v", from, err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
		checked.AssertSize(t, 0)
	})
	return rig{r.(*kafkasource.Reader), env}
}

// row is a record as a test compares it.
type row struct {
	Key, Value string
	Null       bool // the key is null
	Time       int64
	At         int64 // position after the record
}

func rowsOf(t testing.TB, blk *pipeline.Block) []row {
	t.Helper()
	keys := blk.Column(pipeline.ColKey).(*array.Binary)
	times := blk.Column(pipeline.ColTime).(*array.Int64)
	out := make([]row, blk.NumRows())
	for i := range out {
		out[i] = row{
			Key: string(keys.Value(i)), Null: keys.IsNull(i), Value: string(blk.Payload().Value(i)),
			Time: times.Value(i), At: blk.Positions()[i],
		}
	}
	return out
}

// next returns the rows of the next block and checks that blocks join.
func (r rig) next(ctx context.Context, t testing.TB) ([]row, error) {
	t.Helper()
	before := r.Position()
	blk, err := r.Next(ctx)
	if err != nil {
		if r.Position() != before {
			t.Errorf("position moved from %d to %d with error %v", before, r.Position(), err)
		}
		return nil, err
	}
	defer blk.Release()
	o := blk.Origin()
	if o.From != before || o.To != r.Position() || o.To < o.From || o.Source != "in" {
		t.Fatalf("block %s after position %d, reader at %d", o, before, r.Position())
	}
	last := int64(o.From)
	for i, p := range blk.Positions() {
		if begin := blk.Begins()[i]; begin != p-1 {
			t.Errorf("the record before %d begins at %d", p, begin)
		}
		if p <= last {
			t.Fatalf("position %d of row %d is not after %d", p, i, last)
		}
		last = p
	}
	return rowsOf(t, blk), nil
}

// take reads until it has n rows, or to the end of the split for n < 0.
func (r rig) take(t testing.TB, n int) []row {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out []row
	for n < 0 || len(out) < n {
		rows, err := r.next(ctx, t)
		if errors.Is(err, io.EOF) && n < 0 {
			break
		}
		if err != nil {
			t.Fatalf("after %d rows of %d, at %d: %v", len(out), n, r.Position(), err)
		}
		out = append(out, rows...)
	}
	return out
}

// until reads until the position is reached.
func (r rig) until(t testing.TB, at pipeline.Position) []row {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out []row
	for r.Position() < at {
		rows, err := r.next(ctx, t)
		if err != nil {
			t.Fatalf("at %d, before %d: %v", r.Position(), at, err)
		}
		out = append(out, rows...)
	}
	return out
}

// fails reads until an error and returns it.
func (r rig) fails(t testing.TB) ([]row, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out []row
	for {
		rows, err := r.next(ctx, t)
		if err != nil {
			if ctx.Err() != nil {
				t.Fatalf("no error in time, at %d after %d rows", r.Position(), len(out))
			}
			return out, err
		}
		out = append(out, rows...)
	}
}

func values(rows []row) string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = r.Value
	}
	return strings.Join(out, " ")
}

func wantGap(t testing.TB, err error, want, first, last pipeline.Position, hint string) {
	t.Helper()
	var gap *pipeline.GapError
	if !errors.As(err, &gap) {
		t.Fatalf("error %v, want a gap", err)
	}
	if gap.Want != want || gap.First != first || gap.Last != last || !strings.Contains(gap.Error(), hint) {
		t.Errorf("gap %+v, want position %d outside [%d,%d) with hint %q", gap, want, first, last, hint)
	}
}

func asDataError(err error) (*pipeline.DataError, bool) {
	var bad *pipeline.DataError
	return bad, errors.As(err, &bad)
}

// rawBatches returns the record batches of partition 0 of a topic, as they are stored, from an offset on.
func rawBatches(t testing.TB, b *broker.Broker, name string, from int64) []byte {
	t.Helper()
	c, err := broker.NewClient(b.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q := kmsg.NewPtrFetchRequest()
	q.MaxWaitMillis, q.MinBytes = 100, 1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = name, b.Cluster.TopicInfo(name).TopicID
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = from, 1<<20
	topic.Partitions = append(topic.Partitions, p)
	q.Topics = append(q.Topics, topic)
	r, err := q.RequestWith(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r.Topics[0].Partitions[0].RecordBatches
}
