package ps_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

// TestTensorsAreSpread: no shard has more dense values than its share and one tensor, those of an MLP are divided nearly equally, and where
// a tensor lies does not depend on the order of the layout.
func TestTensorsAreSpread(t *testing.T) {
	t.Parallel()
	layout := func(lens ...int) *param.Layout {
		l := &param.Layout{}
		for i, n := range lens {
			l.Dense = append(l.Dense, param.Tensor{Name: fmt.Sprintf("t%d", i), Shape: []int{n}, Optimizer: optim.Adam{}})
		}
		return l
	}
	mlp := layout(624*400, 400, 400*400, 400, 400*400, 400, 400, 1)
	place := ps.NewPlacement(mlp, 2)
	if a, b := place.DenseLen(0), place.DenseLen(1); a+b != mlp.DenseLen() || max(a, b) > mlp.DenseLen()*57/100 {
		t.Errorf("400x3 lies on two shards as %d and %d values", a, b)
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		lens, largest := make([]int, 1+rng.IntN(20)), 0
		for i := range lens {
			lens[i] = 1 + rng.IntN(1<<rng.IntN(16))
			largest = max(largest, lens[i])
		}
		l, shards := layout(lens...), 1+rng.IntN(6)
		p := ps.NewPlacement(l, shards)
		at, held := map[string]int{}, make([]int, shards)
		for _, tensor := range l.Dense {
			at[tensor.Name] = p.TensorShard(tensor.Name)
			held[at[tensor.Name]] += tensor.Len()
		}
		for s, n := range held {
			if n != p.DenseLen(s) || n > l.DenseLen()/shards+largest {
				t.Errorf("%v on %d shards: shard %d has %d values, and says %d", lens, shards, s, n, p.DenseLen(s))
			}
		}
		rng.Shuffle(len(l.Dense), func(i, j int) { l.Dense[i], l.Dense[j] = l.Dense[j], l.Dense[i] })
		p = ps.NewPlacement(l, shards)
		for _, tensor := range l.Dense {
			if p.TensorShard(tensor.Name) != at[tensor.Name] {
				t.Errorf("%v on %d shards: %s lies on shard %d, and in another order on %d", lens, shards, tensor.Name, at[tensor.Name], p.TensorShard(tensor.Name))
			}
		}
	}
}
