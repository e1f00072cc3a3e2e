package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/peek"
	"github.com/monolith-go/monolith/job"
)

func (a *App) inspectCommand(out *outcome) *cobra.Command {
	var (
		set     []string
		rows    int
		timeout time.Duration
		slots   bool
	)
	cmd := &cobra.Command{
		Use:        "inspect SOURCE|SNAPSHOT",
		SuggestFor: []string{"show", "cat", "head"},
		Short:      "Look into a source or a snapshot",
		Long: `Show what the records of a source hold, or what a snapshot holds. Nothing is changed.

SOURCE is a job file (its source, as records and as the features the job makes of them), data files or a pattern (what they are
is seen in them: TFRecord, Parquet, csv, tsv, jsonl, libfm, also compressed with gzip), kafka://host:port/topic or synthetic.
Records come from all splits alike; of a source without a job file a parse section is proposed. With --json values are whole.

SNAPSHOT is a snapshot's folder, or a job's dir for the newest one in it; or the URL of one of them in a store (snapshot.upload), of which all files are read.

With --slots all rows of the snapshot are read, and each slot of each table is described: rows and their share of the table's, the memory that
they take, occurrences and the share of rows with one, the mean Euclidean norm of the weights, how long before the newest event time half of the
rows, nine tenths and all were updated (the first two up to 1/32 too large), and how many ids wait for a row. Limits of
retention are chosen by these. Rows are not held: memory goes by the number of slots.`,
		Example: `  monolith inspect job.yaml --rows 3
  monolith inspect 'data/part-*'
  monolith inspect kafka://localhost:9092/ratings --json | jq .result.columns
  monolith inspect kafka://localhost:9092/ratings --set source.kafka.tls={}
  monolith inspect runs/movielens/snapshots/snap-00000012
  monolith inspect s3://models/movielens
  monolith inspect runs/movielens --slots`,
		Args: exactly("a source or a snapshot"),
		RunE: func(cmd *cobra.Command, args []string) error {
			target := args[0]
			switch {
			case rows < 0:
				return &usageError{message: fmt.Sprintf("--rows is %d, must be at least 0", rows)}
			case timeout <= 0:
				return &usageError{message: fmt.Sprintf("--timeout is %v, must be above 0", timeout)}
			}
			snapshots := isDir(target) && !isEmptyOfSnapshots(target) || isStore(target)
			if slots {
				if !snapshots {
					return &usageError{message: fmt.Sprintf("--slots describes the rows of a snapshot, and %s is none; name a snapshot's folder or a job's dir", target)}
				}
				return a.inspectSlots(cmd.Context(), target, out)
			}
			if snapshots {
				if a.Ops.InspectSnapshot == nil {
					return errMissing
				}
				info, err := a.Ops.InspectSnapshot(cmd.Context(), target)
				if err != nil {
					return err
				}
				out.result = info
				out.text = func(w io.Writer) error { return writeSnapshot(w, info) }
				return nil
			}
			cfg, err := a.target(target, set)
			if err != nil {
				return err
			}
			if a.Ops.InspectSource == nil {
				return errMissing
			}
			info, err := a.Ops.InspectSource(cmd.Context(), cfg, job.InspectOptions{Logger: a.logger.Load(), Rows: rows, Timeout: timeout})
			if err != nil {
				return err
			}
			out.result = info
			out.text = func(w io.Writer) error { return writeSource(w, info) }
			return nil
		},
	}
	addSet(cmd, &set)
	cmd.Flags().IntVarP(&rows, "rows", "n", 5, "how many `rows` to show")
	addTimeout(cmd, &timeout)
	cmd.Flags().BoolVar(&slots, "slots", false, "read all rows of a snapshot and describe each slot")
	return cmd
}

func addTimeout(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", job.InspectTimeout, "end the look after this `time` with what was seen")
}

// isStore reports whether a target is the URL of a folder in a store, which has snapshots: sources are local files and topics. A URL with a wildcard or
// the extension of a file of data is none.
func isStore(target string) bool {
	_, err := fsx.ParseURL(target)
	return err == nil && !strings.ContainsAny(target, "*?[") && !slices.Contains(dataExtensions, strings.ToLower(path.Ext(target)))
}

// dataExtensions are those that files of data usually have.
var dataExtensions = []string{".parquet", ".csv", ".tsv", ".json", ".jsonl", ".txt", ".libfm", ".tfrecord", ".tfrecords", ".gz", ".zst"}

// isEmptyOfSnapshots reports whether path is a folder that holds files, itself or in folders below, and no sign of a job's dir, a snapshot or an
// export: data, most likely.
func isEmptyOfSnapshots(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	files, folders, jobs := false, false, false
	for _, e := range entries {
		name := e.Name()
		if name == "manifest.json" || e.IsDir() && (strings.HasPrefix(name, "snapshots") || strings.HasPrefix(name, "snap-")) {
			return false
		}
		if _, err := os.Stat(filepath.Join(dir, name, "snapshots")); e.IsDir() && err == nil {
			jobs = true
		}
		files, folders = files || !e.IsDir(), folders || e.IsDir()
	}
	// Data beside a job's dir is data; a folder of nothing but folders, with a job's dir among them, is one of jobs' dirs.
	return files || folders && !jobs && filesplit.DataIn(dir) != ""
}

// target makes a job of whatever can be looked at.
func (a *App) target(target string, set []string) (*job.Config, error) {
	if isJobFile(target) {
		return a.load(target, set)
	}
	return job.ForTarget(target, job.LoadOptions{Set: set, Env: a.Env})
}

func writeSource(w io.Writer, s *job.SourceInfo) error {
	ends := "never ends"
	if s.Bounded {
		ends = "ends"
	}
	head := s.Source + ", "
	if len(s.Splits) > 0 {
		head += plural(len(s.Splits), "split") + ", "
	}
	head += ends
	if s.Format != "" {
		head += "; records are " + s.Format
	}
	head += fmt.Sprintf("; %s looked at", plural(int(s.Read), "record"))
	sections := []func(io.Writer, *job.SourceInfo) error{writeSplits, writeColumns, writeFeatures, writeRows, writeBad, writeParse}
	if _, err := fmt.Fprintln(w, head); err != nil {
		return err
	}
	for _, section := range sections {
		if err := section(w, s); err != nil {
			return err
		}
	}
	for i, note := range s.Notes {
		if i == 0 {
			note = "\n" + note
		}
		if _, err := fmt.Fprintln(w, note); err != nil {
			return err
		}
	}
	return nil
}

// block writes a table with an empty line before it.
func block(w io.Writer, rows [][]string, right ...int) error {
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return ui.Table(w, rows, right...)
}

func writeSplits(w io.Writer, s *job.SourceInfo) error {
	const most = 12
	if len(s.Splits) == 0 {
		return nil
	}
	rows := [][]string{{"SPLIT", "START", "END", "LOOKED AT"}}
	for i, p := range s.Splits {
		if i == most-1 && len(s.Splits) > most {
			rows = append(rows, []string{fmt.Sprintf("and %d more", len(s.Splits)-i)})
			break
		}
		end := "-"
		if p.End >= 0 {
			end = strconv.FormatInt(p.End, 10)
		}
		rows = append(rows, []string{p.Name, strconv.FormatInt(p.Start, 10), end, strconv.FormatInt(p.Read, 10)})
	}
	return block(w, rows, 1, 2, 3)
}

// writeColumns shows what the records hold, unless the job's features say it better.
func writeColumns(w io.Writer, s *job.SourceInfo) error {
	if len(s.Features) > 0 || len(s.Columns) == 0 {
		return nil
	}
	rows := [][]string{{"COLUMN", "TYPE", "FILLED", "DIFFERENT", "RANGE", "MEAN", "EXAMPLES"}}
	for _, c := range s.Columns {
		from, mean := numbers(c.Numbers)
		rows = append(rows, []string{clip(c.Name, 40), c.Type, percent(c.Rows, c.Share), different(c.Distinct), from, mean, examples(c.Examples)})
	}
	return block(w, rows, 2, 3, 5)
}

func writeFeatures(w io.Writer, s *job.SourceInfo) error {
	if len(s.Features) == 0 {
		return nil
	}
	rows := [][]string{{"FEATURE", "KIND", "SLOT", "FILLED", "VALUES", "DIFFERENT", "RANGE", "MEAN", "EXAMPLES"}}
	for _, f := range s.Features {
		slot := ""
		if f.Kind == "sparse" {
			slot = strconv.Itoa(f.Slot)
		}
		from, mean := numbers(f.Numbers)
		values := "1"
		if f.MaxValues != 1 {
			values = fmt.Sprintf("to %d", f.MaxValues)
		}
		if f.Rows == 0 {
			values = "-"
		}
		rows = append(rows, []string{clip(f.Name, 40), f.Kind, slot, percent(f.Rows, f.Share), values, different(f.Distinct), from, mean, examples(f.Examples)})
	}
	return block(w, rows, 2, 3, 4, 5, 7)
}

// writeRows shows records side by side where they fit, and else one below the other.
func writeRows(w io.Writer, s *job.SourceInfo) error {
	if len(s.Rows) == 0 {
		return nil
	}
	var names, keys []string
	value := func(r job.RowInfo, key string) any { return r.Record[key] }
	if len(s.Features) > 0 {
		value = func(r job.RowInfo, key string) any { return r.Features[key] }
		for _, f := range s.Features {
			names, keys = append(names, f.Name), append(keys, f.Column)
		}
	} else {
		for _, c := range s.Columns {
			names, keys = append(names, c.Name), append(keys, c.Name)
		}
	}
	table := [][]string{append([]string{"SPLIT", "POSITION"}, names...)}
	width := 0
	for _, r := range s.Rows {
		line := []string{r.Split, strconv.FormatInt(r.Position, 10)}
		if len(s.Features) > 0 && r.Features == nil {
			table = append(table, append(line, "(bad row)"))
			continue
		}
		for _, k := range keys {
			line = append(line, clip(peek.Show(value(r, k)), 60))
		}
		table = append(table, line)
	}
	for i := range table[0] {
		col := 0
		for _, line := range table {
			if i < len(line) {
				col = max(col, utf8.RuneCountInString(line[i]))
			}
		}
		width += col + 2
	}
	if width <= 160 {
		return block(w, table, 1)
	}
	for _, line := range table[1:] {
		rows := [][]string{{line[0] + " at " + line[1]}}
		for i, v := range line[2:] {
			rows = append(rows, []string{"  " + clip(names[i], 40), v})
		}
		if _, err := fmt.Fprintf(w, "\n%s\n", rows[0][0]); err != nil {
			return err
		}
		if err := ui.Table(w, rows[1:]); err != nil {
			return err
		}
	}
	return nil
}

func writeBad(w io.Writer, s *job.SourceInfo) error {
	if len(s.BadRows) == 0 {
		return nil
	}
	rows := [][]string{}
	for _, reason := range slices.Sorted(maps.Keys(s.BadRows)) {
		rows = append(rows, []string{"bad rows", ui.Count(s.BadRows[reason]), reason})
	}
	if err := block(w, rows, 1); err != nil {
		return err
	}
	for _, e := range s.BadExamples {
		if _, err := fmt.Fprintln(w, "  "+clip(e, 200)); err != nil {
			return err
		}
	}
	return nil
}

func writeParse(w io.Writer, s *job.SourceInfo) error {
	if s.Parse == "" {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nA parse section to begin with (`monolith init` writes the whole job):\n\n%s", s.Parse)
	return err
}

func percent(rows int64, share float64) string {
	if rows == 0 {
		return "0 %"
	}
	return peek.Share(rows, int64(math.Round(float64(rows)/share)))
}

func different(n int) string {
	if n >= 1000 {
		return "1,000+"
	}
	return strconv.Itoa(n)
}

func numbers(n *job.NumbersInfo) (span, mean string) {
	if n == nil {
		return "", ""
	}
	short := func(x float64) string { return strconv.FormatFloat(x, 'g', 5, 64) }
	return short(n.Min) + " to " + short(n.Max), short(n.Mean)
}

func examples(values []any) string {
	const most = 48
	out := ""
	for _, v := range values {
		s := clip(peek.Show(v), 24)
		if out != "" && utf8.RuneCountInString(out)+utf8.RuneCountInString(s)+2 > most {
			break
		}
		if out != "" {
			out += ", "
		}
		out += s
	}
	return out
}

// clip cuts text for people; with --json it is whole.
func clip(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

func writeSnapshot(w io.Writer, s *job.SnapshotInfo) error {
	head := [][]string{
		{"snapshot", whichSnapshot(s.Path, s.Which)},
		{"created", s.Created.UTC().Format(time.RFC3339)},
		{"digest", s.Digest},
		{"rows", ui.Count(s.Rows)},
	}
	if s.Best != "" {
		head = append(head, []string{"the best is", s.Best})
	}
	for _, d := range s.Damaged {
		head = append(head, []string{"damaged", d})
	}
	if s.Kernels != "" {
		head = append(head, []string{"kernels", s.Kernels})
	}
	if s.ReferenceBatch != 0 {
		head = append(head, []string{"reference batch", strconv.Itoa(s.ReferenceBatch)})
	}
	if s.Model != "" {
		head = append(head, []string{"model", s.Model})
	}
	if len(s.Dense) > 0 {
		numbers := int64(0)
		for _, t := range s.Dense {
			n := int64(1)
			for _, d := range t.Shape {
				n *= d
			}
			numbers += n
		}
		head = append(head, []string{"dense", fmt.Sprintf("%s parameters in %s", ui.Count(numbers), plural(len(s.Dense), "tensor"))})
	}
	if err := pairs(w, head...); err != nil {
		return err
	}
	if len(s.Heads) > 0 {
		rows := [][]string{{"HEAD", "LOSS", "LABEL", "MASK", "WEIGHT"}}
		for _, h := range s.Heads {
			rows = append(rows, []string{h.Name, h.Loss, orDash(h.Label), orDash(h.Mask), strconv.FormatFloat(float64(h.Weight), 'g', -1, 32)})
		}
		if err := block(w, rows, 4); err != nil {
			return err
		}
	}
	if len(s.Features) > 0 {
		rows := [][]string{{"FEATURE", "KIND", "COLUMN", "SLOT", "TABLE"}}
		for _, f := range s.Features {
			kind, slot := f.Kind, strconv.Itoa(f.Slot)
			if f.Kind == "dense" {
				slot = "-"
			}
			if f.Dim > 1 {
				kind += fmt.Sprintf("[%d]", f.Dim)
			}
			rows = append(rows, []string{clip(f.Name, 40), kind, clip(orDash(f.Column), 40), slot, orDash(f.Table)})
		}
		if err := block(w, rows, 3); err != nil {
			return err
		}
	}
	if len(s.Tables) > 0 {
		rows := [][]string{{"TABLE", "ROWS", "DIM", "SEGMENTS"}}
		for _, t := range s.Tables {
			var segments []string
			for _, s := range t.Segments {
				segments = append(segments, fmt.Sprintf("%s %d", s.Name, s.Dim))
			}
			rows = append(rows, []string{t.Name, ui.Count(t.Rows), strconv.Itoa(t.Dim), strings.Join(segments, ", ")})
		}
		if err := block(w, rows, 1, 2); err != nil {
			return err
		}
	}
	positions := [][]string{{"SOURCE", "SPLIT", "POSITION", "ROWS"}}
	for _, source := range slices.Sorted(maps.Keys(s.Positions)) {
		for _, split := range slices.Sorted(maps.Keys(s.Positions[source])) {
			p := s.Positions[source][split]
			positions = append(positions, []string{source, split, p.Position.Text(), ui.Count(p.Rows)})
		}
	}
	if len(positions) == 1 {
		_, err := fmt.Fprintln(w, "\nno positions: nothing was read yet")
		return err
	}
	return block(w, positions, 2, 3)
}

func orDash(s string) string { return cmp.Or(s, "-") }
