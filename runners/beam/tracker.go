package beam

import (
	"math"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/sdf"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/io/rtrackers/offsetrange"
)

// tracker is an offset tracker that can be checkpointed but not cut: two halves of a restriction would be two executors of
// one split.
type tracker struct {
	*offsetrange.GrowableTracker
	claimed int64
}

var _ sdf.BoundableRTracker = (*tracker)(nil)

func newTracker(r offsetrange.Restriction) (*sdf.LockRTracker, error) {
	t, err := offsetrange.NewGrowableTracker(r, noEstimate{})
	if err != nil {
		return nil, err
	}
	return sdf.NewLockRTracker(&tracker{t, r.Start - 1}), nil
}

// noEstimate: how much will come is not known.
type noEstimate struct{}

// Estimate implements [offsetrange.RangeEndEstimator].
func (noEstimate) Estimate() int64 { return 0 }

// TryClaim implements [sdf.RTracker]. Of claims that are not above earlier ones nothing remains to be done.
func (t *tracker) TryClaim(pos any) bool {
	at := pos.(int64)
	if at <= t.claimed {
		return !t.IsDone()
	}
	t.claimed = at
	return t.GrowableTracker.TryClaim(at)
}

// TrySplit implements [sdf.RTracker].
func (t *tracker) TrySplit(fraction float64) (primary, residual any, err error) {
	if fraction > 0 {
		return t.GetRestriction(), nil, nil
	}
	return t.GrowableTracker.TrySplit(fraction)
}

// claim claims everything below at. It never claims the last unit of a restriction: that is finish's.
func claim(rt *sdf.LockRTracker, at int64) {
	r := rt.GetRestriction().(offsetrange.Restriction)
	if last := min(at, r.End-1) - 1; last >= r.Start {
		rt.TryClaim(last)
	}
}

// finish claims the whole restriction.
func finish(rt *sdf.LockRTracker) {
	rt.TryClaim(int64(math.MaxInt64 - 1)) // a claim after the end means done
}
