package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/internal/telemetry"
	"github.com/monolith-go/monolith/job"
)

func (a *App) trainCommand(out *outcome) *cobra.Command {
	var (
		set         []string
		resume      bool
		printConfig bool
		dryRun      bool
		worker      string
		runner      string
	)
	cmd := &cobra.Command{
		Use:        "train JOB.yaml",
		SuggestFor: []string{"run", "fit", "start", "resume", "continue"},
		Short:      "Train a model, or continue training it",
		Long: `Train the model of a job until its source ends, then take a snapshot.

Where the job's dir holds a snapshot, training continues from the newest good one and says so. Without one it says where reading begins. A new
dir gets its first snapshot after 30 s at most (snapshot.every). The first SIGINT, SIGTERM or
SIGHUP stops reading, trains what is on its way and takes a snapshot; a second one stops at once. The exit code is then 0 for a stream, which
ends in no other way, and 130, 143 or 129 for what has an end (files, a range of a topic, train.max_examples): the same command continues.

Where the job has ps.addresses, the shards are the processes that monolith ps runs, and any number of train processes
share the splits of the source: start the same command on as many machines as there is work for.`,
		Example: `  monolith train job.yaml
  monolith train job.yaml --set train.batch=1024 --set model.deepfm.hidden=64,32
  monolith train job.yaml --resume=false          # start over
  monolith train job.yaml --print-config          # each value and its origin
  monolith train job.yaml --runner=dataflow --dry-run | jq .job
  monolith train job.yaml --json | jq .result.metrics.auc`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.load(args[0], a.onRunner(set, runner))
			if err != nil {
				return err
			}
			if printConfig {
				settings := cfg.Effective()
				out.result = map[string]any{"settings": settings}
				out.text = func(w io.Writer) error { return writeSettings(w, settings) }
				return nil
			}
			if dryRun {
				return a.translate(cmd.Context(), cfg, out)
			}
			if a.Ops.Train == nil {
				return errMissing
			}
			opts, stop, err := a.run(cmd.Context(), &cfg.Metrics)
			if errors.Is(err, telemetry.ErrListen) { // by the other process that trains here, perhaps
				err = cmp.Or(job.InUse(cfg), err)
			}
			if err != nil {
				return err
			}
			defer stop()
			if cmd.Flags().Changed("resume") {
				opts.Resume = &resume
			}
			opts.Worker = worker
			a.drainsBy(trainDrains)
			result, err := a.Ops.Train(cmd.Context(), cfg, opts)
			if result != nil {
				out.result = result
				out.text = func(w io.Writer) error { return writeTrained(w, result) }
			}
			if err == nil && result.Drained && cfg.Ends() {
				return a.incomplete(sameCommand)
			}
			return err
		},
	}
	addSet(cmd, &set)
	addRunner(cmd, &runner)
	cmd.Flags().StringVar(&worker, "worker", "", "`name` of this worker among those of the job; one that is started again under its name takes its place at once (default: host and process)")
	cmd.Flags().BoolVar(&resume, "resume", true, "continue from the newest snapshot; given explicitly it demands one, =false starts over")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "write as JSON what would be submitted to the runner, and stop; for runners that jobs are submitted to: flink, portable, dataflow")
	cmd.Flags().BoolVar(&printConfig, "print-config", false, "write every value in force and where it came from, and stop")
	return cmd
}

// translate writes what training would submit.
func (a *App) translate(ctx context.Context, cfg *job.Config, out *outcome) error {
	if !cfg.Submits() {
		return &usageError{fmt.Sprintf("--dry-run shows what is submitted, and the runner %s runs in this process; name another with --runner", cfg.Runner), ""}
	}
	if a.Ops.Translate == nil {
		return errMissing
	}
	job, err := a.Ops.Translate(ctx, cfg)
	if err != nil {
		return err
	}
	out.result = job
	out.text = func(w io.Writer) error {
		var b bytes.Buffer
		if err := json.Indent(&b, job, "", "  "); err != nil {
			return err
		}
		b.WriteByte('\n')
		_, err := b.WriteTo(w)
		return err
	}
	return nil
}

func writeSettings(w io.Writer, settings []job.Setting) error {
	rows := [][]string{{"KEY", "VALUE", "FROM"}}
	for _, s := range settings {
		from := s.From
		if s.Where != "" {
			from += "  " + s.Where
		}
		rows = append(rows, []string{s.Path, s.Value, from})
	}
	return ui.Table(w, rows)
}

func writeTrained(w io.Writer, r *job.TrainResult) error {
	var rows [][]string
	if b := r.Backfill; b != nil {
		rows = backfillRows(b)
	}
	rows = append(rows, [][]string{
		{"examples", fmt.Sprintf("%s in %s steps, %s", ui.Count(r.Examples), ui.Count(r.Steps), perSecond(r.ExamplesPerSecond))},
		{"epochs", ui.Count(int64(r.Epochs))},
	}...)
	for _, row := range scoreRows(r.Metrics) {
		for _, of := range []struct {
			prefix, which string
			n             int64
		}{{"progressive_", "last", r.ProgressiveExamples}, {"training_", "last", r.TrainingExamples}, {"lifetime_", "all", r.LifetimeExamples}} {
			if _, metric := job.SplitScore(row[0]); of.n > 0 && strings.HasPrefix(metric, of.prefix) {
				row[1] += fmt.Sprintf(" (%s %s examples)", of.which, ui.Count(of.n))
			}
		}
		rows = append(rows, row)
	}
	rows = append(rows, doubtRows(r.Doubts)...)
	rows = append(rows, badRows(r.BadRows)...)
	if r.HeldOut > 0 {
		rows = append(rows, []string{"held out", ui.Count(r.HeldOut) + " examples passed over (eval.holdout)"})
	}
	for _, cause := range slices.Sorted(maps.Keys(r.RowsRemoved)) {
		rows = append(rows, []string{cause, ui.Count(r.RowsRemoved[cause]) + " rows of embedding tables (retention)"})
	}
	if r.LostRecords > 0 {
		rows = append(rows, []string{"lost", fmt.Sprintf("%s records that were gone before they were read (on_gap: skip)", ui.Count(r.LostRecords))})
	}
	for i, l := range r.Lost {
		if i == 3 {
			rows = append(rows, []string{"", fmt.Sprintf("and %d more gap(s); --json has them", len(r.Lost)-i)})
			break
		}
		rows = append(rows, []string{"", fmt.Sprintf("%s from %d to %d", l.Split, l.From, l.To-1)})
	}
	rows = append(rows, fillRows(r.Features)...)
	rows = append(rows, cutRows(r.Features)...)
	if r.EarlyStopped {
		rows = append(rows, []string{"ended by", "train.early_stop"})
	}
	if r.Drained {
		rows = append(rows, []string{"ended by", "a signal, before the source's end; train again to continue"})
	}
	if r.Snapshot != "" {
		rows = append(rows, []string{"snapshot", r.Snapshot})
	}
	if r.BestSnapshot != "" {
		rows = append(rows, []string{"best snapshot", whichSnapshot(r.BestSnapshot, fmt.Sprintf("after epoch %d", r.BestEpoch))})
	}
	return pairs(w, rows...)
}

// doubtRows say what speaks against the figures above them.
func doubtRows(doubts []string) (rows [][]string) {
	for i, text := range doubts {
		what := ""
		if i == 0 {
			what = "doubts"
		}
		rows = append(rows, []string{what, text})
	}
	return rows
}

// cutRows names the features whose lists were cut by their max, those that were cut most often first. The full list is in --json.
func cutRows(features []job.FillInfo) [][]string {
	const most = 8
	var rows [][]string
	sorted := slices.SortedStableFunc(slices.Values(features), func(a, b job.FillInfo) int { return cmp.Compare(b.Cut, a.Cut) })
	for i, f := range sorted {
		if f.Cut == 0 {
			break
		}
		if i == most {
			return append(rows, []string{"", "and more, see --json"})
		}
		what := ""
		if i == 0 {
			what = "cut by max"
		}
		rows = append(rows, []string{what, fmt.Sprintf("%s in %.1f %% of examples", f.Feature, math.Ceil(1000*float64(f.Cut)/float64(max(f.Rows, 1)))/10)})
	}
	return rows
}

// fillRows says which features examples lack: those with the fewest values, worst first. The full list is in --json.
func fillRows(features []job.FillInfo) [][]string {
	const most = 8
	var rows [][]string
	sorted := slices.SortedStableFunc(slices.Values(features), func(a, b job.FillInfo) int { return cmp.Compare(a.Share(), b.Share()) })
	for i, f := range sorted {
		if f.Filled == f.Rows {
			break
		}
		if i == most {
			rows = append(rows, []string{"", "and more, see --json"})
			break
		}
		text := fmt.Sprintf("%s in %.1f %% of examples", f.Feature, math.Floor(1000*f.Share())/10)
		switch {
		case f.Filled == 0 && f.Nearest != "":
			text = fmt.Sprintf("%s in no example; did you mean %q?", f.Feature, f.Nearest)
		case f.Filled == 0:
			text = f.Feature + " in no example"
		}
		what := ""
		if i == 0 {
			what = "features"
		}
		rows = append(rows, []string{what, text})
	}
	return rows
}
