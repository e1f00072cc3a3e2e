package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline/fid"
)

// RowOps are the functions behind the commands below `monolith ps`.
type RowOps struct {
	// LookUp returns rows of running shards, LookUpStored those of a snapshot.
	LookUp       func(ctx context.Context, cfg *job.Config, o job.LookUpOptions) (*job.LookedUp, error)
	LookUpStored func(ctx context.Context, path, table string, ids []int64) (*job.LookedUp, error)
	// IDs returns the ids that a job makes of values, IDsStored those of a snapshot's model.
	IDs       func(cfg *job.Config, o job.ValueOptions) ([]int64, error)
	IDsStored func(ctx context.Context, path string, o job.ValueOptions) ([]int64, error)
	// Edit edits rows of running shards.
	Edit func(ctx context.Context, cfg *job.Config, o job.EditOptions) (*job.Edited, error)
	// Slots describes the rows of running shards.
	Slots func(ctx context.Context, cfg *job.Config, how job.Asking) (*job.RunningSlots, error)
	// Changes follows the rows of running shards.
	Changes func(ctx context.Context, cfg *job.Config, o job.ChangesOptions) error
	// Push gives them to a server of predictions.
	Push func(ctx context.Context, cfg *job.Config, o job.PushOptions) (*job.Pushed, error)
}

// idsOf reads ids: numbers, or SLOT:SIGNATURE.
func idsOf(args []string) ([]int64, error) {
	out := make([]int64, len(args))
	for i, arg := range args {
		slot, signature, pair := strings.Cut(arg, ":")
		if pair {
			s, err := strconv.Atoi(slot)
			sig, sigErr := strconv.ParseUint(signature, 10, 64)
			id, idErr := fid.New(s, sig)
			if err != nil || sigErr != nil || idErr != nil {
				return nil, &usageError{message: fmt.Sprintf("%q is no id: a number, or SLOT:SIGNATURE", arg)}
			}
			out[i] = int64(id)
			continue
		}
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil {
			u, uErr := strconv.ParseUint(arg, 0, 64)
			if uErr != nil {
				return nil, &usageError{message: fmt.Sprintf("%q is no id: a number, or SLOT:SIGNATURE", arg)}
			}
			id = int64(u)
		}
		out[i] = id
	}
	return out, nil
}

// valueFlags name rows by values of a feature in place of ids.
type valueFlags struct {
	feature string
	values  []string
}

// add adds the flags to a command that takes ids.
func (v *valueFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&v.feature, "feature", "", "`name` of the feature that --value is of, in place of an ID")
	cmd.Flags().StringArrayVar(&v.values, "value", nil, "`text` of a value as the feature's column has it, in place of an ID")
}

// args wants the named arguments, the last of which is an id that a value may stand for.
func (v *valueFlags) args(most int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		n := len(names)
		switch given := v.feature != ""; {
		case given != (len(v.values) > 0):
			return &usageError{message: "--feature NAME and --value TEXT go together: --feature title --value 'Toy Story'"}
		case given && len(args) >= n:
			return &usageError{message: fmt.Sprintf("%s is an ID beside --feature %s; give one of the two", args[n-1], v.feature)}
		case given:
			names = names[:n-1]
		}
		if most > 0 && len(args) > most || len(args) < len(names) {
			return exactly(names...)(cmd, args)
		}
		return nil
	}
}

// ids are those of the arguments, or of the flags' values. cfg is nil for a path.
func (a *App) ids(ctx context.Context, v *valueFlags, cfg *job.Config, args []string) ([]int64, error) {
	o := job.ValueOptions{Feature: v.feature, Values: v.values, Table: args[1]}
	switch {
	case v.feature == "":
		return idsOf(args[2:])
	case a.Ops.PS.IDs == nil || a.Ops.PS.IDsStored == nil:
		return nil, errMissing
	case cfg != nil:
		return a.Ops.PS.IDs(cfg, o)
	}
	return a.Ops.PS.IDsStored(ctx, args[0], o)
}

// atLeast wants the named arguments, and allows more.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return &usageError{message: fmt.Sprintf("%s needs %s: monolith ps %s", cmd.Name(), names[len(args)], cmd.Use)}
		}
		return nil
	}
}

func (a *App) psLookupCommand(out *outcome) *cobra.Command {
	var (
		set  []string
		wait time.Duration
		by   valueFlags
	)
	cmd := &cobra.Command{
		Use:   "lookup JOB.yaml|DIR|SNAPSHOT TABLE [ID...]",
		Short: "Show whole rows of running shards or of a snapshot",
		Long: `Show the rows of some ids with all that belongs to them: weights of all segments, the state of their optimizers, in the order in which each rule
keeps it, when the row was updated last and how often its id occurred. Of a job file the running shards at ps.addresses are asked, of a folder the newest
good snapshot in it is read. Nothing is changed.

An ID is the number that the model knows a value by, in decimal, hexadecimal with 0x, or as SLOT:SIGNATURE. In place of IDs you can give a feature's
values, as its column has them: --feature NAME --value TEXT. Repeat --value for more. The exit code is 4 when an id has no row.`,
		Example: `  monolith ps lookup job.yaml item 844424930131970
  monolith ps lookup job.yaml item 3:17 3:18 --json
  monolith ps lookup runs/click item 3:17
  monolith ps lookup runs/click item --feature title --value 'Toy Story'`,
		Args: by.args(0, "a job file or a folder", "a table", "an id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "ps lookup"
			if a.Ops.PS.LookUp == nil {
				return errMissing
			}
			var (
				found *job.LookedUp
				ids   []int64
			)
			if isJobFile(args[0]) {
				cfg, err := a.load(args[0], set)
				if err != nil {
					return err
				}
				if ids, err = a.ids(cmd.Context(), &by, cfg, args); err != nil {
					return err
				}
				how, err := a.asking(wait)
				if err != nil {
					return err
				}
				found, err = a.Ops.PS.LookUp(cmd.Context(), cfg, job.LookUpOptions{Asking: how, Table: args[1], IDs: ids})
				if err != nil {
					return err
				}
			} else if err := errSet(args[0], set); err != nil {
				return err
			} else if ids, err = a.ids(cmd.Context(), &by, nil, args); err != nil {
				return err
			} else if found, err = a.Ops.PS.LookUpStored(cmd.Context(), args[0], args[1], ids); err != nil {
				return err
			}
			out.result = found
			out.text = func(w io.Writer) error { return writeEntry(w, found) }
			if len(found.Missing) > 0 {
				return &answerError{fmt.Sprintf("no row for %d of %s", len(found.Missing), plural(len(ids), "id"))}
			}
			return nil
		},
	}
	by.add(cmd)
	addSet(cmd, &set)
	addWait(cmd, &wait)
	return cmd
}

func writeEntry(w io.Writer, found *job.LookedUp) error {
	if err := writeDamaged(w, found.Damaged); err != nil {
		return err
	}
	for i, e := range found.Entries {
		updated := "-"
		if e.Updated != nil {
			updated = e.Updated.Format(time.RFC3339Nano)
		}
		rows := [][]string{
			{"id", fmt.Sprintf("%d (slot %d)", e.ID, e.Slot)},
			{"occurrences", strconv.FormatUint(e.Occurrences, 10)},
			{"updated", updated},
		}
		at := 0
		for _, s := range e.Segments {
			rows = append(rows, []string{s.Name, fmt.Sprint(e.Weights[at : at+s.Dim])})
			if at += s.Dim; len(s.State) > 0 {
				rows = append(rows, []string{"  " + s.Optimizer, fmt.Sprint(s.State)})
			}
		}
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := pairs(w, rows...); err != nil {
			return err
		}
	}
	return nil
}

// editFlags are those of the commands that edit rows.
type editFlags struct {
	set           []string
	from, request string
	dryRun        bool
	wait          time.Duration
}

func (f *editFlags) add(cmd *cobra.Command, from string) {
	addSet(cmd, &f.set)
	addWait(cmd, &f.wait)
	cmd.Flags().StringVar(&f.from, "from", "", from)
	cmd.Flags().StringVar(&f.request, "request", "", "`name` of the request; under the name of one that was cut off that one is continued (default: a new one, which is shown)")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "look which ids have rows, and change nothing")
}

// edit edits rows as flags and arguments say.
func (a *App) edit(ctx context.Context, out *outcome, f *editFlags, op param.Op, args []string) (err error) {
	if a.Ops.PS.Edit == nil {
		return errMissing
	}
	how, err := a.asking(f.wait)
	if err != nil {
		return err
	}
	o := job.EditOptions{Asking: how, Op: op, Table: args[1], Request: f.request, DryRun: f.dryRun}
	o.Begun = func(request string) {
		if f.request == "" && !a.quiet {
			a.notice(fmt.Sprintf("request %s: if it is cut off, repeat it with --request %[1]s", request))
		}
	}
	if o.IDs, err = idsOf(args[2:]); err != nil {
		return err
	}
	switch {
	case f.from == "" && len(o.IDs) == 0:
		return &usageError{message: "which rows? name ids, or a file with --from"}
	case f.from != "" && len(o.IDs) > 0:
		return &usageError{message: "ids are named both as arguments and with --from"}
	case f.from == "-":
		o.From = a.Stdin
	case isDir(f.from):
		if o.Parquet, o.Arrow, err = columnsIn(f.from); err != nil {
			return err
		}
	case filepath.Ext(f.from) == ".parquet":
		o.Parquet = []string{f.from}
	case slices.Contains(arrowFiles, filepath.Ext(f.from)):
		o.Arrow = []string{f.from}
	case f.from != "":
		file, err := os.Open(f.from)
		if err != nil {
			return &usageError{message: fmt.Sprintf("--from: %v", err)}
		}
		defer func() { _ = file.Close() }()
		o.From = file
	}
	cfg, err := a.load(args[0], f.set)
	if err != nil {
		return err
	}
	edited, err := a.Ops.PS.Edit(ctx, cfg, o)
	if edited != nil {
		out.result = edited
		out.text = func(w io.Writer) error { return writeEdited(w, edited) }
	}
	return err
}

// arrowFiles are the extensions of Arrow IPC files.
var arrowFiles = []string{".arrow", ".feather"}

// columnsIn are patterns of the files of columns in a folder, of one format.
func columnsIn(dir string) (parquet, arrow []string, err error) {
	for _, extension := range arrowFiles {
		pattern := filepath.Join(dir, "*"+extension)
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			arrow = append(arrow, pattern)
		}
	}
	pattern := filepath.Join(dir, "*.parquet")
	if len(arrow) == 0 {
		return []string{pattern}, nil, nil
	}
	if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
		return nil, nil, &usageError{message: fmt.Sprintf("--from: %s has files of Parquet and of Arrow; name one of them", dir)}
	}
	return nil, arrow, nil
}

func writeEdited(w io.Writer, e *job.Edited) error {
	what, created := "edited", "had no row before"
	n := e.Edited
	if e.DryRun {
		what, created, n = "would be edited", "have no row", e.IDs-e.Before
	}
	rows := [][]string{
		{"table", e.Table},
		{"operation", e.Operation},
		{"request", e.Request},
		{what, ui.Count(n)},
		{created, ui.Count(n - e.Existed)},
	}
	if e.Before > 0 {
		rows = append(rows, []string{"edited before", ui.Count(e.Before)})
	}
	if !e.Durable && !e.DryRun && e.Edited > 0 {
		rows = append(rows, []string{"durable", "from the next snapshot on (monolith snapshot take)"})
	}
	return pairs(w, rows...)
}

const editsOnce = `The request has a name, and what it names is edited once however often it is made under it: who is cut off makes it again. A request is shared
out in pieces of 1024 ids, each of which is applied on all shards or on none. It needs the right to train (ps.allow).`

func (a *App) psAssignCommand(out *outcome) *cobra.Command {
	var f editFlags
	add, state := false, false
	cmd := &cobra.Command{
		Use:   "assign JOB.yaml TABLE --from FILE",
		Short: "Set weights of rows of running shards, or add to them",
		Long: `Set the weights of rows, or with --add add to them, while training continues. An id without a row gets one, whatever occurrences the job's retention
asks for. The state of optimizers stays as it is, or with --state is set too.

FILE is one of

  *.parquet, *.arrow, *.feather,   the columns that monolith export --format parquet or arrow writes: fid, weights_SEGMENT for each segment of the table, and
  or a folder of one of them       with --state state_SEGMENT for each whose optimizer keeps any. Other columns are not read.
  anything else, - for stdin       a JSON object a line, {"id": 17, "weights": [0.1, -0.2]}, with the weights of all segments one after the other, and with
                                   --state "segments": [{"name": "vec", "optimizer": "adagrad", "state": [0.4, 0.1]}], as monolith ps changes --weights writes them

All of it is read before anything is edited: a row that does not fit the table, a number that is not finite, a state that the rule cannot be in or an id that is
there twice is named, and nothing is changed. It takes 4 bytes of memory for each number.

` + editsOnce,
		Example: `  monolith ps assign job.yaml item --from vectors.jsonl --dry-run
  monolith ps assign job.yaml item --from vectors.jsonl --request new-items-0412
  monolith ps assign job.yaml item --from steps.jsonl --add
  monolith ps assign job.yaml item --from rows/12/item --state`,
		Args: exactly("a job file", "a table"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "ps assign"
			op := param.Assign
			switch {
			case add && state:
				return &usageError{message: "--add adds to weights, and states cannot be added up; leave out --add or --state"}
			case add:
				op = param.AssignAdd
			case state:
				op = param.AssignState
			}
			return a.edit(cmd.Context(), out, &f, op, args)
		},
	}
	f.add(cmd, "`file` of ids and weights: Parquet, Arrow, a folder of such, or a JSON object a line; - is standard input")
	cmd.Flags().BoolVar(&state, "state", false, "set the state of the optimizers too")
	cmd.Flags().BoolVar(&add, "add", false, "add to the weights in place of setting them")
	return cmd
}

func (a *App) psReinitializeCommand(out *outcome) *cobra.Command {
	var f editFlags
	cmd := &cobra.Command{
		Use:   "reinitialize JOB.yaml TABLE ID...",
		Short: "Give rows of running shards their initial values",
		Long: `Make rows what they were when they came into being, weights and optimizer state, while training continues. An id without a row gets one.

` + editsOnce,
		Example: `  monolith ps reinitialize job.yaml item 3:17 3:18
  monolith ps reinitialize job.yaml item --from ids.jsonl --request forget-0412`,
		Args: atLeast("a job file", "a table"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "ps reinitialize"
			return a.edit(cmd.Context(), out, &f, param.Reinitialize, args)
		},
	}
	f.add(cmd, "`file` of ids: Parquet or Arrow with a column fid, a folder of such, or a JSON object a line; - is standard input")
	return cmd
}

func (a *App) psStatsCommand(out *outcome) *cobra.Command {
	var (
		set  []string
		wait time.Duration
	)
	cmd := &cobra.Command{
		Use:   "stats JOB.yaml",
		Short: "Describe the rows of each slot of running shards",
		Long: `Describe what the running shards at ps.addresses have of each slot of each table, as monolith inspect --slots does of a snapshot: rows and their
share, memory, occurrences, mean norm, ages, and how many ids wait for a row; and of each shard its rows and the memory of its tables, with room for more rows and the
index, and of its dense parameters. All rows are read once, piece by piece and as slowly as a snapshot is written,
while training continues; rows that come or go meanwhile count or do not. Shards that do not answer are left out; the exit code is 3 then.`,
		Example: `  monolith ps stats job.yaml
  monolith ps stats job.yaml --json | jq '.result.slots[] | {slot, rows}'`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "ps stats"
			if a.Ops.PS.Slots == nil {
				return errMissing
			}
			cfg, err := a.load(args[0], set)
			if err != nil {
				return err
			}
			how, err := a.asking(wait)
			if err != nil {
				return err
			}
			slots, err := a.Ops.PS.Slots(cmd.Context(), cfg, how)
			if slots == nil {
				return err
			}
			out.result = slots
			out.text = func(w io.Writer) error {
				head := [][]string{{"job", slots.Job}, {"rows", ui.Count(slots.Rows)}}
				if slots.Newest != nil {
					head = append(head, []string{"newest time", slots.Newest.Format(time.RFC3339)})
				}
				if err := pairs(w, head...); err != nil {
					return err
				}
				if err := writeSlotTable(w, slots.Slots, slots.Newest != nil); err != nil {
					return err
				}
				return writeShardTable(w, slots.Shards)
			}
			return err
		},
	}
	addSet(cmd, &set)
	addWait(cmd, &wait)
	return cmd
}

// writeShardTable says what each shard holds.
func writeShardTable(w io.Writer, shards []job.RunningShard) error {
	rows := [][]string{{"SHARD", "ADDRESS", "ROWS", "MEMORY OF TABLES", "OF DENSE"}}
	for i, s := range shards {
		row := []string{strconv.Itoa(i), s.Address, ui.Count(s.Rows), ui.Bytes(s.Bytes), ui.Bytes(s.Dense)}
		if s.Failed != "" {
			row = []string{strconv.Itoa(i), s.Address, "-", "-", "-"}
		}
		rows = append(rows, row)
	}
	return block(w, rows, 0, 2, 3, 4)
}

func (a *App) psChangesCommand(out *outcome) *cobra.Command {
	var set []string
	o := job.ChangesOptions{}
	cmd := &cobra.Command{
		Use:   "changes JOB.yaml --consumer NAME",
		Short: "Write which rows of running shards have changed or gone",
		Long: `Write, a JSON object a line, which rows have changed and which ids have no row any more since the consumer of that name was told last. From its first
question on each shard keeps that for it, a bit for each row, and what was written is acknowledged with the next question: after any death every change is
written at least once.

A line has shard, table, id, slot, occurrences and updated, with --weights all of the row, as monolith ps lookup shows it; "removed": true where the row has gone.
"whole": true ends what a shard had to say: everything is there that was applied before it began. Lines with "all": true bring all rows of a shard, because the
consumer is new, has not come for ps.consumer_idle, or the shard was started again or has gone back to a snapshot: rows of that shard that are not
among them are no more. So do all shards after monolith ps scale: then rows lie on other shards. Rows that have expired are told when their memory is freed.

Dense parameters are not among them. It needs the right to read (ps.allow).`,
		Example: `  monolith ps changes job.yaml --consumer sync
  monolith ps changes job.yaml --consumer sync --weights --follow --every 5s
  monolith ps changes job.yaml --consumer sync --leave`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "ps changes"
			switch {
			case a.Ops.PS.Changes == nil:
				return errMissing
			case o.Consumer == "":
				return &usageError{message: "whose changes? --consumer NAME"}
			case o.Every <= 0:
				return &usageError{message: fmt.Sprintf("--every is %v, must be above 0", o.Every)}
			}
			cfg, err := a.load(args[0], set)
			if err != nil {
				return err
			}
			w := bufio.NewWriter(a.Stdout)
			enc := json.NewEncoder(w)
			o.Logger = a.logger.Load()
			o.Give = func(c *job.Change) error { return enc.Encode(c) }
			o.Flush = w.Flush
			return a.Ops.PS.Changes(cmd.Context(), cfg, o)
		},
	}
	addSet(cmd, &set)
	cmd.Flags().StringVar(&o.Consumer, "consumer", "", "`name` under which the shards keep what has changed")
	cmd.Flags().BoolVar(&o.Weights, "weights", false, "write whole rows")
	cmd.Flags().BoolVar(&o.Follow, "follow", false, "continue with what changes from now on, until a signal")
	cmd.Flags().DurationVar(&o.Every, "every", 10*time.Second, "ask again after this `time` where nothing has changed")
	cmd.Flags().BoolVar(&o.Leave, "leave", false, "end the registration in place of writing anything")
	return cmd
}
