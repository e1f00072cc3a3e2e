package trainstep_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// withWeights is newBatch with weights 0.5, 1, 1.5 ...
func withWeights(t *testing.T, mem memory.Allocator, from, n int) *pipeline.Batch {
	t.Helper()
	plain := newBatch(t, mem, from, n)
	defer plain.Release()
	b := array.NewFloat32Builder(mem)
	defer b.Release()
	for i := range n {
		b.Append(float32(i+1) / 2)
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

// TestTraceIsWhatWasObserved compares the trace of every update with what the observer heard, where predicting and
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
				for _, b := range []*pipeline.Batch{newBatch(t, mem, 0, 8), withWeights(t, mem, 8, 5), newBatch(t, mem, 13, 0), newBatch(t, mem, 13, 3)} {
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
				e := examples{append([]float32(nil), o.Probs...), append([]float32(nil), o.Labels...), append([]float32(nil), o.Weights...)}
				for range len(o.Probs) - len(o.Weights) {
					e.Weights = append(e.Weights, 1)
				}
				heard = append(heard, e)
			})
			var got []examples
			for _, b := range traces {
				probs, labels, weights, err := trainstep.DecodeTrace(b)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, examples{probs, labels, weights})
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

// TestTraceLayout pins the bytes: snapshots hold them.
func TestTraceLayout(t *testing.T) {
	t.Parallel()
	got := trainstep.AppendTrace([]byte{9}, []float32{0.25, 1}, []float32{1, 0}, []float32{2, 0.5})
	want := []byte{
		9,
		0, 0, 0x80, 0x3e, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40,
		0, 0, 0x80, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0x3f,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
	if _, _, _, err := trainstep.DecodeTrace(got); !errors.Is(err, trainstep.ErrTrace) {
		t.Errorf("25 bytes: %v, want ErrTrace", err)
	}
	if probs, _, _, err := trainstep.DecodeTrace(nil); err != nil || len(probs) != 0 {
		t.Errorf("nothing: %v, %v", probs, err)
	}
}

func FuzzDecodeTrace(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 11))
	f.Add(trainstep.AppendTrace(nil, []float32{0.5, float32(math.NaN())}, []float32{1, 0}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		probs, labels, weights, err := trainstep.DecodeTrace(b)
		if (err != nil) != (len(b)%12 != 0) {
			t.Fatalf("%d bytes: %v", len(b), err)
		}
		if err != nil {
			return
		}
		for i := range probs {
			for k, v := range []float32{probs[i], labels[i], weights[i]} {
				if got, want := math.Float32bits(v), binary.LittleEndian.Uint32(b[12*i+4*k:]); got != want {
					t.Fatalf("record %d, number %d: %08x, want %08x", i, k, got, want)
				}
			}
		}
		if again := trainstep.AppendTrace(nil, probs, labels, weights); !bytes.Equal(again, b) {
			t.Fatalf("again: %x, want %x", again, b)
		}
	})
}
