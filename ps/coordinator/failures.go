package coordinator

import (
	"errors"
	"time"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/ps"
)

const (
	// sayAgain is how long a failure that continues is not logged again.
	sayAgain = time.Minute
	// countAgain is how long, after a snapshot that failed because a shard was away, others that do are not held against it.
	countAgain = time.Minute
)

// failures counts the snapshots that have failed since the last one that was taken. Its owner guards it with a lock.
type failures struct {
	inARow  int       // all
	unsafe  int       // those that count for [Options].Tolerate
	counted time.Time // when one for want of a shard did
	logged  time.Time // when one was logged
	code    string    // and which kind it was
}

// add counts one that failed at some moment, and reports whether that is to be logged: the first of a row, one of another kind, and then
// one a minute.
func (f *failures) add(err error, now time.Time) (say bool) {
	f.inARow++
	// Shards that are started again or given a state fail every snapshot for a while; where snapshots are seconds apart that would end the
	// run within seconds. Nearly nothing is trained meanwhile: pushes wait. But a shard that only the coordinator does not reach takes them,
	// so that must end some time.
	if away := away(err); !away || now.Sub(f.counted) >= countAgain {
		f.unsafe++
		if away {
			f.counted = now
		}
	}
	code := failure.Of(err).Label()
	if say = f.logged.IsZero() || code != f.code || now.Sub(f.logged) >= sayAgain; say {
		f.logged, f.code = now, code
	}
	return say
}

// away reports whether a snapshot failed because a shard does not answer, has no state, or is given another one.
func away(err error) bool {
	return (errors.Is(err, ps.ErrUnreachable) || errors.Is(err, ps.ErrNotReady) || errors.Is(err, ps.ErrRolledBack)) && !errors.Is(err, ps.ErrNoSpace)
}
