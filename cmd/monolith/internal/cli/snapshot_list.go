package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
)

// SnapshotOps are the functions behind `monolith snapshot`.
type SnapshotOps struct {
	// List describes the snapshots of a job's dir, a folder or a URL.
	List func(ctx context.Context, path string, r job.Retention) (*job.SnapshotList, error)
	// Verify reads all of a snapshot, or of those of a job's dir or a folder.
	Verify func(ctx context.Context, path string) ([]job.SnapshotCheck, error)
	// Prune removes snapshots that need not stay, or says which would go.
	Prune func(ctx context.Context, path string, r job.Retention, remove bool) (*job.SnapshotsPruned, error)
	// Fetch brings snapshots back from a store into a folder, FetchJob into a job's dir.
	Fetch    func(ctx context.Context, o job.FetchOptions) (*job.SnapshotEntry, error)
	FetchJob func(ctx context.Context, cfg *job.Config, o job.FetchOptions) (*job.SnapshotEntry, error)
	// Take asks a running job for a snapshot.
	Take func(ctx context.Context, cfg *job.Config, o job.TakeOptions) (*job.SnapshotTaken, error)
}

// snapshotsOf is where the snapshots of a target lie, a job file, a folder or a URL, and which of them stay by the job file.
func (a *App) snapshotsOf(target string, set []string) (path string, r job.Retention, err error) {
	if !isJobFile(target) {
		return target, job.Retention{}, errSet(target, set)
	}
	cfg, err := a.load(target, set)
	if err != nil {
		return "", job.Retention{}, err
	}
	return cfg.Dir, job.RetentionOf(cfg), nil
}

func (a *App) snapshotListCommand(out *outcome) *cobra.Command {
	var set []string
	cmd := &cobra.Command{
		Use:        "list JOB.yaml|DIR|URL",
		SuggestFor: []string{"ls"},
		Short:      "List snapshots",
		Long: `List the snapshots of a job's dir, of a folder or of a store (snapshot.upload), the newest first: number, when it was taken, whether it is whole or adds to
another one, rows, the size of its files, how many examples and batches were applied, and why retention keeps it.

Of a folder that is named without its job file it is not known what snapshot.keep, keep_for and exempt are: pinned snapshots, the newest of
each label and bases of those are shown as kept. A snapshot is damaged when its manifest cannot be read, or when a file of it or of its bases is missing or has
another size. The bytes of files are not read: see monolith snapshot verify.`,
		Example: `  monolith snapshot list job.yaml
  monolith snapshot list runs/movielens --json | jq '.result.snapshots[0].path'
  monolith snapshot list s3://models/click`,
		Args: exactly("a job file, a folder or a URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "snapshot list"
			if a.Ops.Snapshots.List == nil {
				return errMissing
			}
			path, r, err := a.snapshotsOf(args[0], set)
			if err != nil {
				return err
			}
			list, err := a.Ops.Snapshots.List(cmd.Context(), path, r)
			if err != nil {
				return err
			}
			out.result = list
			out.text = func(w io.Writer) error {
				if _, err := fmt.Fprintln(w, list.Dir); err != nil {
					return err
				}
				return writeEntries(w, list.Snapshots)
			}
			return nil
		},
	}
	addSet(cmd, &set)
	return cmd
}

func writeEntries(w io.Writer, entries []job.SnapshotEntry) error {
	rows := [][]string{{"NUMBER", "TAKEN", "KIND", "ROWS", "SIZE", "EXAMPLES", "BATCHES", "KEPT", "NOTE"}}
	for _, e := range entries {
		if e.Kind == "damaged" {
			rows = append(rows, []string{strconv.FormatInt(e.ID, 10), "", e.Kind, "", "", "", "", e.Kept, e.Error})
			continue
		}
		kind := e.Kind
		if e.Base > 0 {
			kind = fmt.Sprintf("adds to %d", e.Base)
		}
		rows = append(rows, []string{
			strconv.FormatInt(e.ID, 10), e.Created.Local().Format(time.DateTime), kind, ui.Count(e.Rows), ui.Bytes(e.Bytes), ui.Count(e.Examples), ui.Count(e.Batches),
			e.Kept, e.Note,
		})
	}
	return ui.Table(w, rows, 0, 3, 4, 5, 6)
}

func (a *App) snapshotVerifyCommand(out *outcome) *cobra.Command {
	var set []string
	cmd := &cobra.Command{
		Use:   "verify JOB.yaml|DIR|SNAPSHOT|URL",
		Short: "Read snapshots and check every byte",
		Long: `Read all of a snapshot, or of every one in a job's dir, a folder or a store, with what it adds to, and compare checksums, counts and digests with
what was stored. Every fault is listed with its file.

The exit code is 0 when all are whole, 4 when one is not. A snapshot that adds to a damaged one is damaged too; training goes
back to the newest whole one by itself.`,
		Example: `  monolith snapshot verify runs/movielens
  monolith snapshot verify runs/movielens/snapshots/snap-00000012
  monolith snapshot verify s3://models/click/snap-00000012`,
		Args: exactly("a job file, a folder, a snapshot or a URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "snapshot verify"
			if a.Ops.Snapshots.Verify == nil {
				return errMissing
			}
			path, _, err := a.snapshotsOf(args[0], set)
			if err != nil {
				return err
			}
			checks, err := a.Ops.Snapshots.Verify(cmd.Context(), path)
			if err != nil {
				return err
			}
			damaged := 0
			for _, c := range checks {
				if len(c.Faults) > 0 {
					damaged++
				}
			}
			out.result = map[string]any{"snapshots": checks, "damaged": damaged}
			out.text = func(w io.Writer) error { return writeChecks(w, checks) }
			if damaged > 0 {
				return &answerError{fmt.Sprintf("%d of %s damaged", damaged, plural(len(checks), "snapshot"))}
			}
			return nil
		},
	}
	addSet(cmd, &set)
	return cmd
}

func writeChecks(w io.Writer, checks []job.SnapshotCheck) error {
	for _, c := range checks {
		what := "whole, " + ui.Bytes(c.Bytes)
		if len(c.Reads) > 1 {
			what += fmt.Sprintf(" with %s that it adds to", plural(len(c.Reads)-1, "snapshot"))
		}
		if len(c.Faults) > 0 {
			what = "damaged\n  " + strings.Join(c.Faults, "\n  ")
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", c.Path, what); err != nil {
			return err
		}
	}
	return nil
}
