package cli

import (
	"errors"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/job"
)

// Exit codes of the program. 128 plus the signal's number is added for a run that a signal ended.
const (
	ExitDone        = 0 // it did what it was asked to
	ExitFailed      = 1 // it failed while running
	ExitUsage       = 2 // the command line, the job or the data's schema is wrong
	ExitUnavailable = 3 // something outside (broker, disk) cannot be reached or is full
	ExitNo          = 4 // it ran, and the answer is no
)

// usageError is a command line that cannot be understood.
type usageError struct {
	message, suggestion string
}

func (e *usageError) Error() string { return e.message }

// answerError is a run that worked and whose answer is no.
type answerError struct{ message string }

func (e *answerError) Error() string { return e.message }

// Failure is an error as the envelope shows it.
type Failure struct {
	// Code is "usage", "config", "schema", "unavailable", "no", "interrupted" or "failed".
	Code    string `json:"code"`
	Message string `json:"message"`
	// Path is the key path of the job that is at fault, where one is.
	Path string `json:"path,omitempty"`
	// Suggestion is the name that was probably meant, or what to do.
	Suggestion string `json:"suggestion,omitempty"`
}

// Exit is the one place that turns errors into exit codes and failures. The order matters: an error may wrap several
// causes, and what the user can fix himself is named first.
func Exit(err error) (int, Failure) {
	f := Failure{Message: failure.Plain(err)}
	var (
		usage  *usageError
		config *job.ConfigError
		answer *answerError
		signal *signalError
	)
	switch {
	case errors.As(err, &usage):
		f.Code, f.Suggestion = "usage", usage.suggestion
		return ExitUsage, f
	case errors.As(err, &answer):
		f.Code = "no"
		return ExitNo, f
	case errors.Is(err, job.ErrBadRows):
		f.Code = "no"
		return ExitNo, f
	case errors.As(err, &signal):
		f.Code = "interrupted"
		return 128 + int(signal.sig), f
	case errors.As(err, &config):
		f.Code = "config"
		if len(config.Faults) > 0 {
			f.Path, f.Suggestion = config.Faults[0].Path, config.Faults[0].Suggestion
		}
		return ExitUsage, f
	}
	switch code := failure.Of(err); {
	case code == failure.Schema:
		f.Code = "schema"
		return ExitUsage, f
	case code.Class() == failure.Mistake:
		f.Code = "config"
		return ExitUsage, f
	case code.Class() == failure.Environment:
		f.Code = "unavailable"
		return ExitUnavailable, f
	}
	f.Code = "failed"
	return ExitFailed, f
}
