package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
)

func (a *App) modelInsightCommand(out *outcome) *cobra.Command {
	var (
		set      []string
		snapshot string
	)
	maxExamples := int64(20_000)
	cmd := &cobra.Command{
		Use:   "insight JOB.yaml",
		Short: "Show what each feature and each layer of a model does",
		Long: `Show what the features of a trained model do on the examples of eval.source, those that matter most first. For each feature the examples of a
batch, 4,096 that follow each other, get each other's values of it, and the columns named after metrics are what that changes: a feature that is of no use changes nothing, one
that does harm makes them better. What several features say alike is not missed while one of them still says it, so that each of them looks of less
use than they are together. Which values are exchanged is drawn by the job's seed.

IN is the share of examples that have a value. LENGTH is how long the vectors of its ids are, or its numbers, and GRADIENT how much an example's loss
changes with an id's vector (both roots of mean squares): a feature that has next to none learns nothing. A dense feature has no vectors.

Below are the tensors of layers with the length of their gradients of a batch, and how many of their columns had none in any batch, IDLE: in a layer
with relu these are units that never fire.

The snapshot is the one that monolith eval takes. Each feature costs as much as that, in one worker.`,
		Example: `  monolith model insight job.yaml
  monolith model insight job.yaml --max-examples 200000 --snapshot best
  monolith model insight job.yaml --json | jq '.result.features[0].changes'`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "model insight"
			if maxExamples < 0 {
				return &usageError{message: fmt.Sprintf("--max-examples is %d, must be 0 or more", maxExamples)}
			}
			cfg, err := a.loadUntrained(args[0], set)
			if err != nil {
				return err
			}
			if a.Ops.Models.Insight == nil {
				return errMissing
			}
			opts, stop, err := a.run(cmd.Context(), askedMetrics(cfg))
			if err != nil {
				return err
			}
			defer stop()
			found, err := a.Ops.Models.Insight(cmd.Context(), cfg, job.InsightOptions{Options: opts, Snapshot: snapshot, MaxExamples: maxExamples})
			if err != nil {
				return err
			}
			out.result = found
			out.text = func(w io.Writer) error { return writeInsight(w, found) }
			return nil
		},
	}
	addSet(cmd, &set)
	cmd.Flags().StringVar(&snapshot, "snapshot", "", "`folder` or number of the snapshot, or newest or best of those in the job's dir (default: best with train.early_stop, otherwise newest)")
	cmd.Flags().Int64Var(&maxExamples, "max-examples", maxExamples, "how many `examples` are looked at; 0: as the job says")
	return cmd
}

func writeInsight(w io.Writer, r *job.InsightResult) error {
	head := [][]string{{"examples", fmt.Sprintf("%s, %s", ui.Count(r.Examples), perSecond(float64(r.Examples)/max(r.Seconds, 1e-9)))}}
	names := r.Metrics.Names()
	for _, name := range names {
		head = append(head, []string{name, ui.Score(r.Metrics[name])})
	}
	head = append(append(head, badRows(r.BadRows)...), []string{"snapshot", whichSnapshot(r.Snapshot, r.Which)})
	if err := pairs(w, head...); err != nil {
		return err
	}
	short := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
	gradient := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return short(*v)
	}
	rows := [][]string{slices.Concat([]string{"FEATURE"}, names, []string{"IN", "LENGTH", "GRADIENT"})}
	var right []int
	for i := range rows[0][1:] {
		right = append(right, i+1)
	}
	for _, f := range r.Features {
		row := []string{f.Name}
		for _, name := range names {
			row = append(row, signed(f.Changes[name]))
		}
		rows = append(rows, append(row, fmt.Sprintf("%.1f %%", 100*f.Share), short(f.Length), gradient(f.Gradient)))
	}
	if err := block(w, rows, right...); err != nil || len(r.Layers) == 0 {
		return err
	}
	rows = [][]string{{"LAYER", "SHAPE", "GRADIENT", "IDLE"}}
	for _, l := range r.Layers {
		rows = append(rows, []string{l.Name, fmt.Sprint(l.Shape), gradient(l.Gradient), fmt.Sprintf("%d of %d", l.Idle, l.Columns)})
	}
	return block(w, rows, 2, 3)
}
