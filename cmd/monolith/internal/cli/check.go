package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/job"
)

func (a *App) checkCommand(out *outcome) *cobra.Command {
	var set []string
	cmd := &cobra.Command{
		Use:   "check JOB.yaml",
		Short: "Check a job without reading data",
		Long: `Check a job's file and graph without reading any data, and list everything that is wrong with it.

The exit code is 0 when nothing is, 4 when something is, and 2 when there is no such file.`,
		Example: `  monolith check job.yaml
  monolith check job.yaml --set model=fm
  monolith check job.yaml --json | jq '.result.findings[].message'`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			findings, err := a.findings(cmd, args[0], set)
			if err != nil {
				return err
			}
			if findings == nil {
				findings = []job.Finding{} // an empty list in JSON, not null
			}
			out.result = map[string]any{"findings": findings}
			out.text = func(w io.Writer) error { return a.writeFindings(w, args[0], findings) }
			if len(findings) > 0 {
				return &answerError{fmt.Sprintf("%s has %s", args[0], plural(len(findings), "finding"))}
			}
			return nil
		},
	}
	addSet(cmd, &set)
	return cmd
}

func (a *App) findings(cmd *cobra.Command, path string, set []string) ([]job.Finding, error) {
	if info, err := os.Stat(path); path != stdinJob && (err != nil || info.IsDir()) {
		_, err = a.load(path, set) // says it best
		return nil, err
	}
	cfg, err := a.load(path, set)
	var faults *job.ConfigError
	switch {
	case errors.As(err, &faults):
		return faults.Findings(), nil
	case err != nil:
		return nil, err
	case a.Ops.Check == nil:
		return nil, errMissing
	}
	return a.Ops.Check(cmd.Context(), cfg)
}

func (a *App) writeFindings(w io.Writer, path string, findings []job.Finding) error {
	if len(findings) == 0 {
		_, err := fmt.Fprintf(w, "%s is all right\n", path)
		return err
	}
	for _, f := range findings {
		line := f.Message
		if f.Path != "" {
			line = f.Path + ": " + line
		}
		if f.Where != "" {
			line = f.Where + ": " + line
		}
		if f.Suggestion != "" {
			line += fmt.Sprintf("; did you mean %q?", f.Suggestion)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
