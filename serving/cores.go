package serving

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/monolith-go/monolith/model"
)

// cores are the processors on which predictions are computed, and how many batches are at it. While there are processors to spare a batch is computed on several, so that its answer comes sooner
// and is out of the way of the next one; where all are taken each batch has one, which loses nothing to waiting for others.
type cores struct {
	each int          // of a batch at most
	all  atomic.Int32 // of all of them
	busy atomic.Int32
	pins atomic.Pointer[pins] // nil: batches are computed where the kernel puts them
}

// mostCores is how many processors a batch is computed on at most: requests have some hundred examples, of which more threads than that get too few to be worth waking.
const mostCores = 4

func newCores() *cores {
	all := runtime.GOMAXPROCS(0)
	c := &cores{each: min(all, mostCores)}
	if all == 2 {
		// Requests that come by themselves gain nothing from both, as the second thread has to be woken first, and the next one then finds no processor to spare (docs/measurements.md).
		c.each = 1
	}
	c.all.Store(int32(all))
	return c
}

// limit makes batches leave all but so many processors alone.
func (c *cores) limit(all int) { c.all.Store(int32(min(all, runtime.GOMAXPROCS(0)))) }

// pin makes batches keep to CPUs of their own, where each has one. Errors: why they do not.
func (c *cores) pin() error {
	if c.each > 1 || runtime.GOMAXPROCS(0) != 2 {
		return fmt.Errorf("the process computes with %d threads, not 2", runtime.GOMAXPROCS(0))
	}
	p, err := newPins()
	c.pins.Store(p)
	return err
}

// newSession makes a session that uses the processors that are to spare.
func (v *Version) newSession() model.Session {
	s := v.params.Model().Graph.NewSession(v.cores.each)
	if k, ok := s.(model.Keeper); ok { // fetch says when they change
		k.KeepDense()
	}
	if l, ok := s.(model.Limited); ok {
		l.Limit(func() bool { return v.cores.taken() }) // those of a server, once it is one of its versions
	}
	return s
}

// taken reports whether there are no processors to spare, which batches that are computed notice on their way.
func (c *cores) taken() bool {
	all, busy := int(c.all.Load()), int(c.busy.Load())
	return all == 1 || busy > 1 && busy*c.each > all
}

// predict computes the predictions of a batch.
func (c *cores) predict(s model.Session, in *model.Inputs) [][]float32 {
	busy := c.busy.Add(1)
	defer c.busy.Add(-1)
	if p := c.pins.Load(); p != nil && busy <= 2 { // with more, both CPUs have enough to do wherever they are computed
		if cpu := p.pin(); cpu != nil {
			defer p.unpin(cpu)
		}
	}
	return s.Predict(in)
}
