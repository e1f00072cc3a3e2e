package cli

import "github.com/spf13/cobra"

// snapshotCommand is the group of commands for snapshots.
func (a *App) snapshotCommand(out *outcome) *cobra.Command {
	root := &cobra.Command{
		Use:   "snapshot COMMAND",
		Short: "List, verify, prune, take, fetch, import snapshots",
		Long: `List, verify, prune, take and fetch snapshots: what a job has stored of its parameters, positions and state. What one of them holds is
shown by monolith inspect, what differs between two by monolith model diff.

Make a snapshot of a checkpoint of ByteDance's Monolith (bytedance/monolith), or such a checkpoint of a snapshot: docs/from-monolith.md
is the guide.`,
		Example: `  monolith snapshot list job.yaml
  monolith snapshot verify runs/click
  monolith snapshot prune runs/click --keep 2
  monolith snapshot take job.yaml --pin --note "before the new features"
  monolith snapshot fetch job.yaml
  monolith snapshot import job.yaml model_dir
  monolith snapshot export runs/click --to model_dir`,
		Args: noOtherCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(a.snapshotListCommand(out), a.snapshotVerifyCommand(out), a.snapshotPruneCommand(out), a.snapshotTakeCommand(out),
		a.snapshotFetchCommand(out), a.importCommand(out), a.exportCommand(out))
	return root
}
