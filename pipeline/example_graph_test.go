package pipeline_test

import (
	"context"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/local"
)

// numbers is a source of one's own: the numbers below n as text, in one split. The position of a record is its number.
type numbers struct{ n int64 }

func (s *numbers) Schema() *arrow.Schema { return pipeline.BlockSchema(false, false) }
func (s *numbers) Bounded() bool         { return true }
func (s *numbers) String() string        { return "numbers" }
func (s *numbers) Fingerprint() string   { return fmt.Sprintf("numbers n=%d", s.n) }

func (s *numbers) Splits(context.Context) ([]pipeline.Split, error) {
	return []pipeline.Split{{Name: "0", End: pipeline.Position(s.n)}}, nil
}

func (s *numbers) Open(_ context.Context, env *pipeline.Env, split pipeline.Split, from pipeline.Position) (pipeline.Reader[*pipeline.Block], error) {
	return &numbersReader{s, env.Source, split.Name, from}, nil
}

// numbersReader reads one split. What it keeps is a function of the position, so a run can continue from any.
type numbersReader struct {
	*numbers
	source, split string
	at            pipeline.Position
}

// Next returns a block of up to 4 records; the caller owns it.
func (r *numbersReader) Next(context.Context) (*pipeline.Block, error) {
	from, to := r.at, min(r.at+4, pipeline.Position(r.n))
	if from == to {
		return nil, io.EOF
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, r.Schema())
	defer b.Release()
	for p := from; p < to; p++ {
		b.Field(0).(*array.BinaryBuilder).AppendString(fmt.Sprint(p))
		b.Field(1).(*array.Int64Builder).Append(int64(p + 1)) // the position after the record
	}
	r.at = to
	return pipeline.NewBlock(b.NewRecordBatch(), pipeline.Origin{Source: r.source, Split: r.split, From: from, To: to})
}

func (r *numbersReader) Position() pipeline.Position { return r.at }
func (r *numbersReader) Close() error                { return nil }

// count is a stage of one's own that counts blocks and hands them on.
type count struct{ blocks int }

func (c *count) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, nil }
func (c *count) String() string                                 { return "count" }
func (c *count) Fingerprint() string                            { return "count" }

func (c *count) Open(context.Context, *pipeline.Env) (pipeline.Processor[*pipeline.Block, *pipeline.Block], error) {
	return c, nil // one split and one worker: nothing overlaps
}

func (c *count) Process(_ context.Context, in *pipeline.Block, emit func(*pipeline.Block) error) error {
	c.blocks++
	return emit(in) // which takes over the ownership
}

func (c *count) Flush(context.Context, func(*pipeline.Block) error) error { return nil }
func (c *count) Close() error                                             { return nil }

// A graph is described, planned and run: a source and a stage of the program's own, a queue and a sink.
func Example() {
	g := pipeline.New("example")
	counted := &count{}
	stream := pipeline.Read(g, "numbers", pipeline.Source[*pipeline.Block](&numbers{n: 10}))
	stream = pipeline.Via(stream, "count", pipeline.Stage[*pipeline.Block, *pipeline.Block](counted))
	sink := &printer{}
	pipeline.Into(pipeline.Prefetch(stream, "prefetch", 2), "print", pipeline.Sink[*pipeline.Block](sink))
	plan, err := g.Plan() // checks the graph and reports every fault with its line
	if err != nil {
		fmt.Println(err)
		return
	}
	stats, err := local.Run(context.Background(), plan, pipeline.RunOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(stats[0].Rows, "rows in", counted.blocks, "blocks, the last is", sink.rows[len(sink.rows)-1])
	// Output:
	// 10 rows in 3 blocks, the last is numbers:9
}
