package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline/position"
)

// ModelOps are the functions behind `monolith model`.
type ModelOps struct {
	// List lists the models that a job can name, with figures for so many features.
	List func(features int) ([]job.ModelEntry, error)
	// Measure measures one of them.
	Measure func(ctx context.Context, model string, features int, o bench.Options) (bench.Result, error)
	// Describe describes the model of a job file, DescribeStored that of a snapshot.
	Describe       func(cfg *job.Config, entries float64) (*job.ModelInfo, error)
	DescribeStored func(ctx context.Context, path string, entries float64) (*job.ModelInfo, error)
	// Insight says what the features and layers of a job's model do.
	Insight func(ctx context.Context, cfg *job.Config, o job.InsightOptions) (*job.InsightResult, error)
	// Nearest finds the rows of a snapshot that are like one of them.
	Nearest func(ctx context.Context, path string, o job.NearestOptions) (*job.NearestRows, error)
	// Diff compares two snapshots.
	Diff func(ctx context.Context, a, b string) (*job.SnapshotDiff, error)
}

// modelCommand is the group of commands for models.
func (a *App) modelCommand(out *outcome) *cobra.Command {
	root := &cobra.Command{
		Use:   "model COMMAND",
		Short: "List, describe, compare models; what features do; find like rows",
		Long: `List the models that a job can name. Describe the model of a job or of a snapshot: operators, parameters, cost. Show what each feature does to what is predicted. Show what differs between two snapshots of a model. Find the rows of a snapshot
that are like another. Single rows are shown by monolith ps lookup, slots by monolith inspect --slots.`,
		Example: `  monolith model list
  monolith model describe job.yaml
  monolith model insight job.yaml
  monolith model diff runs/click/snapshots/snap-00000011 runs/click
  monolith model nearest runs/click embedding 2:17`,
		Args: noOtherCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(a.modelListCommand(out), a.modelDescribeCommand(out), a.modelInsightCommand(out), a.modelDiffCommand(out), a.modelNearestCommand(out))
	return root
}

func (a *App) modelListCommand(out *outcome) *cobra.Command {
	features, measure := 10, false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the models that a job can name",
		Long: `List what a job can have under model, with what each costs by its defaults: dense parameters, numbers in the row of an id, and the additions and
multiplications of a prediction, of --features sparse features with an id each. HEADS is any where a model takes any number of heads.

--bench measures each on this machine beside that, half a minute or more in all: EXAMPLES/S is how many examples a core takes forward and back in a second of its time, 512 at a time,
without lookups and updates of rows and weights; CONTROL is the second measurement to the first, so that differences as small mean nothing.`,
		Example: `  monolith model list
  monolith model list --features 39 --bench
  monolith model list --json | jq -r '.result[] | select(.heads) | .name'`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			out.command = "model list"
			if features < 2 {
				return &usageError{message: fmt.Sprintf("--features is %d, must be at least 2, as pairs of them meet in some models", features)}
			}
			if a.Ops.Models.List == nil || measure && a.Ops.Models.Measure == nil {
				return errMissing
			}
			models, err := a.Ops.Models.List(features)
			if err != nil {
				return err
			}
			if measure {
				if err := a.measure(cmd.Context(), models, features); err != nil {
					return err
				}
			}
			out.result = models
			out.text = func(w io.Writer) error {
				rows := [][]string{{"MODEL", "HEADS", "PARAMETERS", "IN A ROW", "COST", ""}}
				if measure {
					rows[0] = slices.Insert(rows[0], 5, "EXAMPLES/S", "CONTROL")
				}
				for _, m := range models {
					heads, figures := "1", []string{ui.Count(m.Parameters), strconv.Itoa(m.RowDim), ui.Count(int64(m.FLOPs))}
					if m.Heads {
						heads = "any"
					}
					if m.RowDim == 0 {
						heads, figures = "any", []string{"", "", ""}
					}
					switch {
					case m.ExamplesPerSecond > 0:
						figures = append(figures, ui.Count(int64(m.ExamplesPerSecond)), strconv.FormatFloat(m.Control, 'f', 2, 64))
					case measure:
						figures = append(figures, "", "")
					}
					rows = append(rows, slices.Concat([]string{m.Name, heads}, figures, []string{m.Doc}))
				}
				if measure {
					if err := block(w, rows, 2, 3, 4, 5, 6); err != nil {
						return err
					}
					_, err := fmt.Fprintf(w, "\non %s\n", bench.Machine())
					return err
				}
				return block(w, rows, 2, 3, 4)
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&features, "features", features, "how many sparse `features` the figures are for")
	cmd.Flags().BoolVar(&measure, "bench", false, "measure how many examples each model takes in a second")
	return cmd
}

// measure fills in the rates of models; those without figures have none.
func (a *App) measure(ctx context.Context, models []job.ModelEntry, features int) error {
	defer a.screen.SetLine("")
	for i := range models {
		m := &models[i]
		if m.RowDim == 0 {
			continue
		}
		a.screen.SetLine(fmt.Sprintf("measuring %s, %d of %d", m.Name, i+1, len(models)))
		r, err := a.Ops.Models.Measure(ctx, m.Name, features, bench.Options{})
		if err != nil {
			return err
		}
		m.ExamplesPerSecond, m.Control = r.Ours, r.Control
	}
	return nil
}

func (a *App) modelDescribeCommand(out *outcome) *cobra.Command {
	var (
		set     []string
		entries float64
		dot     bool
	)
	cmd := &cobra.Command{
		Use:        "describe JOB.yaml|DIR|SNAPSHOT",
		SuggestFor: []string{"graph", "summary", "show"},
		Short:      "Show the operators, the parameters and the cost of a model",
		Long: `Show what a model is: its operators with the shapes of their values and the additions and multiplications that each makes for one example, its dense
tensors and tables with how they are initialised and updated, its heads. Of a job file the model is made and nothing is read; of a folder the newest good
snapshot in it is described, with the number of its rows.

How many ids an example has of each sparse feature is --entries; what a whole batch shares is not counted. Operators that run as one take less
together than their sum: the total says what is run. Lookups of rows are not in it. The memory is that of the values between operators, which share
buffers where they are not needed at the same time, and in training of their gradients; what operators keep for themselves is not in it.

--dot draws the operators for Graphviz instead.`,
		Example: `  monolith model describe job.yaml
  monolith model describe job.yaml --dot | dot -Tsvg > model.svg
  monolith model describe job.yaml --entries 8
  monolith model describe runs/click --json | jq .result.parameters`,
		Args: exactly("a job file or a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "model describe"
			if entries <= 0 {
				return &usageError{message: fmt.Sprintf("--entries is %g, must be above 0", entries)}
			}
			if err := errSet(args[0], set); err != nil {
				return err
			}
			if a.Ops.Models.Describe == nil {
				return errMissing
			}
			var info *job.ModelInfo
			if isJobFile(args[0]) {
				cfg, err := a.load(args[0], set)
				if err != nil {
					return err
				}
				if info, err = a.Ops.Models.Describe(cfg, entries); err != nil {
					return err
				}
			} else {
				var err error
				if info, err = a.Ops.Models.DescribeStored(cmd.Context(), args[0], entries); err != nil {
					return err
				}
			}
			out.result = info
			out.text = func(w io.Writer) error { return writeModel(w, info) }
			if dot {
				out.text = func(w io.Writer) error {
					_, err := io.WriteString(w, info.DOT)
					return err
				}
			}
			return nil
		},
	}
	addSet(cmd, &set)
	cmd.Flags().BoolVar(&dot, "dot", false, "draw the operators in the language of Graphviz")
	cmd.Flags().Float64Var(&entries, "entries", 1, "how many `ids` an example has of each sparse feature")
	return cmd
}

func writeModel(w io.Writer, m *job.ModelInfo) error {
	var head [][]string
	if m.Snapshot != "" {
		head = append(head, []string{"snapshot", m.Snapshot})
	}
	for _, d := range m.Damaged {
		head = append(head, []string{"damaged", d})
	}
	if m.Model != "" {
		head = append(head, []string{"model", m.Model})
	}
	head = append(head, []string{"parameters", ui.Count(m.Parameters) + " dense"})
	if m.Snapshot != "" {
		head[len(head)-1][1] += ", " + ui.Count(m.RowParameters) + " in rows"
	}
	flops := ui.Count(int64(m.FLOPs)) + " additions and multiplications an example"
	if m.Entries != 1 {
		flops += fmt.Sprintf(", with %g ids of each sparse feature", m.Entries)
	}
	memory := fmt.Sprintf("%s to predict and %s to train %d examples at a time, beside the parameters", ui.Bytes(m.PredictBytes), ui.Bytes(m.TrainBytes), m.MemoryBatch)
	if err := pairs(w, append(head, []string{"cost", flops}, []string{"memory", memory})...); err != nil {
		return err
	}
	rows := [][]string{{"OPERATOR", "", "SHAPE", "COST"}}
	for _, o := range m.Operators {
		of := make([]string, len(o.Inputs))
		for i, in := range o.Inputs {
			of[i] = "%" + strconv.Itoa(in)
		}
		rows = append(rows, []string{"%" + strconv.Itoa(o.ID), clip(o.Operator+"("+strings.Join(of, ", ")+")", 90), o.Shape, ui.Count(int64(o.FLOPs))})
	}
	if err := block(w, rows, 3); err != nil {
		return err
	}
	if len(m.Tensors) > 0 {
		rows = [][]string{{"TENSOR", "SHAPE", "PARAMETERS", "INIT", "OPTIMIZER"}}
		for _, t := range m.Tensors {
			rows = append(rows, []string{t.Name, fmt.Sprint(t.Shape), ui.Count(t.Parameters), t.Init, t.Optimizer})
		}
		if err := block(w, rows, 2); err != nil {
			return err
		}
	}
	if len(m.Tables) > 0 {
		rows = [][]string{{"TABLE", "SEGMENT", "DIM", "INIT", "OPTIMIZER", "ROWS"}}
		for _, t := range m.Tables {
			for _, s := range t.Segments {
				rows = append(rows, []string{t.Name, s.Name, strconv.Itoa(s.Dim), s.Init, s.Optimizer, ui.Count(t.Rows)})
			}
		}
		if m.Snapshot == "" { // nothing has rows yet
			for i := range rows {
				rows[i] = slices.Delete(rows[i], 5, 6)
			}
		}
		if err := block(w, rows, 2, 5); err != nil {
			return err
		}
	}
	rows = [][]string{{"HEAD", "LOSS", "WEIGHT"}}
	for _, h := range m.Heads {
		rows = append(rows, []string{h.Name, h.Loss, strconv.FormatFloat(float64(h.Weight), 'g', -1, 32)})
	}
	return block(w, rows, 2)
}

func (a *App) modelNearestCommand(out *outcome) *cobra.Command {
	var (
		o  job.NearestOptions
		by valueFlags
	)
	cmd := &cobra.Command{
		Use:        "nearest DIR|SNAPSHOT TABLE [ID]",
		SuggestFor: []string{"similar", "neighbors", "neighbours"},
		Short:      "Find the rows that are most like another",
		Long: `Find the rows of a table whose vectors have the largest cosine with that of one of them: the items that a model has learnt to be alike. Rows of the same
slot are compared, or with --all-slots those of all slots that share the table, by one segment of their weights: the widest, or --segment. The newest good
snapshot of a folder is read; rows whose vector is zero are left out. The table is read twice and not held.

The ID is the number that the model knows a value by, in decimal, hexadecimal with 0x, or as SLOT:SIGNATURE. In place of it you can give a feature's
value, as its column has it: --feature NAME --value TEXT.`,
		Example: `  monolith model nearest runs/click embedding 2:17
  monolith model nearest runs/click embedding 844424930131970 -k 50 --json
  monolith model nearest runs/click embedding \
    --feature title --value 'Toy Story'`,
		Args: by.args(3, "a folder", "a table", "an id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "model nearest"
			if o.K <= 0 {
				return &usageError{message: fmt.Sprintf("--number is %d, must be at least 1", o.K)}
			}
			if a.Ops.Models.Nearest == nil {
				return errMissing
			}
			ids, err := a.ids(cmd.Context(), &by, nil, args)
			if err != nil {
				return err
			}
			if len(ids) != 1 {
				return &usageError{message: fmt.Sprintf("--feature %s --value %q are %s; rows are compared with one", by.feature, by.values, plural(len(ids), "id"))}
			}
			o.Table, o.ID, o.Progress = args[1], ids[0], a.rowProgress()
			defer a.screen.SetLine("")
			found, err := a.Ops.Models.Nearest(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			out.result = found
			out.text = func(w io.Writer) error { return writeNearest(w, found) }
			return nil
		},
	}
	by.add(cmd)
	cmd.Flags().IntVarP(&o.K, "number", "k", 10, "how many `rows` are shown")
	cmd.Flags().StringVar(&o.Segment, "segment", "", "the `segment` that is compared (default: the widest)")
	cmd.Flags().BoolVar(&o.AllSlots, "all-slots", false, "compare with rows of other slots too")
	return cmd
}

func writeNearest(w io.Writer, n *job.NearestRows) error {
	head := [][]string{{"snapshot", n.Snapshot}}
	for _, d := range n.Damaged {
		head = append(head, []string{"damaged", d})
	}
	head = append(head, []string{"row", fmt.Sprintf("%d, slot %d of table %s", n.ID, n.Slot, n.Table)},
		[]string{"compared", fmt.Sprintf("%s by segment %s", plural(int(n.Compared), "row"), n.Segment)})
	if err := pairs(w, head...); err != nil {
		return err
	}
	if len(n.Rows) == 0 {
		_, err := fmt.Fprintln(w, "\nno other row has a vector to compare")
		return err
	}
	rows := [][]string{{"COSINE", "ID", "SLOT", "OCCURRENCES", "UPDATED"}}
	for _, r := range n.Rows {
		when := "-"
		if r.Updated != nil {
			when = r.Updated.Format(time.RFC3339)
		}
		rows = append(rows, []string{strconv.FormatFloat(r.Cosine, 'f', 4, 64), strconv.FormatInt(r.ID, 10), strconv.Itoa(r.Slot), ui.Count(int64(r.Occurrences)), when})
	}
	return block(w, rows, 0, 1, 2, 3)
}

func (a *App) modelDiffCommand(out *outcome) *cobra.Command {
	return &cobra.Command{
		Use:        "diff A B",
		SuggestFor: []string{"compare"},
		Short:      "Show what differs between two snapshots of a model",
		Long: `Compare two snapshots, each a snapshot's folder, or a job's dir or a folder for the newest good one in it, or the URL of one of these in a store: rows of each table that were
added, removed and changed, dense tensors that differ and by how much, splits that moved and the examples that were applied
meanwhile, and worker state.`,
		Example: `  monolith model diff runs/click/snapshots/snap-00000011 runs/click
  monolith model diff s3://models/click runs/click
  monolith model diff runs/monday runs/tuesday --json | jq .result.tables`,
		Args: exactly("a snapshot", "another snapshot"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "model diff"
			if a.Ops.Models.Diff == nil {
				return errMissing
			}
			d, err := a.Ops.Models.Diff(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			out.result = d
			out.text = func(w io.Writer) error { return writeDiff(w, d) }
			return nil
		},
	}
}

// writeDamaged lists newer snapshots that were passed over.
func writeDamaged(w io.Writer, damaged []string) error {
	for _, d := range damaged {
		if _, err := fmt.Fprintf(w, "damaged  %s\n", d); err != nil {
			return err
		}
	}
	return nil
}

func writeDiff(w io.Writer, d *job.SnapshotDiff) error {
	if _, err := fmt.Fprintf(w, "a  %s\nb  %s\n", d.A, d.B); err != nil {
		return err
	}
	if err := writeDamaged(w, d.Damaged); err != nil {
		return err
	}
	rows := [][]string{{"TABLE", "ADDED", "REMOVED", "CHANGED", "SAME"}}
	for _, t := range d.Tables {
		name := t.Name
		if t.Shape {
			name += " (other segments)"
		}
		rows = append(rows, []string{name, ui.Count(t.Added), ui.Count(t.Removed), ui.Count(t.Changed), ui.Count(t.Same)})
	}
	if err := block(w, rows, 1, 2, 3, 4); err != nil {
		return err
	}
	if len(d.Tensors) > 0 {
		rows = [][]string{{"DENSE TENSOR", "DIFFERENCE"}}
		for _, t := range d.Tensors {
			by := "of a weight, at most " + strconv.FormatFloat(t.Weights, 'g', 4, 64)
			switch {
			case t.Only != "":
				by = "only in " + t.Only
			case t.Weights == 0:
				by = "of the optimizer's state alone"
			}
			rows = append(rows, []string{t.Name, by})
		}
		if err := block(w, rows); err != nil {
			return err
		}
	}
	if len(d.Positions) > 0 {
		rows = [][]string{{"SOURCE", "SPLIT", "A", "B", "EXAMPLES"}}
		at := func(p *int64) string {
			if p == nil {
				return "-"
			}
			return position.Position(*p).Text()
		}
		for _, p := range d.Positions {
			rows = append(rows, []string{p.Source, p.Split, at(p.A), at(p.B), fmt.Sprintf("%+d", p.Examples)})
		}
		if err := block(w, rows, 2, 3, 4); err != nil {
			return err
		}
	}
	if len(d.State) > 0 {
		_, err := fmt.Fprintf(w, "\nworker state that differs: %s\n", strings.Join(d.State, ", "))
		return err
	}
	return nil
}
