package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job"
)

func (a *App) predictCommand(out *outcome) *cobra.Command {
	var (
		set, fields                 []string
		o                           job.PredictOptions
		data, to, dir, delim, snaps string
		runner                      string
		cache                       job.ExportCache
		command                     *cobra.Command
		formats                     = job.PredictionSinks()
		kinds                       = strings.Join(formats, ", ")
		errTo                       = func(text string, args ...any) error { return &usageError{message: fmt.Sprintf(text, args...)} }
	)
	command = &cobra.Command{
		Use:        "predict JOB.yaml|SNAPSHOT|EXPORT",
		SuggestFor: []string{"infer", "score"},
		Short:      "Write what a snapshot predicts of examples",
		Long: `Score examples with a snapshot of the job and write the predictions: one for each row, in the order of each file or partition. Labels are not
needed. Nothing of the job is changed.

The examples are those of predict.source, or where there is none of the job's source; --data names others, and --examples eval takes
those of eval.source or eval.holdout. The snapshot is the best one where the job has train.early_stop, otherwise the newest, or the one that --snapshot names.

SNAPSHOT, the folder of a snapshot or a job's dir for the newest one in it, and EXPORT, the folder of a native export, or of several for the newest, need no job file: they say what
their features are made of, and --data names the examples. EXPORT may be a URL of a store: s3://, gs://, hdfs:// or file:///. It is copied to this machine (--cache).

Predictions go to predict.to: files of JSON lines, lines with delimiters (tsv), Parquet, Arrow or TFRecord, or a Kafka topic. --fields says which
columns are beside them: columns of the records as the text that is there, and the words label, weight, time, position, split, logit,
feature.NAME (a feature as it was parsed) and prediction, which stands last unless it is named.

Each row is predicted exactly once: a run that was killed or stopped is continued when it is run again, and one that is complete adds
what has come since. A stream is predicted until the command is stopped; with --follow also where the job gives it an end. A folder with predictions of another snapshot, or with other fields, is
refused.`,
		Example: `  monolith predict job.yaml --to jsonl --dir predictions
  monolith predict job.yaml --data 'new/*.csv' --to tsv --dir scores
  monolith predict job.yaml --to tsv --dir scores --fields user,label,logit
  monolith predict job.yaml --to tsv --dir scores --delimiter ,
  monolith predict job.yaml --data kafka://h:9092/asked --to kafka://h:9092/said
  monolith predict job.yaml --follow --to kafka://h:9092/said
  monolith predict job.yaml --examples eval --to parquet --dir scored
  monolith predict models/click/12 --data new.csv --to jsonl --dir scored
  monolith predict s3://models/click --data new.csv --to jsonl --dir scored`,
		Args:              exactly("a job file, a snapshot or an export"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			var own []string
			o.Alone = ""
			if !fsx.IsURL(args[0]) && !isJobFile(args[0]) {
				if err := isThere(args[0]); err != nil {
					return err
				}
			}
			if fsx.IsURL(args[0]) || !isJobFile(args[0]) && isDir(args[0]) {
				switch o.Alone = args[0]; {
				case data == "":
					return errTo("--data is missing: what %s is to predict; a job file says it itself", args[0])
				case snaps != "":
					return errTo("--snapshot is for a job file; %s is used as it is", args[0])
				}
			} else if data != "" {
				as, _ := a.read(args[0], job.LoadOptions{Set: a.onRunner(set, runner), Untrained: true}) // loading it says what is wrong with it
				keys, err := job.SetTarget(data, as)
				if err != nil {
					return fmt.Errorf("--data: %w", err)
				}
				own = append(own, a.fromFlag("--data", keys...)...)
			}
			if data != "" && o.Examples != "" {
				return errTo("--data and --examples both say which examples; give one of them")
			}
			switch rest, topic := strings.CutPrefix(to, "kafka://"); {
			case topic:
				brokers, name, ok := strings.Cut(rest, "/")
				if !ok || brokers == "" || name == "" {
					return errTo("--to is %q, not kafka://host:port/topic", to)
				}
				own = append(own, a.fromFlag("--to", "predict.to={kafka: {}}", "predict.to.kafka.brokers="+brokers, "predict.to.kafka.topic="+name)...)
			case to == "" && dir == "":
			case to == "":
				return errTo("--to is missing: one of %s", kinds)
			case !slices.Contains(formats, to):
				return &usageError{fmt.Sprintf("--to is %q, not one of %s, or kafka://host:port/topic", to, kinds), nearest.Name(to, formats)}
			case dir == "":
				return errTo("--dir is missing: the folder to write to")
			case fsx.IsURL(dir):
				return errTo("--dir is %q, the URL of a store: predictions are written to a folder of this machine, from which other tools may copy them, or to a topic (--to kafka://host:port/topic)", dir)
			default:
				own = append(own, a.fromFlag("--dir", fmt.Sprintf("predict.to={%s: {dir: %q}}", to, dir))...)
			}
			if cmd.Flags().Changed("delimiter") {
				own = append(own, a.fromFlag("--delimiter", "predict.to.tsv.delimiter="+strings.ReplaceAll(delim, `\t`, "\t"))...)
			}
			if len(fields) > 0 {
				quoted := make([]string, len(fields))
				for i, f := range fields {
					quoted[i] = fmt.Sprintf("%q", strings.TrimSpace(f))
				}
				own = append(own, a.fromFlag("--fields", "predict.fields=["+strings.Join(quoted, ", ")+"]")...)
			}
			switch {
			case o.Workers < 0:
				return errTo("--workers is %d, must be at least 1", o.Workers)
			case o.MaxExamples < 0:
				return errTo("--max-examples is %d, must be at least 0", o.MaxExamples)
			case o.MaxExamples > 0 && o.Follow:
				return errTo("--follow has no end, and --max-examples is one; give one of them")
			}
			own = a.onRunner(append(own, set...), runner)
			var cfg *job.Config
			var err error
			var from *job.FetchedExport
			if o.Alone != "" {
				if from, err = a.fetchExport(cmd.Context(), o.Alone, cache); err != nil {
					return err
				}
				o.Alone = from.Dir
				cfg, err = job.Alone(cmd.Context(), o.Alone, data, job.LoadOptions{Set: own, Flags: a.typed, Env: a.Env})
			} else {
				cfg, err = a.loadUntrained(args[0], own)
			}
			if err != nil {
				return err
			}
			if a.Ops.Predict == nil {
				return errMissing
			}
			opts, stop, err := a.run(cmd.Context(), askedMetrics(cfg))
			if err != nil {
				return err
			}
			defer stop()
			a.drainsBy("completing the files that are begun; the same command continues")
			o.Options, o.Snapshot = opts, snaps
			r, err := a.Ops.Predict(cmd.Context(), cfg, o)
			if r != nil {
				if from != nil && fsx.IsURL(from.URL) {
					r.Snapshot = from.URL
				}
				out.result = r
				out.text = func(w io.Writer) error { return writePredicted(w, r) }
			}
			if from, _ := cfg.PredictSource(); err == nil && r.Drained && !o.Follow && (o.MaxExamples > 0 || o.Examples != "" || from.Bounded()) {
				return a.incomplete(sameCommand)
			}
			return err
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&to, "to", "", "`sink`: "+kinds+", or kafka://host:port/topic (default: predict.to of the job)")
	flags.StringVar(&dir, "dir", "", "`folder` to write to, which is empty or has a part of the same predictions")
	flags.StringSliceVar(&fields, "fields", nil, "`columns` to write, in this order (default: predict.fields of the job, or the label and the prediction)")
	flags.StringVar(&delim, "delimiter", "", "`byte` between the fields of tsv (default: a tab)")
	flags.StringVar(&data, "data", "", "`examples` to predict: files or a pattern, whose content tells what they are, or kafka://host:port/topic")
	flags.StringVar(&o.Examples, "examples", "", "take those of this `section`: eval")
	flags.StringVar(&snaps, "snapshot", "", "`folder` or number of the snapshot, or newest or best of those in the job's dir (default: best with train.early_stop, otherwise newest)")
	flags.IntVar(&o.Workers, "workers", 0, "how `many` splits are predicted side by side (default: train.workers)")
	flags.Int64Var(&o.MaxExamples, "max-examples", 0, "end when so many `rows` are there, those of earlier runs among them; 0: at the source's end")
	flags.BoolVar(&o.Follow, "follow", false, "read a topic without end, whatever the job says, until the command is stopped; partitions that it gets are read too")
	addCache(command, &cache)
	addRunner(command, &runner)
	addSet(command, &set)
	return command
}

func writePredicted(w io.Writer, r *job.Predicted) error {
	count := ui.Count(r.Rows)
	if r.Earlier > 0 {
		count += fmt.Sprintf(", %s of them before", ui.Count(r.Earlier))
	}
	count += ", " + perSecond(r.ExamplesPerSecond)
	if r.Drained {
		count += "; not complete: " + sameCommand
	}
	place := r.To + " in " + r.Place
	if r.Place == r.To {
		place = r.To + ", output " + r.Output
	}
	rows := [][]string{{"predictions", count}, {"written to", place}, {"fields", strings.Join(r.Fields, ", ")}}
	rows = append(rows, badRows(r.BadRows)...)
	rows = append(rows, fillRows(r.Features)...)
	rows = append(rows, cutRows(r.Features)...)
	return pairs(w, append(rows, []string{"snapshot", whichSnapshot(r.Snapshot, r.Which)})...)
}
