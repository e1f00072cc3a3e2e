package cli

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
)

func (a *App) rowsCommand(out *outcome) *cobra.Command {
	var (
		o       job.RowsOptions
		updated string
	)
	cmd := &cobra.Command{
		Use:   "rows SNAPSHOT|JOB.yaml --to parquet|arrow --dir DIR",
		Short: "Write the rows of a snapshot to Parquet or Arrow files",
		Long: `Write what a snapshot has of each feature id to Parquet or Arrow files: the id, its slot, when it was updated last and how often, the
weights of each segment and, when asked, the optimizers' state. Each table has a folder of its own in DIR. The snapshot is not changed.

SNAPSHOT is a snapshot's folder, or a job's dir for the newest one in it; JOB.yaml stands for its dir, and says where a runner submits to.
It is read by parts, and never loaded whole. Each row is written exactly once: a run that was killed is continued when it is run again.`,
		Example: `  monolith rows runs/movielens --to parquet --dir rows
  monolith rows job.yaml --to arrow --dir rows --slot user --optimizer-state
  monolith rows job.yaml --to parquet --dir rows --updated-after 2026-11-01`,
		Args: exactly("a snapshot or a job file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.To == "":
				return &usageError{message: "--to is missing: parquet or arrow"}
			case !slices.Contains(job.RowsFormats(), o.To):
				return &usageError{message: fmt.Sprintf("--to is %q, not one of %s", o.To, strings.Join(job.RowsFormats(), ", "))}
			case o.Dir == "":
				return &usageError{message: "--dir is missing: the folder to write to"}
			case o.MinNorm < 0:
				return &usageError{message: fmt.Sprintf("--min-norm is %v, must be at least 0", o.MinNorm)}
			case o.RowsPerFile < 1:
				return &usageError{message: fmt.Sprintf("--rows-per-file is %d, must be at least 1", o.RowsPerFile)}
			case o.Runner == "dataflow":
				return &usageError{message: "--runner dataflow has no folder in common with this process for snapshot and files; take --runner=local"}
			case o.Workers < 1:
				return &usageError{message: fmt.Sprintf("--workers is %d, must be at least 1", o.Workers)}
			}
			if updated != "" {
				at, err := readTime("updated-after", updated)
				if err != nil {
					return err
				}
				o.UpdatedAfter = at
			}
			o.Snapshot = args[0]
			if isJobFile(args[0]) {
				cfg, err := a.loadUntrained(args[0], onRunner(nil, o.Runner))
				if err != nil {
					return err
				}
				o.Snapshot, o.Beam = cfg.Dir, cfg.Beam
			} else if o.Runner != "" && o.Runner != "local" && o.Runner != "prism" {
				return &usageError{message: fmt.Sprintf("--runner %s needs a job file, whose section beam says where to submit to: monolith rows JOB.yaml", o.Runner)}
			}
			if a.Ops.Rows == nil {
				return errMissing
			}
			o.Logger, o.Notice, o.Drain = a.logger.Load(), a.notice, a.drain
			a.drainsBy("completing the files that are begun; the same command continues")
			r, err := a.Ops.Rows(cmd.Context(), o)
			if r != nil {
				out.result = r
				out.text = func(w io.Writer) error { return writeWrittenRows(w, r) }
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.To, "to", "", "`format` of the files: parquet or arrow")
	flags.StringVar(&o.Dir, "dir", "", "`folder` to write to, which is empty or has a part of the same rows")
	flags.StringSliceVar(&o.Slots, "slot", nil, "write the rows of this `slot` alone, a number or the name of a feature; may be given more than once")
	flags.StringVar(&updated, "updated-after", "", "leave out rows that were updated last at this `time` or before it, in UTC where it names no zone")
	flags.Float64Var(&o.MinNorm, "min-norm", 0, "leave out rows whose weights have a smaller Euclidean `norm`")
	flags.BoolVar(&o.State, "optimizer-state", false, "write the optimizers' state too")
	flags.Int64Var(&o.RowsPerFile, "rows-per-file", 1<<20, "about how many `rows` a file has at most")
	flags.IntVar(&o.Workers, "workers", runtime.NumCPU(), "how `many` read and write side by side")
	flags.Lookup("workers").DefValue = "one per CPU"
	flags.StringVar(&o.Runner, "runner", "local", "`runner` of the graph: local, or one of Apache Beam's: prism, and with a job file flink, portable")
	return cmd
}

// writeWrittenRows says how much of each table is written.
func writeWrittenRows(w io.Writer, r *job.Rows) error {
	how := ""
	if r.Drained {
		how = "; not complete: the same command continues"
	}
	rows := [][]string{{"snapshot", r.Snapshot}, {"rows", fmt.Sprintf("%s in %.1f s, %s%s", ui.Count(r.Rows), r.Seconds, r.To, how)}}
	for _, t := range r.Tables {
		text := fmt.Sprintf("%s of %s rows in %s", ui.Count(t.Rows), ui.Count(t.Of), t.Dir)
		if t.Earlier > 0 {
			text += fmt.Sprintf(", %s of them before", ui.Count(t.Earlier))
		}
		rows = append(rows, []string{"table " + t.Name, text})
	}
	return ui.Table(w, rows)
}
