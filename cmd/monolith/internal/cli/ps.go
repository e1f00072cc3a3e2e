package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/job"
)

func (a *App) psCommand(out *outcome) *cobra.Command {
	var (
		set    []string
		shards []int
		listen string
		resume bool
		open   bool
		second bool
	)
	cmd := &cobra.Command{
		Use:   "ps JOB.yaml",
		Short: "Serve shards of a job's parameter server",
		Long: `Serve the parameters of a job to workers in other processes.

The job's ps.addresses say how many shards there are and where each listens; --shard says which of them this process is.
The process of shard 0 coordinates the others: it shares the splits among the workers and takes snapshots, in the job's
dir, which all shards must see under the same name. The shards continue from the newest good snapshot, or with
ps.durability: wal from their logs. What is lost when which process dies: docs/cluster.md.

With --standby the process is the second one of shards that have one (ps.standby): it follows the log of the first, and takes over when that does not
answer, or on command: monolith ps promote.

Anyone who reaches a shard can read and change parameters. So an address that others than this machine can reach is refused
without ps.tls and ps.token (or ps.tls.ca, for certificates on both sides), unless --insecure is given.

The first SIGINT or SIGTERM lets shard 0 take a snapshot and ends with exit code 0; a second one stops at once. SIGUSR2 makes the process of
shard 0 take one and continue.`,
		Example: `  monolith ps job.yaml --shard 0
  monolith ps job.yaml --shard 1,2                 # two shards in one process
  monolith ps job.yaml                             # all shards in one process
  monolith ps job.yaml --shard 0 --listen 0.0.0.0:7000   # with ps.tls, ps.token
  monolith ps job.yaml --shard 0 --resume=false    # start over
  monolith ps scale job.yaml      # the running shards become those of the file
  monolith ps job.yaml --shard 1 --standby         # its second process
  monolith ps promote job.yaml --shard 1           # which takes over`,
		Args:              orCommand(exactly("a job file")),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.load(args[0], set)
			if err != nil {
				return err
			}
			if a.Ops.Serve == nil {
				return errMissing
			}
			run, stop, err := a.run(cmd.Context(), &cfg.Metrics)
			if err != nil {
				return err
			}
			defer stop()
			opts := job.ServeOptions{
				Shards: shards, Standby: second, Listen: listen, Insecure: open, Logger: run.Logger, Registerer: run.Registerer, Ready: run.Ready, Notice: run.Notice, Drain: run.Drain, TakeSnapshot: run.TakeSnapshot,
			}
			if cmd.Flags().Changed("resume") {
				opts.Resume = &resume
			}
			if len(shards) == 0 || slices.Contains(shards, 0) {
				a.drainsBy("taking a last snapshot; then the shards of this process end")
			} else {
				a.drainsBy("the shards of this process end, without a snapshot, which is shard 0's to take")
			}
			result, err := a.Ops.Serve(cmd.Context(), cfg, opts)
			if result != nil {
				out.result = result
				out.text = func(w io.Writer) error { return writeServed(w, result) }
			}
			return err
		},
	}
	cmd.AddCommand(a.scaleCommand(out))
	addSet(cmd, &set)
	cmd.Flags().IntSliceVar(&shards, "shard", nil, "`indexes` of the shards to serve, from 0 (default: all)")
	cmd.Flags().StringVar(&listen, "listen", "", "`address` to listen at instead of the shard's own in ps.addresses")
	cmd.Flags().BoolVar(&second, "standby", false, "be the second process of the shards, at their addresses of ps.standby (default: of all that have one)")
	cmd.Flags().BoolVar(&open, "insecure", false, "listen beyond this machine though ps.tls and ps.token do not keep strangers away")
	cmd.Flags().BoolVar(&resume, "resume", true, "continue from what there is; =false starts over (shard 0)")
	cmd.AddCommand(a.promoteCommand(out), a.psLookupCommand(out), a.psAssignCommand(out), a.psReinitializeCommand(out), a.psStatsCommand(out), a.psChangesCommand(out), a.psPushCommand(out))
	return cmd
}

func (a *App) promoteCommand(out *outcome) *cobra.Command {
	var (
		set   []string
		shard int
		wait  time.Duration
	)
	cmd := &cobra.Command{
		Use:   "promote JOB.yaml",
		Short: "Let the standby of a shard take over",
		Long: `Let the standby of a shard (ps.standby) take over from the process that is in charge, as for a restart of its machine, and wait until it has. Workers wait
meanwhile, for about ps.standby.lease, and nothing that was acknowledged is lost. The other process, as long as it runs, is the standby from then on.

A standby that lacks something is refused, with exit code 3. The caller needs the right to coordinate (ps.allow).`,
		Example: `  monolith ps promote job.yaml --shard 1
  monolith ps promote job.yaml --shard 1   # again: the first is back`,
		Args:              exactly("a job file"),
		ValidArgsFunction: completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "ps promote"
			if !cmd.Flags().Changed("shard") {
				return &usageError{message: "--shard is missing: the index of the shard whose standby is to take over"}
			}
			how, err := a.asking(wait)
			if err != nil {
				return err
			}
			cfg, err := a.load(args[0], set)
			if err != nil {
				return err
			}
			if a.Ops.Promote == nil {
				return errMissing
			}
			done, err := a.Ops.Promote(cmd.Context(), cfg, job.PromoteOptions{Asking: how, Shard: shard})
			if err != nil {
				return err
			}
			out.result = done
			out.text = func(w io.Writer) error {
				return pairs(w, []string{"shard", fmt.Sprint(done.Shard)}, []string{"took", fmt.Sprintf("%.2f s", done.Took)})
			}
			return nil
		},
	}
	addSet(cmd, &set)
	addWait(cmd, &wait)
	cmd.Flags().IntVar(&shard, "shard", 0, "`index` of the shard, from 0; there is no default")
	return cmd
}

func writeServed(w io.Writer, r *job.ServeResult) error {
	names := make([]string, len(r.Shards))
	for i, s := range r.Shards {
		names[i] = fmt.Sprint(s)
	}
	name := "served shard"
	if len(names) > 1 {
		name = "served shards"
	}
	rows := [][]string{{name, strings.Join(names, ", ")}}
	if r.Snapshot != "" {
		rows = append(rows, []string{"snapshot", r.Snapshot})
	}
	return pairs(w, rows...)
}
