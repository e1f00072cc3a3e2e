package cli

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
)

func (a *App) evalCommand(out *outcome) *cobra.Command {
	var (
		set         []string
		snapshot    string
		maxExamples int64
		minAUC      float64
	)
	cmd := &cobra.Command{
		Use:   "eval JOB.yaml",
		Short: "Evaluate a snapshot on held-out examples",
		Long: `Evaluate a snapshot on the examples of eval.source: the best one where the job has train.early_stop, which marks and keeps it,
otherwise the newest in the job's dir, or the one that --snapshot names.

Where the job has eval.outputs, what is read or predicted is written there too, each row exactly once: an evaluation that was killed is
continued when it is run again.

With --min-auc the exit code is 4 when the model is not good enough, so that a script can decide.`,
		Example: `  monolith eval job.yaml
  monolith eval job.yaml --min-auc 0.75 && ./publish
  monolith eval job.yaml --snapshot runs/movielens/snapshots/snap-00000012
  monolith eval job.yaml --set eval.source.text.files=test-2.libfm --json`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.load(args[0], set)
			if err != nil {
				return err
			}
			if a.Ops.Eval == nil {
				return errMissing
			}
			opts, stop, err := a.run(cmd.Context(), &cfg.Metrics)
			if err != nil {
				return err
			}
			defer stop()
			result, err := a.Ops.Eval(cmd.Context(), cfg, job.EvalOptions{Options: opts, Snapshot: snapshot, MaxExamples: maxExamples})
			if result == nil || err != nil {
				return err
			}
			out.result = result
			out.text = func(w io.Writer) error { return writeEvaluated(w, result) }
			if !cmd.Flags().Changed("min-auc") {
				return nil
			}
			return reaches(result.Metrics, minAUC)
		},
	}
	addSet(cmd, &set)
	cmd.Flags().StringVar(&snapshot, "snapshot", "", "`folder` of the snapshot, or newest or best of those in the job's dir (default: best with train.early_stop, otherwise newest)")
	cmd.Flags().Int64Var(&maxExamples, "max-examples", 0, "end after so many `examples`; 0: as the job says")
	cmd.Flags().Float64Var(&minAUC, "min-auc", 0, "exit with 4 when the AUC, that of each head which has one, is below this `number` (0 to 1)")
	return cmd
}

// reaches reports whether every AUC is known and large enough.
func reaches(scores job.Scores, least float64) error {
	found := false
	for _, name := range scores.Names() {
		if _, metric := job.SplitScore(name); metric != "auc" {
			continue
		}
		found = true
		switch auc := scores[name]; {
		case math.IsNaN(auc):
			return &answerError{fmt.Sprintf("the %s is not known, so it does not reach --min-auc", name)}
		case auc < least:
			return &answerError{fmt.Sprintf("%s %.4f is below --min-auc %g", name, auc, least)}
		}
	}
	if !found {
		return &answerError{"the auc is not known, so it does not reach --min-auc"}
	}
	return nil
}

// sliceName says what a slice is of: `country=de`, `click country=de`, `country, 12 others`.
func sliceName(s job.SliceScores) string {
	name := fmt.Sprintf("%s=%s", s.Column, s.Value)
	if s.Others > 0 {
		name = fmt.Sprintf("%s, %s others", s.Column, ui.Count(int64(s.Others)))
	}
	if s.Head != "" {
		name = s.Head + " " + name
	}
	return name
}

// sliceScores writes the metrics of a slice in one line.
func sliceScores(s job.SliceScores) string {
	parts := []string{ui.Count(s.Examples) + " examples"}
	for _, name := range s.Metrics.Names() {
		parts = append(parts, name+" "+ui.Score(s.Metrics[name]))
	}
	return strings.Join(parts, ", ")
}

// whichSnapshot is a snapshot's path and which of its folder it is.
func whichSnapshot(path, which string) string {
	if which == "" {
		return path
	}
	return path + " (" + which + ")"
}

func writeEvaluated(w io.Writer, r *job.EvalResult) error {
	rows := [][]string{{"examples", fmt.Sprintf("%s, %s", ui.Count(r.Examples), perSecond(r.ExamplesPerSecond))}}
	rows = append(rows, scoreRows(r.Metrics)...)
	for _, s := range r.Slices {
		rows = append(rows, []string{sliceName(s), sliceScores(s)})
	}
	rows = append(rows, badRows(r.BadRows)...)
	rows = append(rows, fillRows(r.Features)...)
	if r.Snapshot != "" {
		rows = append(rows, []string{"snapshot", whichSnapshot(r.Snapshot, r.Which)})
	}
	if r.Part != "" {
		rows = append(rows, []string{"outputs", "part " + r.Part})
	}
	return pairs(w, rows...)
}
