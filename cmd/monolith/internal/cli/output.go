package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/monolith-go/monolith/job"
)

// outcome is what a command leaves to be written.
type outcome struct {
	command string
	// help is what tells how the command is used.
	help string
	// result is what --json shows; nil stands for none.
	result any
	// text writes the same for people; nil: there is nothing to say.
	text func(io.Writer) error
}

// envelope is the one object --json writes, for every command.
type envelope struct {
	Command string   `json:"command"`
	OK      bool     `json:"ok"`
	Result  any      `json:"result"`
	Error   *Failure `json:"error"`
}

// finish writes result and error and returns the exit code.
func (a *App) finish(out *outcome, err error) int {
	code, failure := ExitDone, (*Failure)(nil)
	if err != nil {
		c, f := Exit(err)
		code, failure = c, &f
	}
	if a.json {
		if writeErr := writeJSON(a.Stdout, envelope{out.command, err == nil, out.result, failure}); writeErr != nil {
			a.complain(&Failure{Message: writeErr.Error()}, nil, out.help)
			return max(code, ExitFailed)
		}
		return code
	}
	if out.text != nil {
		if writeErr := out.text(a.Stdout); writeErr != nil && err == nil {
			a.complain(&Failure{Message: writeErr.Error()}, nil, out.help)
			return ExitFailed
		}
	}
	if err != nil {
		a.complain(failure, err, out.help)
	}
	return code
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// complain writes an error for people, with the command to ask for help where it was not understood. Job faults carry their own suggestions in the text.
// Where the job wants its log in JSON it is a record of that.
func (a *App) complain(f *Failure, err error, help string) {
	if *a.logFormat.Load() == "json" {
		a.record(slog.LevelError, f.Message, slog.String("code", f.Code))
		return
	}
	var b strings.Builder
	b.WriteString(a.screen.Paint("red", "error:") + " " + f.Message + "\n")
	var config *job.ConfigError
	if f.Suggestion != "" && !errors.As(err, &config) {
		fmt.Fprintf(&b, "did you mean %q?\n", f.Suggestion)
	}
	if f.Code == "usage" {
		fmt.Fprintf(&b, "see `%s`\n", help)
	}
	_, _ = io.WriteString(a.screen, b.String())
}
