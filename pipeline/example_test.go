package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/memsource"
)

// printer is a sink that remembers which records it got.
type printer struct {
	mu   sync.Mutex
	rows []string
}

func (p *printer) String() string      { return "print" }
func (p *printer) Fingerprint() string { return "print" }
func (p *printer) Open(context.Context, *pipeline.Env) (pipeline.Writer[*pipeline.Block], error) {
	return p, nil
}

func (p *printer) Write(_ context.Context, b *pipeline.Block) error {
	defer b.Release()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range b.NumRows() {
		p.rows = append(p.rows, fmt.Sprintf("%s:%s", b.Origin().Source, b.Payload().Value(i)))
	}
	return nil
}
func (p *printer) Flush(context.Context) error { return nil }
func (p *printer) Close() error                { return nil }

func records(texts ...string) pipeline.Source[*pipeline.Block] {
	var rows [][]byte
	for _, t := range texts {
		rows = append(rows, []byte(t))
	}
	return memsource.Records(map[string][][]byte{"part": rows}, memsource.Options{MaxRows: 1})
}

// Two rows of clicks come for each of views, in an order that is a function of positions.
func ExampleMerge() {
	g := pipeline.New("example")
	clicks := pipeline.Read(g, "clicks", records("a", "b", "c", "d"))
	views := pipeline.Read(g, "views", records("x", "y"))
	both := pipeline.Prefetch(pipeline.Merge(g, "both", clicks.Weight(2), views), "prefetch", 4)
	sink := &printer{}
	pipeline.Into(both, "print", pipeline.Sink[*pipeline.Block](sink))
	plan, err := g.Plan()
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := plan.Segments[0].Run(context.Background(), pipeline.RunOptions{Deterministic: true}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sink.rows)
	// Output: [clicks:a views:x clicks:b clicks:c views:y clicks:d]
}

// Each branch of a tee has the same elements, shared and not copied.
func ExampleTee() {
	g := pipeline.New("example")
	clicks := pipeline.Prefetch(pipeline.Read(g, "clicks", records("a", "b", "c")), "prefetch", 4)
	branches := pipeline.Tee(clicks, "both", 2)
	train, keep := &printer{}, &printer{}
	pipeline.Into(branches[0], "train", pipeline.Sink[*pipeline.Block](train))
	pipeline.Into(pipeline.Prefetch(branches[1], "behind", 2), "keep", pipeline.Sink[*pipeline.Block](keep))
	plan, err := g.Plan()
	if err != nil {
		fmt.Println(err)
		return
	}
	stats, err := plan.Segments[0].Run(context.Background(), pipeline.RunOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(stats.Sinks["train"].Rows, stats.Sinks["keep"].Rows, slices.Equal(train.rows, keep.rows))
	// Output: 3 3 true
}
