package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
)

func (a *App) snapshotFetchCommand(out *outcome) *cobra.Command {
	var (
		set []string
		o   job.FetchOptions
	)
	cmd := &cobra.Command{
		Use:        "fetch JOB.yaml|URL",
		SuggestFor: []string{"restore", "download", "pull"},
		Short:      "Bring snapshots back from a store",
		Long: `Bring the newest whole snapshot that a job has uploaded (snapshot.upload) back into its dir, or into a folder, with all that it adds to and
the newest of each label. Checksums are compared on the way; a damaged snapshot is passed over for the one before, which is said. The folder must have no
snapshots yet, and has all of them at once: a call that was cut short is continued by the next.

Training does this by itself where its dir has no snapshots: the command is for evaluating, serving and looking at models on other machines.`,
		Example: `  monolith snapshot fetch job.yaml
  monolith snapshot fetch s3://models/click --to served/snapshots
  monolith snapshot fetch hdfs://namenode:8020/models --to look --number 12`,
		Args: exactly("a job file or a URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out.command = "snapshot fetch"
			if a.Ops.Snapshots.Fetch == nil || a.Ops.Snapshots.FetchJob == nil {
				return errMissing
			}
			o.Logger = a.logger.Load()
			var got *job.SnapshotEntry
			if isJobFile(args[0]) {
				if o.To != "" {
					return &usageError{message: "--to is for a URL: snapshots of a job are brought back into its dir"}
				}
				cfg, err := a.load(args[0], set)
				if err != nil {
					return err
				}
				if got, err = a.Ops.Snapshots.FetchJob(cmd.Context(), cfg, o); err != nil {
					return err
				}
			} else {
				if err := errSet(args[0], set); err != nil {
					return err
				}
				if o.To == "" {
					return &usageError{message: "fetch of a URL needs --to, the folder for the snapshots: monolith snapshot fetch URL --to DIR"}
				}
				var err error
				o.URL = args[0]
				if got, err = a.Ops.Snapshots.Fetch(cmd.Context(), o); err != nil {
					return err
				}
			}
			out.result = got
			out.text = func(w io.Writer) error {
				return pairs(w, []string{"snapshot", got.Path}, []string{"kind", got.Kind}, []string{"rows", ui.Count(got.Rows)}, []string{"size", ui.Bytes(got.Bytes)})
			}
			return nil
		},
	}
	addSet(cmd, &set)
	cmd.Flags().StringVar(&o.To, "to", "", "`folder` for the snapshots of a URL, which has none")
	cmd.Flags().Uint64Var(&o.ID, "number", 0, "`number` of the snapshot. Default: the newest that is whole")
	return cmd
}
