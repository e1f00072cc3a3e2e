package pipeline_test

import (
	"context"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/memsource"
)

// nowhere is a sink that is never opened.
type nowhere struct{}

func (nowhere) String() string      { return "nowhere" }
func (nowhere) Fingerprint() string { return "nowhere" }
func (nowhere) Open(context.Context, *pipeline.Env) (pipeline.Writer[*pipeline.Batch], error) {
	panic("not opened")
}

// batches is a source that is never read.
func batches(t *testing.T, unbounded bool, fields ...arrow.Field) pipeline.Source[*pipeline.Batch] {
	t.Helper()
	s, err := memsource.Batches(arrow.NewSchema(fields, nil), map[string][]arrow.RecordBatch{"a": nil}, memsource.Options{Unbounded: unbounded})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	user   = arrow.Field{Name: "user", Type: arrow.PrimitiveTypes.Int64}
	price  = arrow.Field{Name: "price", Type: arrow.PrimitiveTypes.Float32}
	offset = arrow.Field{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64}
)

// grouped is a graph of two shuffles, one after the other.
func grouped(t *testing.T, partitions int) *pipeline.Plan {
	t.Helper()
	g := pipeline.New("visits")
	users := pipeline.Shuffle(pipeline.Read(g, "clicks", batches(t, false, user, offset)), "by user", pipeline.ShuffleOptions{Key: "user", Partitions: partitions})
	again := pipeline.Shuffle(users, "again", pipeline.ShuffleOptions{Key: "user", Partitions: 2})
	pipeline.Into(again, "end", pipeline.Sink[*pipeline.Batch](nowhere{}))
	p, err := g.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestShufflePlan: each shuffle is the end of a segment and the beginning of another, and is drawn so.
func TestShufflePlan(t *testing.T) {
	t.Parallel()
	p := grouped(t, 4)
	if p.Hash() == grouped(t, 5).Hash() {
		t.Error("the number of partitions is not in the hash")
	}
	infos := p.Shuffles()
	if len(p.Segments) != 3 || len(infos) != 2 || infos[0].From != 0 || infos[0].To != 1 || infos[1].From != 1 || infos[1].To != 2 || infos[0].Partitions != 4 {
		t.Errorf("%d segments, shuffles %+v", len(p.Segments), infos)
	}
	splits, err := p.Segments[1].Splits(t.Context())
	if err != nil || len(splits) != 4 || splits[3].Name != infos[0].Split(3) {
		t.Errorf("splits %v, %v", splits, err)
	}
	golden(t, "shuffle", p)
	// Without a runner that keeps rows nothing runs.
	if _, err := p.Segments[1].Run(t.Context(), pipeline.RunOptions{}); err == nil || !strings.Contains(err.Error(), "run the whole plan") {
		t.Errorf("a segment by itself: %v", err)
	}
}

// TestShuffleFaults: what cannot be grouped is an error when the graph is planned.
func TestShuffleFaults(t *testing.T) {
	t.Parallel()
	g := pipeline.New("bad")
	into := func(s pipeline.Stream[*pipeline.Batch], name string) {
		pipeline.Into(s, name, pipeline.Sink[*pipeline.Batch](nowhere{}))
	}
	shuffle := func(name, key string, partitions int, unbounded bool, fields ...arrow.Field) {
		s := pipeline.Read(g, name+" source", batches(t, unbounded, fields...))
		into(pipeline.Shuffle(s, name, pipeline.ShuffleOptions{Key: key, Partitions: partitions}), name+" end")
	}
	shuffle("stream", "user", 1, true, user, offset)
	shuffle("zero", "user", 0, false, user, offset)
	shuffle("nokey", "usr", 1, false, user, offset)
	shuffle("float", "price", 1, false, price, offset)
	_, err := g.Plan()
	if err == nil {
		t.Fatal("a bad graph was planned")
	}
	for _, want := range []string{
		`"stream.in": source "stream source" has no end`, `"zero.in": 0 partitions`, `"nokey.in": there is no column "usr" to group by, but user int64`,
		`"float.in": column "price" is float32; keys are`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no fault %q in\n%v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "\n"); n != 4 {
		t.Errorf("%d faults, want 4:\n%v", n, err)
	}
	g = pipeline.New("circle")
	both := pipeline.Tee(pipeline.Read(g, "clicks", batches(t, false, user, offset)), "both", 2)
	users := pipeline.Shuffle(both[0], "users", pipeline.ShuffleOptions{Key: "user", Partitions: 1})
	into(pipeline.Merge(g, "all", users, both[1]), "end")
	if _, err := g.Plan(); err == nil || !strings.Contains(err.Error(), "would have to wait for") {
		t.Errorf("a circle: %v", err)
	}
}
