// Package fault marks errors of a job with what they mean for the exit code, and with what to do.
package fault

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/pipeline"
)

// Mark gives an error a kind, which decides on the exit code, and a hint what to do; "": none. An error of a context that was cancelled has neither: nothing is
// wrong with what the caller told to end.
func Mark(err, kind error, hint string) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &marked{err, kind, hint}
}

// marked is an error whose kind is known, with a hint what to do.
type marked struct {
	err, kind error
	hint      string
}

// Error returns the error's own text and the hint: the kind is for the exit code.
func (e *marked) Error() string {
	if e.hint == "" {
		return e.err.Error()
	}
	return e.err.Error() + "; " + e.hint
}

// Unwrap returns the error and its kind.
func (e *marked) Unwrap() []error { return []error{e.err, e.kind} }

// Config is a mistake of the user's in the job or its options.
func Config(format string, args ...any) error {
	return &marked{fmt.Errorf(format, args...), pipeline.ErrConfig, ""}
}

// OtherModel is what to do about a snapshot of another model.
const OtherModel = "set these back in the job, or train into another dir (--set dir=...), or put the snapshots aside and start over with --resume=false"

// Unavailable marks what the machine or its disk is to blame for, so that the command exits with 3, and what the user can
// fix in the job, which makes it 2.
func Unavailable(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, pipeline.ErrConfig) || errors.Is(err, pipeline.ErrSchema) || errors.Is(err, pipeline.ErrUnavailable) {
		return err
	}
	code := failure.Of(err)
	switch code.Class() {
	case failure.Mistake:
		return &marked{err, pipeline.ErrConfig, hint(code)}
	case failure.Environment:
		return &marked{err, pipeline.ErrUnavailable, ""}
	}
	return err
}

// hint is what to do about a mistake that is met in running.
func hint(code failure.Code) string {
	switch code {
	case failure.NotAdmitted:
		return "ps.tls and ps.token must fit on both sides"
	case failure.TooLarge:
		return "raise ps.max_message for all processes; more shards make answers smaller, and for rows a smaller train.batch does"
	case failure.Identity:
		return "set the job back to what it was; or give it another dir, or --resume=false, to train from the start"
	case failure.Layout:
		return OtherModel
	}
	return ""
}
