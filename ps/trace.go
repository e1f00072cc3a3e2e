package ps

import (
	"fmt"

	"github.com/monolith-go/monolith/model/score"
)

// TraceState is the key of the worker state that holds the trace: what the updates applied so far predicted in
// [param.Update].Trace, the last examples, the oldest first, in the order of their commits, as score.Ring keeps them. It is
// as old as the rows, to the update, wherever worker state goes: snapshots, digests, [Cluster.State]. Setting it replaces the
// trace and nil empties it; an empty trace is no entry.
const TraceState = "trace"

// checkState reports worker state that cannot be what its key says. Errors: [ErrLayout].
func checkState(key string, value []byte) error {
	if key != TraceState {
		return nil
	}
	if err := score.Check(value); err != nil {
		return fmt.Errorf("ps: worker state %q: %w: %w", key, err, ErrLayout)
	}
	return nil
}
