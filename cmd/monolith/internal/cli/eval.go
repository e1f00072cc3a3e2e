package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/evalpage"
	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

func (a *App) evalCommand(out *outcome) *cobra.Command {
	var (
		set, slices       []string
		snapshot, compare string
		runner            string
		maxExamples       int64
		minAUC            float64
		bootstrap         int
		page              string
	)
	cmd := &cobra.Command{
		Use:        "eval JOB.yaml",
		SuggestFor: []string{"test", "metrics"},
		Short:      "Evaluate a snapshot on held-out examples",
		Long: `Evaluate a snapshot on the examples of eval.source, or those that eval.holdout holds out: the best one where the job has train.early_stop, which marks and keeps it,
otherwise the newest in the job's dir, or the one that --snapshot names.

With --slice the metrics are measured for each value of a column too, or for each pair of values of two; these take the place of
eval.slices. With --bootstrap figures have intervals in which they lie with 95 in a hundred (Poisson bootstrap). With --compare another model
scores the same examples: differences are those of this model above the other, with paired intervals. --html writes a page with
curves, calibration, histograms and slices. Figures do not depend on workers or on the order in which examples come.

The graph runs on the job's runner, or the one of --runner, with the same figures. Executors in other processes (beam.environment) read the
snapshot themselves and write predictions to a folder of the job's dir, from which they are measured and then removed.

Where the job has eval.outputs, what is read or predicted is written there too, each row exactly once: an evaluation that was killed is
continued when it is run again.

With --min-auc the exit code is 4 when the model is not good enough, so that a script can decide.`,
		Example: `  monolith eval job.yaml
  monolith eval job.yaml --min-auc 0.75 && ./publish
  monolith eval job.yaml --slice country --slice country,device --bootstrap 200
  monolith eval job.yaml --compare best --html report.html
  monolith eval job.yaml --compare other.yaml --json
  monolith eval job.yaml --runner=flink --set beam.endpoint=127.0.0.1:8099
  monolith eval job.yaml --set eval.source.text.files=test-2.libfm`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(slices) > 0 {
				set = append(set, a.fromFlag("--slice", slicesOf(slices))...)
			}
			cfg, err := a.loadUntrained(args[0], a.onRunner(set, runner))
			if err != nil {
				return err
			}
			if a.Ops.Eval == nil {
				return errMissing
			}
			var with *job.CompareWith
			if compare != "" {
				with = &job.CompareWith{Snapshot: compare}
				if isJobFile(compare) {
					other, err := a.read(compare, job.LoadOptions{Untrained: true})
					if err != nil {
						return fmt.Errorf("--compare: %w", err)
					}
					with = &job.CompareWith{Config: other}
				}
			}
			if page != "" {
				if err := cfg.Destination("--html", page, false); err != nil {
					return err
				}
			}
			if minAUC < 0 || minAUC > 1 || math.IsNaN(minAUC) {
				return &usageError{message: fmt.Sprintf("--min-auc is %g, must be from 0 to 1", minAUC)}
			}
			if (compare != "" || page != "") && !cmd.Flags().Changed("bootstrap") {
				bootstrap = usualReplicates
			}
			opts, stop, err := a.run(cmd.Context(), askedMetrics(cfg))
			if err != nil {
				return err
			}
			defer stop()
			result, err := a.Ops.Eval(cmd.Context(), cfg, job.EvalOptions{
				Options: opts, Snapshot: snapshot, MaxExamples: maxExamples, Bootstrap: bootstrap, Compare: with, Curves: page != "" || a.json,
			})
			if result == nil || err != nil {
				return err
			}
			if page != "" {
				if err := writePage(cmd.Context(), page, cfg.Name, result); err != nil {
					return err
				}
			}
			out.result = result
			out.text = func(w io.Writer) error { return writeEvaluated(w, result, page) }
			if !cmd.Flags().Changed("min-auc") {
				return nil
			}
			return reaches(result.Metrics, minAUC)
		},
	}
	addSet(cmd, &set)
	addRunner(cmd, &runner)
	cmd.Flags().StringVar(&snapshot, "snapshot", "", "`folder` or number of the snapshot, or newest or best of those in the job's dir (default: best with train.early_stop, otherwise newest)")
	cmd.Flags().StringArrayVar(&slices, "slice", nil, "measure for each value of this `column` too, or of two: a,b; may be given more than once, and takes the place of eval.slices")
	cmd.Flags().IntVar(&bootstrap, "bootstrap", 0, fmt.Sprintf("make intervals of so many `replicates`, 20 or more; 0: none (default with --compare or --html: %d)", usualReplicates))
	cmd.Flags().StringVar(&compare, "compare", "", "compare with another `model` on the same examples: a snapshot of this job or its number, newest, best, or another job file")
	cmd.Flags().StringVar(&page, "html", "", "write the evaluation as one page to this `file`, which needs nothing else to be shown")
	cmd.Flags().Int64Var(&maxExamples, "max-examples", 0, "end after so many `examples`; 0: as the job says")
	cmd.Flags().Float64Var(&minAUC, "min-auc", 0, "exit with 4 when the AUC, that of each head which has one, is below this `number` (0 to 1)")
	return cmd
}

// usualReplicates is how many replicates comparisons and pages have.
const usualReplicates = 100

// writePage writes the page of an evaluation to a file.
func writePage(ctx context.Context, path, name string, r *job.EvalResult) error {
	var b bytes.Buffer
	if err := evalpage.Write(&b, name, r); err != nil {
		return err
	}
	if err := fsx.WriteFile(ctx, fsx.Local{}, path, b.Bytes()); err != nil {
		return fmt.Errorf("--html: %w: %w", err, pipeline.ErrUnavailable)
	}
	return nil
}

// slicesOf is the key of the job that --slice stands for.
func slicesOf(flags []string) string {
	var list []string
	for _, f := range flags {
		column, with, two := strings.Cut(f, ",")
		entry := fmt.Sprintf("{column: %q", strings.TrimSpace(column))
		if two {
			entry += fmt.Sprintf(", with: %q", strings.TrimSpace(with))
		}
		list = append(list, entry+"}")
	}
	return "eval.slices=[" + strings.Join(list, ", ") + "]"
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

// sliceName says what a slice is of: `country=de`, `click country=de device=tv`, `country, 12 others`.
func sliceName(s *job.SliceScores) string {
	name := fmt.Sprintf("%s=%s", s.Column, s.Value)
	if s.With != "" {
		name += fmt.Sprintf(" %s=%s", s.With, s.WithValue)
	}
	if s.Others > 0 {
		name = s.Column
		if s.With != "" {
			name += "," + s.With
		}
		name += fmt.Sprintf(", %s others", ui.Count(int64(s.Others)))
	}
	if s.Head != "" {
		name = s.Head + " " + name
	}
	return name
}

// measured writes a metric with what is known about it: `0.7500`, `0.7500 [0.7400, 0.7600]`, and with another model
// `, other 0.7400, difference +0.0100 [+0.0050, +0.0150]`.
func measured(m *job.Measured, name string) string {
	text := ui.Score(m.Metrics[name])
	if n, ok := m.Groups[name]; ok {
		text += fmt.Sprintf(" (%s of %s examples, %s of %s groups)", ui.Count(int64(n.Examples)), ui.Count(int64(n.OfExamples)), ui.Count(int64(n.Groups)), ui.Count(int64(n.OfGroups)))
	}
	if i, ok := m.Intervals[name]; slices.Contains(m.Few, name) {
		text += " (too few for an interval)"
	} else if ok {
		text += fmt.Sprintf(" [%s, %s]", ui.Score(i.Low), ui.Score(i.High))
	}
	if d, ok := m.Differences[name]; ok {
		text += fmt.Sprintf(", other %s, difference %s", ui.Score(m.Other[name]), signed(d.Value))
		if m.Intervals != nil && !slices.Contains(m.Few, name) {
			text += fmt.Sprintf(" [%s, %s]", signed(d.Interval.Low), signed(d.Interval.High))
		}
	}
	return text
}

// signed is a score with its sign.
func signed(x float64) string {
	if text := ui.Score(x); text == "-" || x < 0 {
		return text
	}
	return "+" + ui.Score(x)
}

// sliceScores writes the metrics of a slice in one line.
func sliceScores(s *job.SliceScores) string {
	parts := []string{ui.Count(s.Examples) + " examples"}
	for _, name := range s.Metrics.Names() {
		parts = append(parts, name+" "+measured(&s.Measured, name))
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

func writeEvaluated(w io.Writer, r *job.EvalResult, page string) error {
	rows := [][]string{{"examples", fmt.Sprintf("%s, %s", ui.Count(r.Examples), perSecond(r.ExamplesPerSecond))}}
	for _, name := range r.Metrics.Names() {
		rows = append(rows, []string{name, measured(&r.Measured, name)})
	}
	rows = append(rows, doubtRows(r.Doubts)...)
	for i := range r.Slices {
		rows = append(rows, []string{sliceName(&r.Slices[i]), sliceScores(&r.Slices[i])})
	}
	rows = append(rows, badRows(r.BadRows)...)
	rows = append(rows, fillRows(r.Features)...)
	rows = append(rows, cutRows(r.Features)...)
	if r.Replicates > 0 {
		rows = append(rows, []string{"intervals", fmt.Sprintf("of 95 in a hundred, %d replicates", r.Replicates)})
	}
	if r.Snapshot != "" {
		rows = append(rows, []string{"snapshot", whichSnapshot(r.Snapshot, r.Which)})
	}
	if c := r.ComparedWith; c != nil {
		rows = append(rows, []string{"other", whichSnapshot(c.Snapshot, c.Which)})
	}
	if r.Part != "" {
		rows = append(rows, []string{"outputs", "part " + r.Part})
	}
	if page != "" {
		rows = append(rows, []string{"page", page})
	}
	return pairs(w, rows...)
}
