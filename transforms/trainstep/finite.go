package trainstep

import (
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline/fid"
)

// maxGradient bounds the elements of a gradient. Rules square them and add the squares up in float32, which ends at 3e38; no
// model that learns anything comes near.
const maxGradient = 1e15

// check refuses a batch whose loss is no number, or with an element of a gradient that is NaN, infinite or beyond
// [maxGradient]: pushed once, it would stay in the shards, their logs and every snapshot from then on. Nothing of the batch is
// applied then and its position stays before it; the run ends. Observations (statistics of batch normalisation, moments) need
// only be finite.
func (s *step) check(p *Prepared, losses []float64) error {
	for h, loss := range losses {
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			of := ""
			if len(losses) > 1 {
				of = fmt.Sprintf(" for head %q", s.stage.scoring.schema.Heads[h].Name)
			}
			return fmt.Errorf("the loss of the batch %s%s is %v: %s", p.Origin(), of, loss, s.advice(p))
		}
	}
	layout := s.stage.model.Layout()
	rows := maxGradient / max(1, s.stage.rowScale(p.NumRows()))
	for t, grads := range s.session.Grads() {
		if i := firstOutside(grads, rows); i >= 0 {
			return fmt.Errorf("batch %s: the gradient of %s is %v: %s", p.Origin(), s.nameRow(p, t, i), grads[i], s.advice(p))
		}
	}
	grads := s.session.DenseGrad()
	for _, tensor := range layout.Dense {
		n := tensor.Len()
		limit := float32(maxGradient)
		if _, observed := tensor.Optimizer.(optim.EMA); observed {
			limit = math.MaxFloat32
		}
		if i := firstOutside(grads[:n], limit); i >= 0 {
			return fmt.Errorf("batch %s: the gradient of tensor %s, element %d, is %v: %s", p.Origin(), tensor.Name, i, grads[i], s.advice(p))
		}
		grads = grads[n:]
	}
	return nil
}

// extremeWeight is the weight of an example above which it is named when a model diverges: those of importance sampling are
// below.
const extremeWeight = 1e4

// firstOutside returns the first element that is not within ±limit, NaN included, or -1.
func firstOutside(x []float32, limit float32) int {
	if simd.MaxMagnitude(x) <= limit {
		return -1
	}
	return slices.IndexFunc(x, func(v float32) bool { return !(v >= -limit && v <= limit) })
}

// nameRow names element i of table t's gradients: table, segment, the fid and a feature that has it.
func (s *step) nameRow(p *Prepared, t, i int) string {
	table := s.stage.model.Layout().Tables[t]
	row, at := i/table.Dim(), i%table.Dim()
	segment := slices.IndexFunc(table.Segments, func(g param.Segment) bool { at -= g.Dim; return at < 0 })
	id := p.rows.Keys[t][row]
	name := fmt.Sprintf("table %s, segment %s, fid %s", table.Name, table.Segments[segment].Name, fid.ID(id))
	sparse := 0
	for _, f := range s.stage.model.Features() {
		if f.Kind != model.Sparse {
			continue
		}
		if f.Table == t && slices.Contains(p.in.Sparse[sparse].Index, int32(row)) {
			return fmt.Sprintf("%s (feature %q)", name, f.Name)
		}
		sparse++
	}
	return name
}

// advice says what may be the matter, with the largest number that the batch brought along.
func (s *step) advice(p *Prepared) string {
	text := "the model diverged, and nothing of this batch was applied; lower the learning rate, clip gradients (clip_norm), or scale dense features"
	name, largest := "", float32(0)
	dense := 0
	for _, f := range s.stage.model.Features() {
		if f.Kind != model.Dense {
			continue
		}
		for _, x := range p.in.Dense[dense] {
			if x = max(x, -x); x > largest || x != x {
				name, largest = f.Name, x
			}
		}
		dense++
	}
	if largest > 100 || largest != largest {
		text += fmt.Sprintf(" (the largest value is %v, of feature %q)", largest, name)
	}
	// What multiplies each gradient is named where it is out of the ordinary: no learning rate mends it.
	var weight float32
	for _, w := range p.in.Weights {
		weight = max(weight, w)
	}
	if weight > extremeWeight {
		text += fmt.Sprintf("; first of all look at the weights of the examples (parse.weight), of which the largest is %v: a weight multiplies the gradients of its row", weight)
	}
	return text
}
