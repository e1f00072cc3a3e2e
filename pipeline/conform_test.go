package pipeline_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
)

func items(p *pool) func(*testing.T, memory.Allocator) []*item {
	return func(*testing.T, memory.Allocator) (out []*item) {
		for i := range pipeline.Position(7) {
			out = append(out, p.make(pipeline.Origin{Source: "test", Split: "a", From: i, To: i + 1}, 1))
		}
		return out
	}
}

// TestStagesConform runs the suite over a stage with a side output and one with state.
func TestStagesConform(t *testing.T) {
	p := &pool{}
	t.Run("side output", func(t *testing.T) {
		pipelinetest.TestStage(t, pipelinetest.StageHarness[*item, *item]{
			New: func(*testing.T) pipeline.Stage[*item, *item] { return &sieve{pool: p} }, Schema: itemSchema, Inputs: items(p),
		})
	})
	t.Run("state", func(t *testing.T) {
		pipelinetest.TestStage(t, pipelinetest.StageHarness[*item, *item]{
			New: func(*testing.T) pipeline.Stage[*item, *item] { return &number{p} }, Schema: itemSchema, Inputs: items(p),
		})
	})
}
