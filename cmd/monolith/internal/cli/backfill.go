package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
)

func (a *App) backfillCommand(out *outcome) *cobra.Command {
	var (
		set      []string
		resume   bool
		worker   string
		runner   string
		from, to string
	)
	cmd := &cobra.Command{
		Use:   "backfill JOB.yaml --from TIME --to TIME",
		Short: "Train on the history of a stream, before training on the stream",
		Long: `Train the model of a job on the history of its stream, from a time up to another, in the order of time. Afterwards
monolith train continues with the stream at the exact position where the history ends.

History is what the topic still holds or, where the job has backfill.source, files that are laid out by hour or day. What
is read is found once: run the same command again after a kill and it continues, and every example counts exactly once. Where SIGINT or
SIGTERM ends it before it is complete, the exit code is 130 or 143.`,
		Example: `  monolith backfill job.yaml --from 2026-11-01 --to 2026-11-20
  monolith backfill job.yaml --from 2026-11-19T06 --to 2026-11-19T18
  monolith train job.yaml      # afterwards: continue with the stream`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.load(args[0], a.onRunner(set, runner))
			if err != nil {
				return err
			}
			bounds, err := timeRange(from, to)
			if err != nil {
				return err
			}
			if a.Ops.Train == nil {
				return errMissing
			}
			opts, stop, err := a.run(cmd.Context(), &cfg.Metrics)
			if err != nil {
				return err
			}
			defer stop()
			if cmd.Flags().Changed("resume") {
				opts.Resume = &resume
			}
			opts.Worker, opts.Backfill = worker, bounds
			a.drainsBy(trainDrains)
			result, err := a.Ops.Train(cmd.Context(), cfg, opts)
			if result != nil {
				out.result = result
				out.text = func(w io.Writer) error { return writeTrained(w, result) }
			}
			if err == nil && result.Drained && (result.Backfill == nil || !result.Backfill.Complete) {
				return a.incomplete(sameCommand)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "first `time` of the history, in UTC where it names no zone: 2026-11-19, 2026-11-19T06, 2026-11-19T06:30:00Z")
	cmd.Flags().StringVar(&to, "to", "", "`time` that the history ends before and the stream begins at")
	addSet(cmd, &set)
	addRunner(cmd, &runner)
	cmd.Flags().StringVar(&worker, "worker", "", "`name` of this worker among those of the job, as in monolith train")
	cmd.Flags().BoolVar(&resume, "resume", true, "continue from the newest snapshot; given explicitly it demands one, =false starts over")
	return cmd
}

// timeLayouts are how times may be written; those without a zone are in UTC.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02T15", time.DateOnly}

// readTime reads the time that a flag gives.
func readTime(flag, text string) (time.Time, error) {
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, &usageError{message: fmt.Sprintf("--%s %q is not a time such as 2026-11-19, 2026-11-19T06 or 2026-11-19T06:30:00Z", flag, text)}
}

// timeRange reads the bounds of a backfill.
func timeRange(from, to string) (*job.Range, error) {
	read := func(flag, text string) (time.Time, error) {
		if text == "" {
			return time.Time{}, &usageError{message: fmt.Sprintf("--%s is missing: a backfill has two bounds, such as --from 2026-11-01 --to 2026-11-20T06", flag)}
		}
		return readTime(flag, text)
	}
	var r job.Range
	var err error
	if r.From, err = read("from", from); err != nil {
		return nil, err
	}
	if r.To, err = read("to", to); err != nil {
		return nil, err
	}
	if !r.From.Before(r.To) {
		return nil, &usageError{message: fmt.Sprintf("--from %s is not before --to %s: a backfill trains on what lies between them; to begin the stream at a time without one, set source.kafka.start=%s", from, to, r.To.Format(time.RFC3339))}
	}
	return &r, nil
}

// backfillRows says what was trained on, and where the stream begins after it.
func backfillRows(b *job.Backfill) [][]string {
	how := "complete; monolith train continues with the stream"
	if !b.Complete {
		how = "not complete; the same command continues it"
	}
	rows := [][]string{{"backfill", fmt.Sprintf("%s to %s: %s", b.From.Format(time.RFC3339), b.To.Format(time.RFC3339), how)}}
	if b.OtherTimes > 0 {
		rows = append(rows, []string{"other times", fmt.Sprintf("%s records between those of the range, trained on too", ui.Count(b.OtherTimes))})
	}
	const most = 4
	for i, split := range slices.Sorted(maps.Keys(b.Begins)) {
		label := ""
		if i == 0 {
			label = "stream begins"
		}
		if i == most && len(b.Begins) > most+1 {
			rows = append(rows, []string{"", fmt.Sprintf("and %d more, see --json", len(b.Begins)-most)})
			break
		}
		rows = append(rows, []string{label, fmt.Sprintf("%s at %d", split, b.Begins[split])})
	}
	return rows
}
