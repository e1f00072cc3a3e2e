package parse

import (
	"math"
	"sort"

	"github.com/monolith-go/monolith/model"
)

const (
	// maxDense bounds dense values. The products of a few of them, and squares of these, must still be a float32, and the
	// number itself be one that a model can learn from; a larger one is a mistake in the data.
	maxDense = 1e9
	// maxObserved bounds dense values that the model standardises itself: their squares must be a float32.
	maxObserved = 1e15
)

// numbers is what is made of the numbers of a dense feature; see [Feature].Clip.
type numbers struct {
	clip      []float64
	log       bool
	mean, std float64
	most      float32 // of what comes out
}

// apply changes a finite number; what comes out may be an infinity.
func (n *numbers) apply(x float32) float32 {
	if n.clip == nil && !n.log && n.std == 0 {
		return x
	}
	v := float64(x)
	if n.clip != nil {
		v = min(max(v, n.clip[0]), n.clip[1])
	}
	if n.log {
		v = math.Copysign(math.Log1p(math.Abs(v)), v)
	}
	if n.std != 0 {
		v = min(max((v-n.mean)/n.std, -model.MaxDeviations), model.MaxDeviations)
	}
	return float32(v)
}

// bucket is the signature of a number: how many boundaries are not above it, or floor(log2(|v|+1)), see [Float].
func (f *feature) bucket(v float64) int64 {
	if f.buckets == nil {
		return int64(math.Log2(math.Abs(v) + 1))
	}
	return int64(sort.Search(len(f.buckets), func(i int) bool { return f.buckets[i] > v }))
}
