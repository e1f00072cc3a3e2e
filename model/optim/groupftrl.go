package optim

import (
	"github.com/monolith-go/monolith/internal/simd"
)

// GroupFTRL is [FTRL] whose L1 is of the length of a vector, so that all weights of an id become exactly 0 together (Yang et al., 2010; as G-FTRL for
// features of a feed, Ni et al., 2019):
//
//	n' = n + g²
//	z  = z + g - σ·w        σ = (β+√n')/lr' - (β+√n)/lr
//	n  = n'
//	w  = 0                                                  if ‖z‖ ≤ L1
//	w  = lr'·z·(L1 - ‖z‖)/‖z‖ / (β + √n + L2·lr')           otherwise
//
// lr is the learning rate of the update that made w; as in FTRL it is not stored, w holds it. With vectors of one weight it is FTRL. State: n [dim],
// z [dim].
type GroupFTRL FTRL

var _ Optimizer = GroupFTRL{}

// WithDefaults returns a copy in which every zero field has its default.
func (o GroupFTRL) WithDefaults() GroupFTRL { return GroupFTRL(FTRL(o).WithDefaults()) }

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o GroupFTRL) Validate() error { return FTRL(o).check(o.Name()) }

// Name is "group_ftrl".
func (GroupFTRL) Name() string { return "group_ftrl" }

// String renders the rule with every setting.
func (o GroupFTRL) String() string { return FTRL(o).render(o.Name()) }

// StateDim is 2·dim: n and z.
func (GroupFTRL) StateDim(dim int) int { return 2 * dim }

// Init sets n to InitialAccumulator and z to 0.
func (o GroupFTRL) Init(w, state []float32) {
	FTRL{InitialAccumulator: o.InitialAccumulator}.Init(w, state)
}

// Update applies one gradient. An lr of 0 changes neither weights nor state.
func (o GroupFTRL) Update(w, state, grad []float32, lr float32) {
	rate := orDefault(o.LR, DefaultFTRLLR) * lr
	if rate == 0 {
		return
	}
	n, z := state[:len(w)], state[len(w):2*len(w)]
	// w was made of z as c·z/((β+√n)/lr + L2), so (β+√n)/lr·w = c·z - L2·w and the former lr is not needed. Where c is 0, w is 0 or the
	// initial value, which no gradient has made.
	simd.GroupLeader(w, n, z, grad, rate, o.Beta, o.L2, groupShrink(z, o.L1))
	c := groupShrink(z, o.L1)
	if c == 0 {
		clear(w)
		return
	}
	simd.GroupWeights(w, n, z, rate, o.Beta, o.L2, c)
}

// groupShrink is the c of c·z = z·(l1 - ‖z‖)/‖z‖, or 0 up to l1.
func groupShrink(z []float32, l1 float32) float32 {
	length := sqrt32(simd.GroupSquares(z, z, 0))
	if length <= l1 {
		return 0
	}
	return (l1 - length) / length
}
