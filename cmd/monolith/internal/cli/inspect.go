package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
)

func (a *App) inspectCommand(out *outcome) *cobra.Command {
	var (
		set  []string
		rows int
	)
	cmd := &cobra.Command{
		Use:   "inspect SOURCE|SNAPSHOT",
		Short: "Look into a source or a snapshot",
		Long: `Show the splits, the schema and the first rows of a source, or what a snapshot holds.

SOURCE is a job file (its source, parsed as the job says), a data file or pattern (.tfrecord, .parquet, .csv, .tsv, .jsonl,
.libfm, .txt) or kafka://host:port/topic. SNAPSHOT is a snapshot's folder, or a job's dir for the newest one in it.`,
		Example: `  monolith inspect job.yaml --rows 3
  monolith inspect 'data/part-*.tfrecord'
  monolith inspect kafka://localhost:9092/ratings
  monolith inspect runs/movielens/snapshots/snap-00000012`,
		Args: exactly("a source or a snapshot"),
		RunE: func(cmd *cobra.Command, args []string) error {
			target := args[0]
			if isDir(target) {
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
			info, err := a.Ops.InspectSource(cmd.Context(), cfg, job.InspectOptions{Logger: a.logger.Load(), Rows: rows})
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
	return cmd
}

func (a *App) target(target string, set []string) (*job.Config, error) {
	if isJobFile(target) {
		return a.load(target, set)
	}
	if len(set) > 0 {
		return nil, &usageError{message: "--set is for job files; " + target + " is none"}
	}
	return job.ForTarget(target)
}

func writeSource(w io.Writer, s *job.SourceInfo) error {
	ends := "never ends"
	if s.Bounded {
		ends = "ends"
	}
	if _, err := fmt.Fprintf(w, "%s, %s, %s\n\n", s.Source, plural(len(s.Splits), "split"), ends); err != nil {
		return err
	}
	splits := [][]string{{"SPLIT", "START", "END"}}
	for _, p := range s.Splits {
		end := "-"
		if p.End >= 0 {
			end = strconv.FormatInt(p.End, 10)
		}
		splits = append(splits, []string{p.Name, strconv.FormatInt(p.Start, 10), end})
	}
	if err := ui.Table(w, splits, 1, 2); err != nil {
		return err
	}
	columns := [][]string{{"COLUMN", "TYPE"}}
	header := []string{}
	for _, c := range s.Schema {
		columns = append(columns, []string{c.Name, c.Type})
		header = append(header, c.Name)
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := ui.Table(w, columns); err != nil || len(s.Rows) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return ui.Table(w, append([][]string{header}, s.Rows...))
}

func writeSnapshot(w io.Writer, s *job.SnapshotInfo) error {
	err := pairs(
		w,
		[]string{"snapshot", s.Path},
		[]string{"created", s.Created.UTC().Format(time.RFC3339)},
		[]string{"digest", s.Digest},
		[]string{"rows", ui.Count(s.Rows)},
	)
	if err != nil {
		return err
	}
	tables := [][]string{{"", "", ""}, {"TABLE", "ROWS", "DIM"}}
	for _, t := range s.Tables {
		tables = append(tables, []string{t.Name, ui.Count(t.Rows), strconv.Itoa(t.Dim)})
	}
	if err := ui.Table(w, tables, 1, 2); err != nil {
		return err
	}
	positions := [][]string{{"", "", "", ""}, {"SOURCE", "SPLIT", "POSITION", "ROWS"}}
	for _, source := range slices.Sorted(maps.Keys(s.Positions)) {
		for _, split := range slices.Sorted(maps.Keys(s.Positions[source])) {
			p := s.Positions[source][split]
			positions = append(positions, []string{source, split, strconv.FormatInt(p.Position, 10), ui.Count(p.Rows)})
		}
	}
	return ui.Table(w, positions, 2, 3)
}
