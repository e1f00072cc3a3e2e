package cli

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
)

func (a *App) scaleCommand(out *outcome) *cobra.Command {
	var (
		set, to []string
		wait    time.Duration
	)
	cmd := &cobra.Command{
		Use:   "scale JOB.yaml",
		Short: "Add or remove shards of a running job",
		Long: `Make the shards of a running job those of a list of addresses, while its workers continue. The list is the job's ps.addresses, or --to.

Shards are added and removed at the end of the list; shard 0 stays. Start those that are added first, with the new list: monolith ps JOB.yaml --shard N. Then this
command asks shard 0, which takes snapshots while training continues, with all processors in the end, until one is soon written or they get no smaller. Shards that are added read what they will have, those that stay what they gain. While there is a last one
pushes wait, for a minute at most, and look-ups do not; then all shards go over to it. How long workers wait does not go by the number of rows. Nothing is lost or counted twice, and the result is that of a job which always had that many shards. It says how long
they waited, and how many examples are trained again because the last snapshot took longer. Shards that were removed are empty and refuse everybody: end their processes then.

Shards keep their standbys (ps.standby), which read the same snapshots, and those that are added may have one: put it into ps.standby.addresses and start it too, before or after.
An address of --to has the standby that the job file says for it. The standby of a shard that stays is not changed.

From the last snapshot on it is decided: if this command or any process is killed, shard 0 goes on with it, and the same command again waits for the end. Processes
that are started with the list from before follow the new one. docs/cluster.md has more.`,
		Example: `  monolith ps scale job.yaml                      # after editing ps.addresses
  monolith ps scale job.yaml --to ps-0:7000,ps-1:7000,ps-2:7000`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "ps scale"
			if a.Ops.Scale == nil {
				return errMissing
			}
			how, err := a.asking(wait)
			if err != nil {
				return err
			}
			cfg, err := a.load(args[0], set)
			if err != nil {
				return err
			}
			o := job.ScaleOptions{Asking: how, Progress: a.scaleProgress()}
			defer a.screen.SetLine("")
			if cmd.Flags().Changed("to") {
				o.To = to
			}
			done, err := a.Ops.Scale(cmd.Context(), cfg, o)
			if err != nil {
				return err
			}
			out.result = done
			out.text = func(w io.Writer) error { return writeScaled(w, done) }
			return nil
		},
	}
	addSet(cmd, &set)
	addWait(cmd, &wait)
	cmd.Flags().StringSliceVar(&to, "to", nil, "`addresses` of all shards, that of shard 0 first (default: ps.addresses of the job file)")
	return cmd
}

// scaleProgress shows how far a change of the number of shards is.
func (a *App) scaleProgress() func(job.ScaleProgress) {
	show := a.progress("scale")
	if show == nil {
		return nil
	}
	return func(p job.ScaleProgress) {
		show(func() (string, []slog.Attr) {
			line := fmt.Sprintf("to %s, %.0f s: ", plural(p.Shards, "shard"), p.Took.Seconds())
			if p.Snapshots == 0 {
				line += "a snapshot is written"
			} else {
				line += fmt.Sprintf("%s taken, %s rows in the last", plural(int(p.Snapshots), "snapshot"), ui.Count(p.Rows))
			}
			return line, []slog.Attr{slog.Int("shards", p.Shards), slog.Int64("snapshots", p.Snapshots), slog.Int64("rows", p.Rows), slog.Duration("took", p.Took)}
		})
	}
}

func writeScaled(w io.Writer, s *job.Scaled) error {
	if s.Before == s.Shards {
		_, err := fmt.Fprintf(w, "the job has these %s\n", plural(s.Shards, "shard"))
		return err
	}
	return pairs(w, []string{"shards", fmt.Sprintf("%d, %d before", s.Shards, s.Before)}, []string{"snapshot", s.Snapshot}, []string{"rows", ui.Count(s.Rows)},
		[]string{"trained again", plural(int(s.Again), "example")}, []string{"workers waited", fmt.Sprintf("%.2f s", s.Pause)}, []string{"took", fmt.Sprintf("%.2f s", s.Took)})
}
