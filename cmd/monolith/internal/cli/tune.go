package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// tuneDrains is how a search answers the first signal.
const tuneDrains = "ending the trial; what is done is kept"

func (a *App) tuneCommand(out *outcome) *cobra.Command {
	var (
		set     []string
		file    string
		force   bool
		opts    job.TuneOptions
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:        "tune JOB.yaml",
		SuggestFor: []string{"search", "optimize", "optimise", "hyperparameters", "sweep", "autotune"},
		Short:      "Search for better settings of a job",
		Long: `Search for better settings of a job, and write the job with them.

The job as it is and other candidates train on the first rows of the source: other learning rates, widths, regularisation and batches. The best
third advances to three times as many rows, and so on. Each is measured on rows of eval.source or eval.holdout. Without either, the
predictions of the last third of the rows count, each made before training on the row. The job is changed only where a candidate is better
by more than another seed makes of a difference.

Trials train in --dir. The job's own dir, outputs, dead letters, uploads and consumer group stay as they are. After a kill the same command
continues. The first SIGINT or SIGTERM ends the trial; the exit code is then 130 or 143. When the time limit ends the search, the job is
written with the best settings so far, and the exit code is 0.`,
		Example: `  monolith tune job.yaml                        # writes job.tuned.yaml
  monolith tune job.yaml --time 1h --rows 200000 --out better.yaml
  monolith tune job.yaml --models fm,dcnv2 --metric auc
  monolith tune job.yaml --json | jq .result.candidates`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case timeout <= 0:
				return &usageError{message: fmt.Sprintf("--time is %v, must be above 0", timeout)}
			case opts.Trials < 2:
				return &usageError{message: fmt.Sprintf("--trials is %d, must be at least 2", opts.Trials)}
			case opts.Rows < 0:
				return &usageError{message: fmt.Sprintf("--rows is %d, must be at least 0", opts.Rows)}
			case args[0] == stdinJob && file == "":
				return &usageError{message: "the job comes by standard input: say with --out where the tuned one goes"}
			}
			if file == "" {
				file = strings.TrimSuffix(args[0], filepath.Ext(args[0])) + ".tuned.yaml"
			}
			if !isJobFile(file) || file == stdinJob {
				return &usageError{message: fmt.Sprintf("--out is %q, must end in .yaml or .yml, as job files do", file)}
			}
			cfg, err := a.load(args[0], set)
			if err != nil {
				return err
			}
			if err := cfg.Destination("--out", file, false); err != nil {
				return err
			}
			if _, err := os.Lstat(file); err == nil && !force {
				return &usageError{message: file + " is there already; name another file with --out, or overwrite it with --force"}
			}
			if a.Ops.Tune == nil {
				return errMissing
			}
			with, stop, err := a.run(cmd.Context(), nil)
			if err != nil {
				return err
			}
			defer stop()
			opts.Logger, opts.Status, opts.Notice, opts.Drain = with.Logger, with.Status, with.Notice, with.Drain
			opts.Env, opts.Time = a.Env, timeout
			a.drainsBy(tuneDrains)
			result, err := a.Ops.Tune(cmd.Context(), cfg, opts)
			if err != nil {
				return err
			}
			out.result = result
			out.text = func(w io.Writer) error { return writeTuned(w, result) }
			if result.Drained {
				return a.incomplete(sameCommand)
			}
			if err := writeTunedJob(cmd.Context(), file, result.Text, force); err != nil {
				return err
			}
			result.Out = file
			return nil
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&timeout, "time", 10*time.Minute, "`limit` of the whole search, over all runs that continue it")
	flags.Int64Var(&opts.Rows, "rows", 0, "train each candidate on so many `rows` first; 0: 20,000, or a ninth of fewer")
	flags.IntVar(&opts.Trials, "trials", 27, "`number` of candidates to begin with")
	flags.Uint64Var(&opts.Seed, "seed", 1, "`seed` that candidates are drawn by")
	flags.StringSliceVar(&opts.Models, "models", nil, "`kinds` of models to try beside the job's own: fm,dcnv2")
	flags.StringVar(&opts.Metric, "metric", "", "`score` that decides: log_loss, auc, another of eval.metrics, or HEAD.METRIC (default: log_loss of the first head)")
	flags.StringVar(&opts.Dir, "dir", "", "`folder` of the search's state and its trials (default: the job's dir with -tune)")
	flags.StringVarP(&file, "out", "o", "", "write the tuned job to this `file` (default: beside the job, as JOB.tuned.yaml)")
	flags.BoolVar(&force, "force", false, "overwrite --out")
	flags.BoolVar(&opts.Restart, "restart", false, "forget the state of an earlier search in --dir, and begin again")
	addSet(cmd, &set)
	_ = cmd.RegisterFlagCompletionFunc("models", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return job.Default().Components().ModelNames(), cobra.ShellCompDirectiveNoFileComp
	})
	_ = cmd.RegisterFlagCompletionFunc("metric", cobra.FixedCompletions([]string{"log_loss", "auc"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// writeTunedJob writes the file, as a whole or not at all.
func writeTunedJob(ctx context.Context, path, text string, force bool) error {
	if !force {
		return writeNew(path, text)
	}
	if err := fsx.WriteFile(ctx, fsx.Local{}, path, []byte(text)); err != nil {
		return fmt.Errorf("%w: %w", err, pipeline.ErrUnavailable)
	}
	return nil
}

func writeTuned(w io.Writer, r *job.Tuned) error {
	table := job.TunedTable(r)
	right := make([]int, 0, len(table[0]))
	for i := range len(table[0]) - 1 {
		right = append(right, i)
	}
	if err := ui.Table(w, table, right...); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	seconds := time.Duration(r.Seconds * float64(time.Second)).Round(time.Second)
	trials := fmt.Sprintf("%s in %v", plural(r.Trials, "trial"), seconds)
	if r.Earlier > 0 {
		trials += fmt.Sprintf(", %d of them in earlier runs", r.Earlier)
	}
	rows := [][]string{{"result", job.TunedVerdict(r)}, {"trials", trials}}
	switch {
	case r.TimedOut:
		rows = append(rows, []string{"ended by", "the time limit; a longer --time continues"})
	case r.Drained:
		rows = append(rows, []string{"ended by", "a signal; the same command continues"})
	}
	rows = append(rows, badRows(r.BadRows)...)
	for i, n := range r.Notes {
		what := ""
		if i == 0 {
			what = "notes"
		}
		rows = append(rows, []string{what, n})
	}
	if r.Out != "" {
		rows = append(rows, []string{"written", r.Out})
	}
	return pairs(w, rows...)
}
