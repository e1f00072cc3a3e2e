// Package fault marks errors of a job with what they mean for the exit code, and with what to do.
package fault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/wal"
	"github.com/monolith-go/monolith/ps/wire"
)

// Mark gives an error a kind, which decides on the exit code, and a hint what to do; "": none.
func Mark(err, kind error, hint string) error { return &marked{err, kind, hint} }

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
const OtherModel = "set these back in the job, or train into another dir (--set dir=...), or put the snapshots aside and begin anew with --resume=false"

// Unavailable marks what the machine or its disk is to blame for, so that the command exits with 3, and what the user can
// mend in the job, which makes it 2.
func Unavailable(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, pipeline.ErrConfig) || errors.Is(err, pipeline.ErrUnavailable) {
		return err
	}
	switch {
	case errors.Is(err, wire.ErrNotAdmitted):
		return &marked{err, pipeline.ErrConfig, "ps.tls and ps.token must fit on both sides"}
	case errors.Is(err, wire.ErrTooLarge):
		return &marked{err, pipeline.ErrConfig, "raise ps.max_message for all processes, or make train.batch smaller"}
	case errors.Is(err, wal.ErrIdentity):
		return &marked{err, pipeline.ErrConfig, "set the job back to what it was; or give it another dir, or --resume=false, to train anew"}
	case errors.Is(err, ps.ErrLayout):
		return &marked{err, pipeline.ErrConfig, OtherModel}
	case errors.Is(err, ps.ErrMismatch), errors.Is(err, wire.ErrVersion):
		return &marked{err, pipeline.ErrConfig, ""}
	case errors.Is(err, ps.ErrUnreachable), errors.Is(err, ps.ErrNoSpace), errors.Is(err, ps.ErrNoDir), errors.Is(err, ps.ErrInUse), errors.Is(err, ps.ErrFull),
		errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return &marked{err, pipeline.ErrUnavailable, ""}
	}
	return err
}
