package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
)

func (a *App) snapshotPruneCommand(out *outcome) *cobra.Command {
	var (
		set     []string
		keep    int
		keepFor time.Duration
		exempt  []int
		yes     bool
	)
	cmd := &cobra.Command{
		Use:        "prune JOB.yaml|DIR|URL",
		SuggestFor: []string{"delete", "remove", "rm"},
		Short:      "Remove snapshots that need not stay",
		Long: `Remove the snapshots of a job's dir, of a folder or of a store that need not stay. What stays are the newest of them, those that are younger than a time, those that are
exempt, pinned ones, the newest of each label, damaged ones, and what any of these adds to.

A damaged snapshot does not count as one of the newest: before anything is removed, all bytes of those that count are read and compared with their checksums.

How many and how long is said by the job file (snapshot.keep, keep_for, exempt) or by flags. Without --yes nothing is removed, and it is listed what would be. A job
that is running prunes its snapshots itself, in its dir and at snapshot.upload, so the command refuses then; of a store it cannot know, so end the job that uploads there
first.`,
		Example: `  monolith snapshot prune job.yaml                  # what would go?
  monolith snapshot prune runs/movielens --keep 1 --yes
  monolith snapshot prune runs/click --keep 3 --keep-for 48h --exempt 12 --yes
  monolith snapshot prune s3://models/click --keep 5 --yes`,
		Args: exactly("a job file, a folder or a URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "snapshot prune"
			if a.Ops.Snapshots.Prune == nil {
				return errMissing
			}
			path, r, err := a.snapshotsOf(args[0], set)
			if err != nil {
				return err
			}
			flags := cmd.Flags()
			if !isJobFile(args[0]) && !flags.Changed("keep") {
				return &usageError{message: "prune of a folder needs --keep, how many of the newest stay: monolith snapshot prune DIR --keep 3"}
			}
			if flags.Changed("keep") {
				r.Keep = keep
			}
			if flags.Changed("keep-for") {
				r.For = keepFor
			}
			if flags.Changed("exempt") {
				r.Exempt = nil
				for _, id := range exempt {
					if id < 1 {
						return &usageError{message: fmt.Sprintf("--exempt has %d; snapshots are numbered from 1: 12 is snap-00000012", id)}
					}
					r.Exempt = append(r.Exempt, uint64(id))
				}
			}
			if r.Keep < 1 || r.For < 0 {
				return &usageError{message: fmt.Sprintf("--keep is %d and --keep-for %v; one snapshot stays at least", r.Keep, r.For)}
			}
			pruned, err := a.Ops.Snapshots.Prune(cmd.Context(), path, r, yes)
			if pruned != nil {
				out.result = pruned
				out.text = func(w io.Writer) error { return writePruned(w, pruned) }
			}
			return err
		},
	}
	addSet(cmd, &set)
	cmd.Flags().IntVar(&keep, "keep", 0, "how many of the newest `snapshots` stay (default: snapshot.keep of the job file)")
	cmd.Flags().DurationVar(&keepFor, "keep-for", 0, "how `long` each stays beside those (default: snapshot.keep_for of the job file)")
	cmd.Flags().IntSliceVar(&exempt, "exempt", nil, "`numbers` of snapshots that stay (default: snapshot.exempt of the job file)")
	cmd.Flags().BoolVar(&yes, "yes", false, "remove them")
	return cmd
}

func writePruned(w io.Writer, p *job.SnapshotsPruned) error {
	if err := writeEntries(w, p.Kept); err != nil {
		return err
	}
	head := plural(len(p.Gone), "snapshot") + " removed"
	if !p.Removed {
		head = plural(len(p.Gone), "snapshot") + " would be removed; --yes removes what is listed"
	}
	if len(p.Gone) == 0 {
		head = "nothing is to be removed"
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(append([]string{head}, p.Gone...), "\n  "))
	return err
}

func (a *App) snapshotTakeCommand(out *outcome) *cobra.Command {
	var (
		set  []string
		pin  bool
		note string
		wait time.Duration
	)
	cmd := &cobra.Command{
		Use:        "take JOB.yaml",
		SuggestFor: []string{"create", "save"},
		Short:      "Ask a running job for a snapshot",
		Long: `Ask the coordinator of a running job, shard 0 at ps.addresses, for a snapshot now, and wait until it is durable. Training continues
meanwhile.

A job whose shards are in the process that trains it has no address: send that process the signal SIGUSR2, which any process of a job that
trains or coordinates shards answers with a snapshot, and a line on standard error.`,
		Example: `  monolith snapshot take job.yaml
  monolith snapshot take job.yaml --pin --note "before the new features"
  kill -USR2 $(pgrep -f 'monolith train job.yaml')`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "snapshot take"
			if a.Ops.Snapshots.Take == nil {
				return errMissing
			}
			if isDir(args[0]) {
				return &usageError{message: fmt.Sprintf("%s is a folder; take asks the running job, so give its job file, which has ps.addresses: monolith snapshot take JOB.yaml", args[0])}
			}
			cfg, err := a.load(args[0], set)
			if err != nil {
				return err
			}
			how, err := a.asking(wait)
			if err != nil {
				return err
			}
			taken, err := a.Ops.Snapshots.Take(cmd.Context(), cfg, job.TakeOptions{Asking: how, Pin: pin, Note: note})
			if err != nil {
				return err
			}
			out.result = taken
			out.text = func(w io.Writer) error {
				return pairs(w, []string{"snapshot", taken.Path}, []string{"rows", ui.Count(taken.Rows)}, []string{"size", ui.Bytes(taken.Bytes)},
					[]string{"took", fmt.Sprintf("%.2f s", taken.Took)}, []string{"longest stall", fmt.Sprintf("%.1f ms", 1000*taken.Stall)})
			}
			return nil
		},
	}
	addSet(cmd, &set)
	addWait(cmd, &wait)
	cmd.Flags().BoolVar(&pin, "pin", false, "keep it whatever its age")
	cmd.Flags().StringVar(&note, "note", "", "a `remark` that is stored with it")
	return cmd
}
