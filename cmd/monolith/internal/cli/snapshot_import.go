package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
)

func (a *App) importCommand(out *outcome) *cobra.Command {
	var (
		o       job.ImportOptions
		mapping string
		memory  string
		set     []string
	)
	cmd := &cobra.Command{
		Use:   "import JOB.yaml CHECKPOINT",
		Short: "Make a snapshot of a checkpoint of ByteDance's Monolith",
		Long: `Make a snapshot for a job of the embedding tables in a checkpoint of ByteDance's Monolith (bytedance/monolith). Training continues from
it, and evaluation reads it.

CHECKPOINT is a model's folder, a checkpoint in it (model.ckpt-1200), an exported model or a folder of tables. Rows go to the table of the
sparse feature whose slot their id has; a mapping says otherwise, and names dense variables (docs/from-monolith.md). Weights, times and, where the
rule is the same, the optimizers' state are taken over. What starts over, and what is left out, is counted and said why.`,
		Example: `  monolith snapshot import job.yaml model_dir --dry-run
  monolith snapshot import job.yaml model_dir/model.ckpt-1200
  monolith snapshot import job.yaml model_dir --map mapping.yaml --to imported`,
		Args: exactly("a job file", "a checkpoint"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "snapshot import"
			cfg, err := a.load(args[0], set)
			if err != nil {
				return err
			}
			var limit job.Size
			if err := limit.UnmarshalText([]byte(memory)); err != nil || limit < 1 {
				return &usageError{message: fmt.Sprintf("--memory is %q, wants a size such as 256MiB", memory)}
			}
			o.Memory = int64(limit)
			if mapping != "" {
				if o.Mapping, err = job.ReadMapping(mapping); err != nil {
					return err
				}
			}
			if a.Ops.Import == nil {
				return errMissing
			}
			o.From = args[1]
			r, err := a.Ops.Import(cmd.Context(), cfg, o)
			if r != nil {
				out.result = r
				out.text = func(w io.Writer) error { return writeImported(w, r) }
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&mapping, "map", "", "`file` that says what becomes of which table, slot and variable")
	flags.StringVar(&o.To, "to", "", "`folder` for the snapshot, which has none; restore.from names it then. Default: that of the job's snapshots")
	flags.BoolVar(&o.DryRun, "dry-run", false, "read everything, write nothing")
	flags.StringVar(&memory, "memory", "256MiB", "`size` of what is held in memory of each table while it is sorted; the rest lies in the job's dir")
	addSet(cmd, &set)
	return cmd
}

// writeImported says what was taken over, what starts over and what was left out.
func writeImported(w io.Writer, r *job.Imported) error {
	made := r.Snapshot
	if made == "" {
		made = "none: a dry run"
	}
	rows := [][]string{
		{"checkpoint", r.From},
		{"snapshot", made},
		{"rows", fmt.Sprintf("%s of %s entries in %.1f s", ui.Count(r.Rows), ui.Count(r.Entries), r.Seconds)},
	}
	for _, t := range r.Tables {
		text := ui.Count(t.Rows) + " rows"
		if len(t.From) > 0 {
			text += " from " + parts(t.From)
		}
		if t.Twice > 0 {
			text += fmt.Sprintf("; %s entries had the id of another one that is newer", ui.Count(t.Twice))
		}
		rows = append(rows, []string{"table " + t.Name, text})
		for _, c := range t.Restarted {
			rows = append(rows, []string{"  starts over", fmt.Sprintf("%s rows, %s", ui.Count(c.Rows), c.What)})
		}
	}
	for k, c := range r.Skipped {
		if k == 12 {
			rows = append(rows, []string{"left out", fmt.Sprintf("for %d more reasons, see --json", len(r.Skipped)-k)})
			break
		}
		rows = append(rows, []string{"left out", fmt.Sprintf("%s entries: %s", ui.Count(c.Rows), c.What)})
	}
	for _, f := range r.Filters {
		rows = append(rows, []string{"left out", fmt.Sprintf("filter %s of %d splits: its %s counters are hashes and belong to no id", f.Name, f.Splits, ui.Count(int64(f.Counters)))})
	}
	if n := len(r.Others); n > 0 {
		rows = append(rows, []string{"left out", fmt.Sprintf("%d other files, such as %s", n, r.Others[0])})
	}
	if len(r.Dense) > 0 {
		rows = append(rows, []string{"dense", fmt.Sprintf("%s; their optimizers start over", strings.Join(r.Dense, ", "))})
	}
	if len(r.DenseInitial) > 0 {
		rows = append(rows, []string{"dense initial", strings.Join(r.DenseInitial, ", ")})
	}
	return ui.Table(w, rows)
}

// parts lists tables, the first few by name.
func parts(from []job.Counted) string {
	var names []string
	for k, c := range from {
		if k == 3 && len(from) > 4 {
			names = append(names, fmt.Sprintf("%d more", len(from)-k))
			break
		}
		names = append(names, c.What)
	}
	return strings.Join(names, ", ")
}

func (a *App) exportCommand(out *outcome) *cobra.Command {
	var (
		o          job.ExportOptions
		names, set []string
	)
	cmd := &cobra.Command{
		Use:   "export SNAPSHOT|JOB.yaml --to DIR",
		Short: "Write a snapshot's tables as a checkpoint of ByteDance's Monolith",
		Long: `Write the embedding tables of a snapshot as a checkpoint of ByteDance's Monolith (bytedance/monolith): DIR/model.ckpt-STEP.assets, which its
training restores where DIR has no other checkpoint. Dense tensors are written beside it as TensorFlow's variables, under their own names.

SNAPSHOT is a snapshot's folder, or a job's dir for the newest one in it; JOB.yaml stands for its dir. Rows have their weights, times and, where
Monolith has the rule, their optimizers' state. Importing what was exported gives the same rows.`,
		Example: `  monolith snapshot export runs/click --to model_dir
  monolith snapshot export job.yaml --to model_dir --multi TABLES --servers 2
  monolith snapshot export runs/click --to served --serving --name users=u_0`,
		Args: exactly("a snapshot or a job file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "snapshot export"
			if o.To == "" {
				return &usageError{message: "--to is missing: the folder to write to"}
			}
			for _, n := range []struct {
				flag string
				n    int64
			}{{"step", o.Step}, {"shards", int64(o.Shards)}, {"servers", int64(o.Servers)}} {
				if n.n < 0 {
					return &usageError{message: fmt.Sprintf("--%s is %d, must not be negative", n.flag, n.n)}
				}
			}
			o.Names = map[string]string{}
			for _, text := range names {
				table, name, ok := strings.Cut(text, "=")
				if !ok || table == "" || name == "" {
					return &usageError{message: fmt.Sprintf("--name is %q, wants table=name", text)}
				}
				o.Names[table] = name
			}
			if err := errSet(args[0], set); err != nil {
				return err
			}
			o.Snapshot = args[0]
			if isJobFile(args[0]) {
				cfg, err := a.loadUntrained(args[0], set)
				if err != nil {
					return err
				}
				o.Snapshot = cfg.Dir
			}
			if a.Ops.Export == nil {
				return errMissing
			}
			r, err := a.Ops.Export(cmd.Context(), o)
			if r != nil {
				out.result = r
				out.text = func(w io.Writer) error { return writeExported(w, r) }
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.To, "to", "", "`folder` of the model, in which there is no such checkpoint")
	flags.Int64Var(&o.Step, "step", 0, "`number` of the checkpoint. Default: that of the snapshot")
	flags.StringArrayVar(&names, "name", nil, "`table=name`: what a table is called there; may be given more than once. Default: MonolithHashTable_TABLE, or TABLE with --multi")
	flags.StringVar(&o.Multi, "multi", "", "write all tables to one file of this `name`, compressed, as a native multi hash table does")
	flags.IntVar(&o.Shards, "shards", 0, "how `many` files each is written to. Default: one for each million rows, at most four")
	flags.IntVar(&o.Servers, "servers", 0, "how `many` parameter servers the model has there: each has files of its own, with _0 and so on behind their name")
	flags.BoolVar(&o.Serving, "serving", false, "leave out the optimizers' state, times and counts")
	addSet(cmd, &set)
	return cmd
}

// writeExported says what was written.
func writeExported(w io.Writer, r *job.Exported) error {
	rows := [][]string{
		{"snapshot", r.Snapshot},
		{"checkpoint", r.Assets},
		{"rows", fmt.Sprintf("%s in %.1f s, %s", ui.Count(r.Rows), r.Seconds, ui.Bytes(r.Bytes))},
	}
	for _, d := range r.Damaged {
		rows = append(rows, []string{"damaged", d})
	}
	for _, t := range r.Tables {
		files := "1 file"
		if t.Files != 1 {
			files = fmt.Sprintf("%d files", t.Files)
		}
		rows = append(rows, []string{"table " + t.Name, fmt.Sprintf("%s rows as %s, %s", ui.Count(t.Rows), t.As, files)})
		for _, why := range t.Restarted {
			rows = append(rows, []string{"  starts over", why})
		}
	}
	if len(r.Dense) > 0 {
		rows = append(rows, []string{"dense", strings.Join(r.Dense, ", ")})
	}
	return ui.Table(w, rows)
}
