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
	var runner string
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
			findings, warnings, err := a.findings(cmd, args[0], onRunner(set, runner))
			if err != nil {
				return err
			}
			if findings == nil {
				findings = []job.Finding{} // an empty list in JSON, not null
			}
			out.result = map[string]any{"findings": findings, "warnings": append([]string{}, warnings...)}
			out.text = func(w io.Writer) error { return a.writeFindings(w, args[0], findings, warnings) }
			if len(findings) > 0 {
				return &answerError{fmt.Sprintf("%s has %s", args[0], plural(len(findings), "finding"))}
			}
			return nil
		},
	}
	addSet(cmd, &set)
	addRunner(cmd, &runner)
	return cmd
}

func (a *App) findings(cmd *cobra.Command, path string, set []string) (_ []job.Finding, warnings []string, _ error) {
	if info, err := os.Stat(path); path != stdinJob && (err != nil || info.IsDir()) {
		_, err = a.load(path, set) // says it best
		return nil, nil, err
	}
	cfg, err := a.read(path, job.LoadOptions{Set: set})
	var faults *job.ConfigError
	switch {
	case errors.As(err, &faults):
		return faults.Findings(), nil, nil
	case err != nil:
		return nil, nil, err
	case a.Ops.Check == nil:
		return nil, nil, errMissing
	}
	findings, err := a.Ops.Check(cmd.Context(), cfg)
	return findings, cfg.Warnings(), err
}

func (a *App) writeFindings(w io.Writer, path string, findings []job.Finding, warnings []string) error {
	if len(findings) == 0 {
		if path == stdinJob {
			path = "the job"
		}
		if _, err := fmt.Fprintf(w, "%s is all right\n", path); err != nil {
			return err
		}
	}
	for _, text := range warnings {
		if _, err := fmt.Fprintf(w, "warning: %s\n", text); err != nil {
			return err
		}
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
