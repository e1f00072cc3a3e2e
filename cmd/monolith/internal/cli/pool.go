package cli

import (
	"context"

	"github.com/spf13/cobra"
)

func (a *App) poolCommand(*outcome) *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "worker-pool",
		Short: "Run executors for a worker of a Beam runner",
		Long: `Run the executors of jobs whose beam.environment is external, for one worker of a Beam runner on this machine.

A runner's worker, such as a task manager of Flink, asks the pool beside it to begin and to end executors, which run in the
pool's process. Each of a runner's workers needs a pool of its own, as a sidecar in its pod, at the address that
beam.environment_config names. It serves any job whose shards it can reach; what a job's secrets are read from must be there.

A pool listens on this machine alone and runs until SIGINT or SIGTERM. It is then told nothing of the jobs whose executors it
has: the runner begins them again elsewhere, or in the next pool, and they continue where the parameter server is.`,
		Example: `  monolith worker-pool --listen localhost:50000`,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.Ops.Pool == nil {
				return errMissing
			}
			a.drainsBy("the pool and its executors end")
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go func() {
				select {
				case <-a.drain:
					cancel()
				case <-ctx.Done():
				}
			}()
			return a.Ops.Pool(ctx, listen, func(addr string) { a.notice("worker pool ready at " + addr) })
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "localhost:50000", "`address` on this machine to listen at")
	return cmd
}
