package trainstep_test

import (
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// poisoned is a model whose sessions put a value into one place of their gradients and leave the loss alone.
type poisoned struct {
	model.Model
	poison func(rows []float32, dense []float32)
}

func (m poisoned) NewSession(threads int) model.Session {
	return &poisonedSession{m.Model.NewSession(threads), m.poison}
}

type poisonedSession struct {
	model.Session
	poison func(rows []float32, dense []float32)
}

func (s *poisonedSession) Step(in *model.Inputs, seed uint64) ([][]float32, []float64) {
	predictions, losses := s.Session.Step(in, seed)
	s.poison(s.Grads()[0], s.DenseGrad())
	return predictions, losses
}

// TestGradientsThatAreNotFiniteAreRefused gives gradients one bad element each: nothing is emitted, and the error names what
// the element belongs to. As far as rules can square it, an element passes.
func TestGradientsThatAreNotFiniteAreRefused(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	inner := newModel(t, zoo.Config{Name: "deepfm", Dim: 3, Hidden: []int{4}, BatchNorm: true})
	layout := inner.Layout()
	offset := func(name string) int {
		for i, d := range layout.Dense {
			if d.Name == name {
				return layout.DenseOffset(i)
			}
		}
		t.Fatalf("no tensor %s", name)
		return 0
	}
	stride := layout.Tables[0].Dim()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		name   string
		poison func(rows, dense []float32)
		want   string // empty: it passes
	}{
		{"infinite vector", func(rows, _ []float32) { rows[2*stride+3] = inf }, `table embedding, segment vec, fid 0:2 (feature "item") is +Inf`},
		{"bias of a user", func(rows, _ []float32) { rows[len(rows)-stride] = nan }, `segment bias, fid 1:6 (feature "user") is NaN`},
		{"too large", func(rows, _ []float32) { rows[0] = -1e16 }, "segment bias, fid 0:0 (feature \"item\") is -1e+16"},
		{"large", func(rows, _ []float32) { rows[0] = -1e15 }, ""},
		{"layer", func(_, dense []float32) { dense[offset("deep.0.weight")+5] = nan }, "tensor deep.0.weight, element 5, is NaN"},
		{"last tensor", func(_, dense []float32) { dense[len(dense)-1] = -inf }, "is -Inf"},
		{"statistic", func(_, dense []float32) { dense[offset("deep.0.norm.moving_variance")] = 1e20 }, ""},
		{"infinite statistic", func(_, dense []float32) { dense[offset("deep.0.norm.moving_variance")] = inf }, "tensor deep.0.norm.moving_variance, element 0, is +Inf"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := poisoned{inner, c.poison}
			emitted, err := lookAndStep(t, m, newBatch(t, mem, 0, 8))
			switch {
			case c.want == "" && (err != nil || emitted != 1):
				t.Errorf("%v, %d emitted", err, emitted)
			case c.want != "" && (err == nil || emitted != 0):
				t.Errorf("a gradient that is not finite was emitted")
			case c.want != "" && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "test/s[0,8)")):
				t.Errorf("%v, want %q and the batch in it", err, c.want)
			}
		})
	}
}

// lookAndStep trains a model on one batch, and returns how many updates were emitted.
func lookAndStep(t *testing.T, m model.Model, b *pipeline.Batch) (emitted int, err error) {
	t.Helper()
	store := newMapStore(m.Layout())
	look, err := trainstep.NewLookup(m, store.open).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	step, err := trainstep.NewStep(m, store.open, trainstep.StepOptions{}).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	err = look.Process(t.Context(), b, func(p *trainstep.Prepared) error {
		return step.Process(t.Context(), p, func(g *trainstep.Gradients) error {
			emitted++
			g.Release()
			return nil
		})
	})
	return emitted, err
}

// TestWeightsThatAreExtremeAreNamed lets a loss end as no number: the advice is of weights where one is out of the ordinary, and
// not where they are as usual.
func TestWeightsThatAreExtremeAreNamed(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	inner := newModel(t, zoo.Config{Name: "lr"})
	for factor, want := range map[float32]string{1: "", 1e30: "parse.weight), of which the largest is 4e+30"} {
		m := poisoned{inner, func(rows, _ []float32) { rows[0] = float32(math.Inf(1)) }}
		_, err := lookAndStep(t, m, withWeights(t, mem, 0, 8, factor))
		if err == nil || !strings.Contains(err.Error(), "lower the learning rate") || !strings.Contains(err.Error(), want) ||
			want == "" && strings.Contains(err.Error(), "parse.weight") {
			t.Errorf("weights times %v: %v, want %q", factor, err, want)
		}
	}
}
