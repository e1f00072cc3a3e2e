package shard

import (
	"sync/atomic"

	"github.com/monolith-go/monolith/internal/crew"
	"github.com/monolith-go/monolith/model/param"
)

// denseTensor is a dense parameter with its optimizer's state.
type denseTensor struct {
	spec           param.Tensor
	weights, state []float32
	grad           []float32 // scratch for the L2 term
	push           int       // where in a push its part begins
}

func (d *denseTensor) update(b *batch) {
	d.spec.Update(d.weights, d.state, b.dense[d.push:][:d.spec.PushLen()], d.grad, b.lr, b.examples)
}

// denseUpdate is an update of dense tensors that goroutines share: each takes the next tensor. One is updated by one of them, so that the bits do not depend on how many
// there are.
type denseUpdate struct {
	crew.Crew
	tensors []denseTensor
	b       *batch
	next    atomic.Int64
}

// spreadDense is how many values an update of dense tensors has at least that is shared: a goroutine takes tens of microseconds to wake.
const spreadDense = 1 << 17

// Part implements [crew.Task].
func (u *denseUpdate) Part(int) {
	for {
		i := int(u.next.Add(1)) - 1
		if i >= len(u.tensors) {
			return
		}
		u.tensors[i].update(u.b)
	}
}

// updateDense applies what a batch has of the dense tensors.
func (s *Shard) updateDense(b *batch) {
	if s.threads == 1 || len(b.dense) < spreadDense {
		for i := range s.dense {
			s.dense[i].update(b)
		}
		return
	}
	u := &s.denseUpdate
	u.tensors, u.b = s.dense, b
	u.next.Store(0)
	u.Do(min(s.threads, len(s.dense)), u)
	u.b = nil
}
