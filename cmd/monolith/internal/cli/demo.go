package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/components"
)

func (a *App) demoCommand(out *outcome) *cobra.Command {
	opts := job.DemoOptions{Examples: 1_000_000, Seed: 1, Model: "deepfm", Workers: 2}
	models := components.All().ModelNames()
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See online training work, with nothing installed",
		Long: `Train a model on a synthetic stream of clicks from a Kafka broker inside this process.

The stream drifts: items are born, tastes shift. The generator knows its own click probabilities, so the demo can tell how
good a model can be at best, how good the trained one is on examples it has not seen, and how good it would be had it
stopped learning half way.

Stopped or killed and run again with the same --dir, the demo continues where it was, and its table and result are those of all
runs together; one that has ended shows its result again.`,
		Example: `  monolith demo
  monolith demo --examples 200000 --workers 1
  monolith demo --model lr --seed 7
  monolith demo --dir runs/demo && monolith inspect runs/demo`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !slices.Contains(models, opts.Model):
				return &usageError{fmt.Sprintf("--model is %q, not one of %s", opts.Model, strings.Join(models, ", ")), nearest.Name(opts.Model, models)}
			case opts.Examples < 1:
				return &usageError{message: fmt.Sprintf("--examples is %d, must be at least 1", opts.Examples)}
			case opts.Workers < 1:
				return &usageError{message: fmt.Sprintf("--workers is %d, must be at least 1", opts.Workers)}
			case a.Ops.Demo == nil:
				return errMissing
			}
			a.setLogger(&job.Log{Level: "warn", Format: "text"}) // the demo shows no life-cycle messages without -v
			run, stop, err := a.run(cmd.Context(), nil)
			if err != nil {
				return err
			}
			defer stop()
			opts.RunOptions = run
			a.drainsBy(trainDrains)
			result, err := a.Ops.Demo(cmd.Context(), opts)
			if result != nil {
				out.result = result
				out.text = func(w io.Writer) error { return writeDemo(w, result) }
			}
			if err == nil && result.Drained {
				return a.incomplete("the same command with --dir continues")
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Int64Var(&opts.Examples, "examples", opts.Examples, "length of the training stream in `examples`")
	f.Uint64Var(&opts.Seed, "seed", opts.Seed, "`number` that makes the world and the initial values")
	f.StringVar(&opts.Model, "model", opts.Model, "`model` to train: "+strings.Join(models, ", "))
	f.IntVar(&opts.Workers, "workers", opts.Workers, "how many `batches` are trained at once")
	f.StringVar(&opts.Dir, "dir", "", "`folder` for the broker's log and the snapshots; the same folder again continues; default: a new temporary one")
	_ = cmd.RegisterFlagCompletionFunc("model", cobra.FixedCompletions(models, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func writeDemo(w io.Writer, r *job.DemoResult) error {
	if len(r.OverTime) > 0 {
		table := [][]string{{"EXAMPLES", "RATE", "AUC", "BEST", "LOG LOSS"}}
		for _, i := range r.OverTime {
			table = append(table, []string{ui.Count(i.Examples), ui.Short(i.ExamplesPerSecond) + "/s", ui.Score(i.AUC), ui.Score(i.BestAUC), ui.Score(i.LogLoss)})
		}
		if err := ui.Table(w, append(table, nil), 0, 1, 2, 3, 4); err != nil {
			return err
		}
	}
	var rows [][]string
	if r.ResumedFrom > 0 {
		now := ui.Count(r.Examples-r.ResumedFrom) + " now"
		if r.ResumedFrom == r.Examples {
			now = "none now"
		}
		rows = append(rows, []string{"resumed", fmt.Sprintf("%s examples were trained on before, %s", ui.Count(r.ResumedFrom), now)})
	}
	rows = append(rows, [][]string{
		{"examples", fmt.Sprintf("%s in %.1f s, %s", ui.Count(r.Examples), r.Seconds, perSecond(r.ExamplesPerSecond))},
		{"embedding rows", ui.Count(r.Rows)},
		{"progressive", fmt.Sprintf("auc %s, log loss %s (each example before it was trained on)", ui.Score(r.Progressive.AUC), ui.Score(r.Progressive.LogLoss))},
		{"held-out auc", fmt.Sprintf("%s trained to the end", ui.Score(r.HeldOut.AUC))},
		{"", fmt.Sprintf("%s the same model, frozen half way", ui.Score(r.HeldOut.FrozenAUC))},
		{"", fmt.Sprintf("%s the best any model can do", ui.Score(r.HeldOut.BestAUC))},
	}...)
	if r.Drained {
		rows = append(rows, []string{"ended by", "a signal, before the stream's end"})
	}
	if r.Snapshot != "" {
		rows = append(rows, []string{"snapshot", r.Snapshot})
	}
	if r.Dir != "" {
		rows = append(
			rows,
			[]string{"look into it", "monolith inspect " + r.Dir},
			[]string{"evaluate it", "monolith eval " + filepath.Join(r.Dir, "job.yaml")},
			[]string{"see its graph", "monolith plan " + filepath.Join(r.Dir, "job.yaml")},
		)
	}
	if r.Drained {
		rows = append(rows, []string{"go on", "the same command with --dir " + r.Dir})
	}
	return pairs(w, rows...)
}
