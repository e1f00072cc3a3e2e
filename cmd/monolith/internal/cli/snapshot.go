package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/nearest"
)

// snapshotCommand is the group of commands for snapshots.
func (a *App) snapshotCommand(out *outcome) *cobra.Command {
	root := &cobra.Command{
		Use:   "snapshot COMMAND",
		Short: "Bring snapshots from ByteDance's Monolith and take them back",
		Long: `Make a snapshot of a checkpoint of ByteDance's Monolith (bytedance/monolith), or such a checkpoint of a snapshot. docs/from-monolith.md
is the guide.`,
		Example: `  monolith snapshot import job.yaml model_dir
  monolith snapshot export runs/click --to model_dir`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			var names []string
			for _, c := range cmd.Commands() {
				names = append(names, c.Name())
			}
			return &usageError{fmt.Sprintf("unknown command %q", args[0]), nearest.Name(args[0], names)}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(a.importCommand(out), a.exportCommand(out))
	return root
}
