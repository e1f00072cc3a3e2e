package fsx

import (
	"context"
	"errors"
)

// Ended is the cause of the end of a context, or nil before that. Whatever that cause is, the error is [context.Canceled] or
// [context.DeadlineExceeded] too, so that it is told from one that speaks of a file ([Damage]).
func Ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return &endedError{err, cause}
}

// endedError says the cause alone.
type endedError struct{ err, cause error }

func (e *endedError) Error() string   { return e.cause.Error() }
func (e *endedError) Unwrap() []error { return []error{e.cause, e.err} }
