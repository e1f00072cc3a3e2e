package pipeline_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/pipeline"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func TestPlanGolden(t *testing.T) {
	for name, depths := range map[string][]int{
		"training":  {4, 2, 2},
		"lockstep":  {4, 0, 0},
		"no_queues": {},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, map[string]int{"a": 1}, 3, depths...)
			golden(t, name, f.plan)
		})
	}
}

func TestPlanHashFollowsWhatIsDone(t *testing.T) {
	hash := func(join int, depths ...int) string {
		return newFixture(t, map[string]int{"a": 1}, join, depths...).plan.Hash()
	}
	same, again := hash(3, 4, 2), hash(3, 4, 2)
	if same != again {
		t.Errorf("the same graph has hashes %s and %s", same, again)
	}
	for _, other := range []string{hash(4, 4, 2), hash(3, 4, 1), hash(3, 4)} {
		if other == same {
			t.Errorf("another graph has the same hash %s", other)
		}
	}
}

// TestPlanReportsEveryFault counts the faults of one bad graph and looks for the place of each.
func TestPlanReportsEveryFault(t *testing.T) {
	p := &pool{}
	g := pipeline.New("bad")
	src := pipeline.Read(g, "clicks", &fakeSource{pool: p})
	twice := pipeline.Via(src, "join", &fakeStage{pool: p, join: 1})
	pipeline.Into(twice, "sink", &fakeSink{})
	pipeline.Into(twice, "sink", &fakeSink{}) // the stream and the name a second time
	pipeline.Prefetch(pipeline.Read(g, "", &fakeSource{pool: p}), "deep", -1)
	pipeline.Into(pipeline.Via(pipeline.Read(g, "other", &fakeSource{pool: p}), "strict", &strictStage{}), "third", pipeline.Sink[*item](nil))
	_, err := g.Plan()
	if err == nil {
		t.Fatal("a bad graph was planned")
	}
	got := err.Error()
	for _, want := range []string{
		`stage "join": its stream is read 2 times`,
		`sink "sink": the name is used at plan_test.go:`,
		`source "": has no name`,
		`queue "deep": depth -1 is below 0`,
		`queue "deep": nothing reads its stream`,
		`stage "strict": no column "price"`,
		`stage "strict": column "x" is int64, not float32`,
		`sink "third": is nil`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no fault %q", want)
		}
	}
	lines := strings.Split(got, "\n")[1:]
	if len(lines) != 8 {
		t.Errorf("%d faults, want 8:\n%s", len(lines), got)
	}
	for _, l := range lines {
		if !strings.HasPrefix(strings.TrimSpace(l), "plan_test.go:") {
			t.Errorf("fault without a place: %s", l)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
	if _, err := pipeline.New("empty").Plan(); err == nil || !strings.Contains(err.Error(), "no source") {
		t.Errorf("empty graph: %v", err)
	}
}

// strictStage wants columns that are not there.
type strictStage struct{ fakeStage }

func (*strictStage) Schema(in *arrow.Schema) (*arrow.Schema, error) {
	return in, pipeline.CheckColumns(in,
		arrow.Field{Name: "price", Type: arrow.PrimitiveTypes.Float32},
		arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Float32})
}
