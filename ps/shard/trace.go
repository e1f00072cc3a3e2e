package shard

import (
	"fmt"

	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/ps"
)

// checkState reports worker state that cannot be what its key says. Errors: [ps.ErrLayout].
func checkState(key string, value []byte) error {
	switch key {
	case ps.ClockState:
		_, err := readClock(value)
		return err
	case ps.TraceState:
		return inState(key, score.Check(value))
	case ps.TotalsState:
		return inState(key, score.CheckTotals(value))
	}
	return nil
}

// inState says of which worker state an error is.
func inState(key string, err error) error {
	if err != nil {
		return fmt.Errorf("ps: worker state %q: %w: %w", key, err, ps.ErrLayout)
	}
	return nil
}
