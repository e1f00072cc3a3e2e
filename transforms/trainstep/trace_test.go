package trainstep_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// withWeights is newBatch with weights 0.5, 1, 1.5 ... times a factor.
func withWeights(t *testing.T, mem memory.Allocator, from, n int, factor float32) *pipeline.Batch {
	t.Helper()
	plain := newBatch(t, mem, from, n)
	defer plain.Release()
	b := array.NewFloat32Builder(mem)
	defer b.Release()
	for i := range n {
		b.Append(factor * float32(i+1) / 2)
	}
	weights := b.NewArray()
	defer weights.Release()
	field := arrow.Field{Name: pipeline.ColWeight, Type: arrow.PrimitiveTypes.Float32}
	rec := array.NewRecordBatch(arrow.NewSchema(append(testSchema.Fields(), field), nil), append(plain.Record().Columns(), weights), int64(n))
	batch, err := pipeline.NewBatch(rec, plain.Origin())
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// TestTraceIsWhatWasObserved compares the trace of every update with what the observer got, where predicting and
// training differ and where not; and with nobody observing.
func TestTraceIsWhatWasObserved(t *testing.T) {
	for name, cfg := range map[string]zoo.Config{
		"alike":  {Name: "lr"},
		"differ": {Name: "deepfm", Dim: 4, Hidden: []int{8}, BatchNorm: true, Dropout: 0.5},
	} {
		for _, progressive := range []bool{true, false} {
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			m := newModel(t, cfg)
			store := newMapStore(m.Layout())
			type examples struct{ Probs, Labels, Weights []float32 }
			var heard []examples
			run := func(observe trainstep.Observer) (traces [][]byte) {
				look, err := trainstep.NewLookup(m, store.open).Open(t.Context(), &pipeline.Env{})
				if err != nil {
					t.Fatal(err)
				}
				step, err := trainstep.NewStep(m, store.open, trainstep.StepOptions{Seed: 3, Progressive: progressive, Observe: observe}).Open(t.Context(), &pipeline.Env{})
				if err != nil {
					t.Fatal(err)
				}
				for _, b := range []*pipeline.Batch{newBatch(t, mem, 0, 8), withWeights(t, mem, 8, 5, 1), newBatch(t, mem, 13, 0), newBatch(t, mem, 13, 3)} {
					err := look.Process(t.Context(), b, func(p *trainstep.Prepared) error {
						return step.Process(t.Context(), p, func(g *trainstep.Gradients) error {
							defer g.Release()
							if g.NumRows() == 0 {
								if len(g.Update().Trace) != 0 {
									t.Error("an update without rows has a trace")
								}
								return nil
							}
							traces = append(traces, bytes.Clone(g.Update().Trace))
							return nil
						})
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				return traces
			}
			traces := run(func(o trainstep.Observation) {
				h := o.Scores.Heads[0]
				e := examples{slices.Clone(h.Predictions), slices.Clone(h.Labels), slices.Clone(o.Scores.Weights)}
				for range o.Scores.Rows - len(o.Scores.Weights) {
					e.Weights = append(e.Weights, 1)
				}
				heard = append(heard, e)
			})
			var got []examples
			for _, b := range traces {
				_, all, err := score.Decode(b)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, examples{all.Heads[0].Predictions, all.Heads[0].Labels, all.Weights})
			}
			if len(heard) != 3 || heard[1].Weights[4] != 2.5 {
				t.Fatalf("heard %+v", heard)
			}
			if diff := cmp.Diff(heard, got); diff != "" {
				t.Errorf("%s, progressive %v: trace (-observed +got):\n%s", name, progressive, diff)
			}
			if diff := cmp.Diff(traces, run(nil)); diff != "" {
				t.Errorf("%s, progressive %v: traces unobserved (-observed +not):\n%s", name, progressive, diff)
			}
			mem.AssertSize(t, 0)
		}
	}
}
