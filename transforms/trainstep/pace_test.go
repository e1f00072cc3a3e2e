package trainstep_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// pacedStore has resumed splits.
type pacedStore struct {
	*mapStore
	at map[position.SplitID]position.Progress
}

func (s *pacedStore) EachResumed(f func(position.SplitID, position.Progress)) {
	for id, p := range s.at {
		f(id, p)
	}
}

func (s *pacedStore) Applied(source, split string) position.Position {
	if p, ok := s.at[position.SplitID{Source: source, Split: split}]; ok {
		return p.Position
	}
	return position.None
}

// TestRatesGoByExamples counts, beside the stage, what the model was trained on before each batch: what this worker has resumed, and what others have trained on as
// often as it is asked. A batch that comes again for the sake of an output moves nothing.
func TestRatesGoByExamples(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	m := newModel(t, zoo.Config{Name: zoo.LR})
	schedule := optim.Schedule{Kind: optim.PolynomialSchedule, Over: 1000, Power: 1, WarmUp: 20, WarmUpFrom: 0.5}
	const lr = 0.5 // of a plateau
	id := func(split string) position.SplitID { return position.SplitID{Source: "test", Split: split} }
	for _, every := range []int64{0, 2} {
		asked := int64(0)
		trained := func(context.Context) (map[pipeline.SplitID]int64, error) {
			asked++ // own splits as they were before a staged batch of them was committed: nobody may believe it
			return map[pipeline.SplitID]int64{id("s"): 1, id("done"): 2, id("theirs"): 100 * asked}, nil
		}
		store := &pacedStore{newMapStore(m.Layout()), map[position.SplitID]position.Progress{
			id("s"): {Position: 4, Rows: 7, Batches: 1}, id("done"): {Position: 9, Rows: 5, Batches: 1}, id("new"): {Position: position.None},
		}}
		open := func(context.Context, *pipeline.Env) (trainstep.Store, error) { return store, nil }
		look, err := trainstep.NewLookup(m, open).Open(t.Context(), &pipeline.Env{})
		if err != nil {
			t.Fatal(err)
		}
		step, err := trainstep.NewStep(m, open, trainstep.StepOptions{LR: lr, Schedule: schedule, Trained: trained, TrainedEvery: every}).Open(t.Context(), &pipeline.Env{})
		if err != nil {
			t.Fatal(err)
		}
		n, asks := int64(12), int64(1) // 7 and 5
		counted := int64(0)
		for at := 0; at < 40; at += 4 {
			if every > 0 && counted >= every {
				asks, counted = asks+1, 0
			}
			want := float32(lr) * float32(schedule.Factor(n+100*asks))
			err := look.Process(t.Context(), newBatch(t, mem, at, 4), func(p *trainstep.Prepared) error {
				return step.Process(t.Context(), p, func(g *trainstep.Gradients) error {
					if got := g.Update().LR; got != want {
						t.Errorf("asked every %d: [%d,%d): rates times %v, want %v", every, at, at+4, got, want)
					}
					g.Release()
					return nil
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			if at >= 4 { // the first is applied already
				n, counted = n+4, counted+1
			}
		}
		if asked != asks {
			t.Errorf("asked %d times, want %d", asked, asks)
		}
		if err := errors.Join(look.Close(), step.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnknownProgressEndsTheRun(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	m := newModel(t, zoo.Config{Name: zoo.LR})
	store, gone := newMapStore(m.Layout()), errors.New("gone")
	look, err := trainstep.NewLookup(m, store.open).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	step, err := trainstep.NewStep(m, store.open, trainstep.StepOptions{
		Schedule: optim.Schedule{WarmUp: 1}, Trained: func(context.Context) (map[pipeline.SplitID]int64, error) { return nil, gone },
	}).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	err = look.Process(t.Context(), newBatch(t, mem, 0, 4), func(p *trainstep.Prepared) error {
		return step.Process(t.Context(), p, func(*trainstep.Gradients) error { return nil })
	})
	if !errors.Is(err, gone) || !strings.Contains(err.Error(), "schedule of learning rates") {
		t.Error(err)
	}
	if err := errors.Join(look.Close(), step.Close()); err != nil {
		t.Fatal(err)
	}
}

var _ trainstep.Store = (*pacedStore)(nil)
