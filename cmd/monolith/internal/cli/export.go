package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job"
)

func (a *App) exportModelCommand(out *outcome) *cobra.Command {
	var (
		o               job.ExportModelOptions
		updated, warmup string
		exempt          []int
		set             []string
	)
	formats := job.ExportFormats()
	cmd := &cobra.Command{
		Use:   "export SNAPSHOT|JOB.yaml --format FORMAT --dir DIR|URL",
		Short: "Write a model, or its rows, for other programs",
		Long: `Write the model of a snapshot, or its rows alone, as files that other programs read. The export of snapshot 12 is the folder 12 in DIR, which is there once it is
complete. The snapshot is not changed.

  native       all of a model, for programs of monolith: rows with an index, which are mapped into memory and so opened at once
  savedmodel   all of a model, for TensorFlow and TensorFlow Serving, which serves DIR as it is
  onnx         all of a model, for onnxruntime and other programs that run ONNX
  safetensors  all of a model in one file: dense tensors, and of each table ids and the weights of each segment
  parquet      the rows of each table: id, slot, last update, updates, weights of each segment, and when asked the optimizers' state
  arrow        the same as Arrow IPC files

SNAPSHOT is a snapshot's folder, or a job's dir for the newest one in it, or the URL of a folder of snapshots or of one in a store (snapshot.upload); JOB.yaml stands for its dir, and says where a runner submits to.
Of a job with train.early_stop the best snapshot is exported, otherwise the newest.
DIR may be the URL of a folder in a store: s3://, gs://, hdfs:// or file:///. The export is written on this machine (--spool), where it needs room, and then uploaded; nothing locks a
store, so that one process at a time may export there.

A folder is of one job: servers take the highest number in it for the newest version of its model. One whose newest export is of another job is refused, unless --other-job says that it is the same model.

--warmup-from makes requests of examples, which servers answer before they serve the export, so that the first caller does not wait: the first of files or of a topic, or with JOB.yaml
of its own source (--warmup-from source). The export then has what these examples hold, as ids and numbers.

It is read by parts, and never loaded whole. A run that was killed is continued when it is run again, but for savedmodel, onnx and safetensors, which begin again.`,
		Example: `  monolith export runs/click --format native --dir models/click --keep 3
  monolith export runs/click --format savedmodel --dir serving/click
  monolith export runs/click --format parquet --dir rows
  monolith export job.yaml --format arrow --dir rows --slot user
  monolith export s3://models/click --format native --dir models/click
  monolith export runs/click --format native --dir s3://models/served/click
  monolith export job.yaml --format native --dir models --warmup-from source
  monolith export verify models/click/12`,
		Args: exactly("a snapshot or a job file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.Format == "":
				return &usageError{message: "--format is missing: " + strings.Join(formats, ", ")}
			case !slices.Contains(formats, o.Format):
				return &usageError{fmt.Sprintf("--format is %q, not one of %s", o.Format, strings.Join(formats, ", ")), nearest.Name(o.Format, formats)}
			case o.Dir == "":
				return &usageError{message: "--dir is missing: the folder of exports"}
			case o.Spool != "" && !fsx.IsURL(o.Dir):
				return &usageError{message: "--spool is for a store: --dir s3://BUCKET/PREFIX"}
			case o.RowNumbers && o.Format != "onnx":
				return &usageError{message: "--row-numbers is for --format onnx"}
			case o.MinNorm < 0 || o.MinCount < 0:
				return &usageError{message: fmt.Sprintf("--min-norm is %v and --min-count %d, must be at least 0", o.MinNorm, o.MinCount)}
			case o.RowsPerFile < 1:
				return &usageError{message: fmt.Sprintf("--rows-per-file is %d, must be at least 1", o.RowsPerFile)}
			case o.Keep < 0:
				return &usageError{message: fmt.Sprintf("--keep is %d, must be at least 0", o.Keep)}
			case o.Runner == "dataflow":
				return &usageError{message: "--runner dataflow has no folder in common with this process for snapshot and files; take --runner=local"}
			case o.Workers < 1:
				return &usageError{message: fmt.Sprintf("--workers is %d, must be at least 1", o.Workers)}
			case o.WarmupExamples < 1:
				return &usageError{message: fmt.Sprintf("--warmup-examples is %d, must be at least 1", o.WarmupExamples)}
			}
			for _, id := range exempt {
				if id < 1 {
					return &usageError{message: fmt.Sprintf("--exempt has %d; exports are numbered as snapshots are, from 1", id)}
				}
				o.Exempt = append(o.Exempt, uint64(id))
			}
			if updated != "" {
				at, err := readTime("updated-after", updated)
				if err != nil {
					return err
				}
				o.UpdatedAfter = at
			}
			if err := errSet(args[0], set); err != nil {
				return err
			}
			o.Snapshot = args[0]
			if err := a.warmupFrom(cmd.Context(), &o, args[0], warmup, set); err != nil {
				return err
			}
			if isJobFile(args[0]) {
				cfg, err := a.loadUntrained(args[0], a.onRunner(set, o.Runner))
				if err != nil {
					return err
				}
				if err := cfg.Destination("--dir", o.Dir, true); err != nil {
					return err
				}
				o.Snapshot, o.Best, o.Beam = cfg.Dir, cfg.Train.EarlyStop != nil, cfg.Beam
			} else if o.Runner != "" && o.Runner != "local" && o.Runner != "prism" {
				return &usageError{message: fmt.Sprintf("--runner %s needs a job file, whose section beam says where to submit to: monolith export JOB.yaml", o.Runner)}
			}
			if a.Ops.ExportModel == nil {
				return errMissing
			}
			opts, stop, err := a.run(cmd.Context(), nil)
			if err != nil {
				return err
			}
			defer stop()
			o.Logger, o.Notice, o.Drain, o.Status = opts.Logger, opts.Notice, opts.Drain, opts.Status
			a.drainsBy("completing the files that are begun; the same command continues")
			r, err := a.Ops.ExportModel(cmd.Context(), o)
			if r != nil {
				out.result = r
				out.text = func(w io.Writer) error { return writeExportedModel(w, r, o.Dir) }
			}
			if err == nil && r.Drained {
				return a.incomplete(sameCommand)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.Format, "format", "", "`format` of the files: "+strings.Join(formats, ", "))
	flags.StringVar(&o.Dir, "dir", "", "`folder` of exports, which gets one of the snapshot's number; or the URL of one in a store")
	flags.StringVar(&o.Spool, "spool", "", "for a store: `folder` of this machine where an export is written before it is uploaded (default: monolith/spool in the user's folder of caches)")
	flags.IntVar(&o.Keep, "keep", 0, "remove exports of DIR but for so `many` of the newest, and this one; 0: none is removed")
	flags.IntSliceVar(&exempt, "exempt", nil, "with --keep, the `numbers` of others that stay")
	flags.BoolVar(&o.OtherJob, "other-job", false, "write into a folder whose newest export is of another job: the same model by another name")
	flags.StringSliceVar(&o.Slots, "slot", nil, "of rows: write those of this `slot` alone, a number or the name of a feature; may be given more than once")
	flags.StringVar(&updated, "updated-after", "", "of rows: leave out those that were updated last at this `time` or before it, in UTC where it names no zone")
	flags.Int64Var(&o.MinCount, "min-count", 0, "of rows: leave out those that have had fewer `updates`")
	flags.Float64Var(&o.MinNorm, "min-norm", 0, "of rows: leave out those whose weights have a smaller Euclidean `norm`")
	flags.BoolVar(&o.State, "optimizer-state", false, "of rows: write the optimizers' state too")
	flags.BoolVar(&o.RowNumbers, "row-numbers", false, "of onnx: take numbers of rows in place of ids, which are in files beside the model, without a bound to the number of rows")
	flags.StringVar(&warmup, "warmup-from", "", "of native and savedmodel: make warm-up requests of these `examples`: files or a pattern, whose content tells what they are, kafka://host:port/topic, or, of a job file, source")
	flags.IntVar(&o.WarmupExamples, "warmup-examples", 256, "with --warmup-from, of so many `examples`")
	flags.Int64Var(&o.RowsPerFile, "rows-per-file", 1<<20, "about how many `rows` a file has at most")
	flags.IntVar(&o.Workers, "workers", runtime.GOMAXPROCS(0), "how `many` read and write side by side")
	flags.Lookup("workers").DefValue = "one per CPU"
	flags.StringVar(&o.Runner, "runner", "local", "`runner` of the graph: local, or one of Apache Beam's: prism, and with a job file flink, portable")
	addSet(cmd, &set)
	cmd.AddCommand(a.exportVerifyCommand(out))
	return cmd
}

// warmupFrom finds the examples that warm-up requests are made of, of a job file with what overrides it.
func (a *App) warmupFrom(ctx context.Context, o *job.ExportModelOptions, model, target string, set []string) (err error) {
	const own = "source"
	switch {
	case target == "":
		return nil
	case !isJobFile(model) && target == own:
		return &usageError{message: fmt.Sprintf("--warmup-from source is that of a job file: monolith export JOB.yaml; %s needs files or a topic", model)}
	case !isJobFile(model) && fsx.IsURL(model):
		return &usageError{message: fmt.Sprintf("--warmup-from needs a job file, or a snapshot of this machine (monolith snapshot fetch), which say what features are made of; %s is in a store", model)}
	case !isJobFile(model):
		o.WarmupFrom, err = job.Alone(ctx, model, target, job.LoadOptions{Env: a.Env})
	default:
		var source []string
		if target != own {
			as, _ := a.read(model, job.LoadOptions{Set: set, Untrained: true}) // loading it says what is wrong with it
			if source, err = job.SetTarget(target, as); err != nil {
				break
			}
		}
		o.WarmupFrom, err = a.loadUntrained(model, slices.Concat(set, a.fromFlag("--warmup-from", source...)))
	}
	if err != nil {
		return fmt.Errorf("--warmup-from: %w", err)
	}
	return nil
}

// addCache adds the flags of where exports of stores are copied to.
func addCache(cmd *cobra.Command, c *job.ExportCache) {
	cmd.Flags().StringVar(&c.Dir, "cache", "", "for an export in a store: `folder` of this machine for copies (default: monolith/exports in the user's folder of caches)")
	cmd.Flags().Int64Var(&c.MaxBytes, "cache-bytes", 64<<30, "how many `bytes` copies of exports have together; those that were asked for longest ago are removed")
}

// fetchExport brings an export of a store to this machine. What is on this machine is used where it lies.
func (a *App) fetchExport(ctx context.Context, path string, c job.ExportCache) (*job.FetchedExport, error) {
	if !fsx.IsURL(path) {
		return &job.FetchedExport{URL: path, Dir: path}, nil
	}
	if a.Ops.FetchExport == nil {
		return nil, errMissing
	}
	if c.MaxBytes < 1 {
		return nil, &usageError{message: fmt.Sprintf("--cache-bytes is %d, must be at least 1", c.MaxBytes)}
	}
	opts, stop, err := a.run(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer stop()
	return a.Ops.FetchExport(ctx, job.FetchExportOptions{URL: path, Cache: c, Notice: opts.Notice, Status: opts.Status})
}

func (a *App) exportVerifyCommand(out *outcome) *cobra.Command {
	var cache job.ExportCache
	cmd := &cobra.Command{
		Use:   "verify EXPORT",
		Short: "Read a native export and check every byte",
		Long: `Read all of a native export and compare its checksums with those that were stored when it was written, and look each of its ids up. Every fault is listed with its file. EXPORT
is the folder of one, or of several for the newest in it, or the URL of such a folder in a store, from which it is copied (--cache).

The exit code is 0 when it is whole, 4 when it is not. Opening an export verifies all but its rows by itself.`,
		Example: `  monolith export verify models/click/12
  monolith export verify models/click/12 --json
  monolith export verify s3://models/served/click`,
		Args: exactly("the folder of an export"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "export verify"
			if a.Ops.VerifyExport == nil {
				return errMissing
			}
			from, err := a.fetchExport(cmd.Context(), args[0], cache)
			if err != nil {
				return err
			}
			r, err := a.Ops.VerifyExport(cmd.Context(), from.Dir)
			if err != nil {
				return err
			}
			out.result = r
			out.text = func(w io.Writer) error {
				if len(r.Faults) == 0 {
					_, err := fmt.Fprintf(w, "%s: whole, %s rows of snapshot %d of %s\n", r.Dir, ui.Count(r.Rows), r.Snapshot, r.Job)
					return err
				}
				for _, f := range r.Faults {
					if _, err := fmt.Fprintln(w, f); err != nil {
						return err
					}
				}
				return nil
			}
			if n := len(r.Faults); n > 0 {
				return &answerError{fmt.Sprintf("%s is damaged: %s", r.Dir, plural(n, "file"))}
			}
			return nil
		},
	}
	addCache(cmd, &cache)
	return cmd
}

// asGiven is a path in a folder as the user has named that folder.
func asGiven(path, folder string) string {
	abs, err := filepath.Abs(folder)
	if err != nil || filepath.IsAbs(folder) {
		return path
	}
	if rest, err := filepath.Rel(abs, path); err == nil && filepath.IsLocal(rest) {
		return filepath.Join(folder, rest)
	}
	return path // of another folder, or in a store
}

// writeExportedModel says how much of each table is written; folder is the one that was named for it.
func writeExportedModel(w io.Writer, r *job.ExportedModel, folder string) error {
	how := ""
	if r.Drained {
		how = "; not complete: " + sameCommand
	}
	if r.Already {
		how = "; it was there already"
	}
	rows := [][]string{{"snapshot", r.Snapshot}, {"export", fmt.Sprintf("%s, %s%s", asGiven(r.Dir, folder), r.Format, how)}}
	if !r.Already {
		rows = append(rows, []string{"rows", fmt.Sprintf("%s in %.1f s", ui.Count(r.Rows), r.Seconds)})
	}
	for _, t := range r.Tables {
		text := fmt.Sprintf("%s of %s rows in %s", ui.Count(t.Rows), ui.Count(t.Of), asGiven(t.Dir, folder))
		if t.Earlier > 0 {
			text += fmt.Sprintf(", %s of them before", ui.Count(t.Earlier))
		}
		rows = append(rows, []string{"table " + t.Name, text})
	}
	for _, dir := range r.Removed {
		rows = append(rows, []string{"removed", asGiven(dir, folder)})
	}
	return ui.Table(w, rows)
}
