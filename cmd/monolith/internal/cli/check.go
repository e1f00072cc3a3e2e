package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
)

func (a *App) checkCommand(out *outcome) *cobra.Command {
	var set []string
	var runner string
	var need job.NeedOptions
	cmd := &cobra.Command{
		Use:        "check JOB.yaml",
		SuggestFor: []string{"validate", "lint"},
		Short:      "Check a job without reading data",
		Long: `Check a job's file and graph, and list everything that is wrong with it. No data is read but the beginnings of the first files, unless --sample says so.
With --sample, bad rows are reported too: as a finding where they end training (train.on_bad_row, train.max_bad_share), otherwise as a warning.

What the tables will take in memory is reckoned too, for every table: what a row takes by its dimension, optimizer and storage, times the rows. How many there will be is known by
retention.table_memory, by --ids, or is estimated with --sample: the different ids in that many records of the source, which is read from the beginning of all its files or partitions, and for --examples (or as many as the source has) the growth that the
sample shows (Heaps' law), which is too much where the ids that there are end. What expires or waits for occurrences (retention) counts as if it stayed. A warning says when it does not fit what tables of a process may take here.

The exit code is 0 when nothing is, 4 when something is, and 2 when there is no such file.`,
		Example: `  monolith check job.yaml
  monolith check job.yaml --set model=fm
  monolith check job.yaml --sample 200000 --examples 100000000
  monolith check job.yaml --ids user=50000000,item=2000000
  monolith check job.yaml --json | jq '.result.findings[].message'`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			if need.Sample < 0 || need.Examples < 0 || need.Timeout <= 0 {
				return &usageError{message: "--sample and --examples must be at least 0, and --timeout above 0"}
			}
			cfg, findings, warnings, err := a.findings(cmd, args[0], a.onRunner(set, runner))
			if err != nil {
				return err
			}
			if findings == nil {
				findings = []job.Finding{} // an empty list in JSON, not null
			}
			var memory *job.MemoryNeed
			if len(findings) == 0 && a.Ops.Need != nil {
				if memory, err = a.Ops.Need(cmd.Context(), cfg, need); err != nil {
					return err
				}
				if memory.Warning != "" {
					warnings = append(warnings, memory.Warning)
				}
				warnings = append(warnings, memory.Remarks...)
				if found, text := badSample(cfg, memory); found != nil {
					findings = append(findings, *found)
				} else if text != "" {
					warnings = append(warnings, text)
				}
			}
			out.result = map[string]any{"findings": findings, "warnings": append([]string{}, warnings...), "memory": memory}
			out.text = func(w io.Writer) error {
				if err := a.writeFindings(w, args[0], findings, warnings); err != nil || memory == nil {
					return err
				}
				return writeNeed(w, memory)
			}
			if len(findings) > 0 {
				return &answerError{fmt.Sprintf("%s has %s", args[0], plural(len(findings), "finding"))}
			}
			return nil
		},
	}
	addSet(cmd, &set)
	addRunner(cmd, &runner)
	flags := cmd.Flags()
	flags.StringToInt64Var(&need.IDs, "ids", nil, "how many different `ids` sparse features will have: feature=number,...")
	flags.IntVar(&need.Sample, "sample", 0, "how many `records` to read of the source to count their ids; 0: none")
	flags.Int64Var(&need.Examples, "examples", 0, "how many different `examples` there will be; 0: as many as the source says that it has")
	flags.DurationVar(&need.Timeout, "timeout", job.InspectTimeout, "how `long` reading the sample takes at most")
	return cmd
}

// badWindow is how many records train.max_bad_share is a share of.
const badWindow = 1000

// badSample says what the bad rows of a sample mean for a job: a finding where they end training, a warning where they are
// left out.
func badSample(cfg *job.Config, n *job.MemoryNeed) (*job.Finding, string) {
	bad := n.NumBad()
	if bad == 0 {
		return nil, ""
	}
	all, first := bad+n.Sampled, ""
	if len(n.BadExamples) > 0 {
		first = "; the first: " + n.BadExamples[0]
	}
	says := fmt.Sprintf("%s of the %s of the sample are bad rows%s", ui.Count(bad), plural(int(all), "record"), first)
	share := cfg.Train.MaxBadShare
	switch {
	case cfg.Train.OnBadRow == "fail":
		return &job.Finding{Path: "train.on_bad_row", Message: "is fail, which ends training at the first bad row, and " + says + "; mend the data or the parse section, or set skip or dead_letter"}, ""
	case n.Sampled == 0:
		return &job.Finding{Path: "source", Message: "has nothing to train on: " + says}, ""
	case all >= badWindow && float64(bad) > share*float64(all):
		return &job.Finding{Path: "train.max_bad_share", Message: fmt.Sprintf("is %g, and %s; mend the data or the parse section, or raise it", share, says)}, ""
	}
	return nil, says
}

// writeNeed writes what tables will take.
func writeNeed(w io.Writer, n *job.MemoryNeed) error {
	rows := [][]string{{"TABLE", "BYTES A ROW", "ROWS", "MEMORY", "KNOWN BY"}}
	for _, t := range n.Tables {
		count, size, basis := ui.Count(t.Rows), ui.Bytes(t.Bytes), t.Basis
		if t.Rows < 0 {
			count, size, basis = "?", "?", "nothing yet: --sample 100000 estimates it, --ids FEATURE=NUMBER says it"
		}
		if t.Filter > 0 {
			basis += fmt.Sprintf("; beside them a hash filter of %s", ui.Bytes(t.Filter))
		}
		rows = append(rows, []string{t.Name, ui.Count(t.RowBytes), count, size, basis})
	}
	if err := ui.Table(w, rows, 1, 2, 3); err != nil || n.Unknown && n.Bytes == 0 || len(n.Tables) == 0 {
		return err
	}
	where := "in one process"
	if n.Remote {
		where = fmt.Sprintf("in each of %d processes", n.Shards)
	}
	line := fmt.Sprintf("memory of tables: %s, %s %s", ui.Bytes(n.Bytes), ui.Bytes(n.Process), where)
	if n.Limit > 0 {
		line += fmt.Sprintf(", which may have %s", ui.Bytes(n.Limit))
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// findings are what is wrong with a job, which is nil where it cannot be read.
func (a *App) findings(cmd *cobra.Command, path string, set []string) (_ *job.Config, _ []job.Finding, warnings []string, _ error) {
	if info, err := os.Stat(path); path != stdinJob && (err != nil || info.IsDir()) {
		_, err = a.load(path, set) // says it best
		return nil, nil, nil, err
	}
	cfg, err := a.read(path, job.LoadOptions{Set: set})
	var faults *job.ConfigError
	switch {
	case errors.As(err, &faults):
		return nil, faults.Findings(), nil, nil
	case err != nil:
		return nil, nil, nil, err
	case a.Ops.Check == nil:
		return nil, nil, nil, errMissing
	}
	findings, err := a.Ops.Check(cmd.Context(), cfg)
	return cfg, findings, cfg.Warnings(), err
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
		if f.Path != "" && f.Where != "--"+f.Path {
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
