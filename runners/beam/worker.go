package beam

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/apache/beam/sdks/v2/go/container/tools"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime/harness"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/universal/extworker"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/util/grpcx"

	"github.com/monolith-go/monolith/pipeline"
)

// bootArgs are what a runner starts a worker's boot program with, by Beam's container contract.
type bootArgs struct {
	id, logging, control, provision string
}

// parseBoot reports whether a program was started as a worker's boot program: by flags of the contract alone, with an id and a
// provision service among them.
func parseBoot(args []string) (b bootArgs, ok bool) {
	for _, arg := range args {
		flag, value, _ := strings.Cut(arg, "=")
		switch strings.TrimLeft(flag, "-") {
		case "id":
			b.id = value
		case "logging_endpoint":
			b.logging = value
		case "control_endpoint":
			b.control = value
		case "provision_endpoint":
			b.provision = value
		case "artifact_endpoint", "semi_persist_dir": // this program is the worker
		default:
			return b, false
		}
	}
	return b, b.id != "" && b.provision != ""
}

// work serves a runner until it closes the connection. It then returns, where Beam's own worker waits to be killed and so
// outlives a runner that was killed itself.
func (b bootArgs) work(ctx context.Context) error {
	ctx = grpcx.WriteWorkerID(ctx, b.id)
	info, err := tools.ProvisionInfo(ctx, b.provision)
	if err != nil {
		return fmt.Errorf("beam: worker %s: provision service %s: %w", b.id, b.provision, err)
	}
	if b.logging == "" {
		b.logging = info.GetLoggingEndpoint().GetUrl()
	}
	given := b.control != ""
	if !given {
		b.control = info.GetControlEndpoint().GetUrl()
	}
	if b.logging == "" || b.control == "" {
		return fmt.Errorf("beam: worker %s: the provision service %s names no endpoints for logging and control", b.id, b.provision)
	}
	runtime.GlobalOptions.Import(runtime.RawOptions{Options: map[string]string{}}) // DoFns have all they need in their fields
	err = harness.MainWithOptions(ctx, b.logging, b.control, harness.Options{
		StatusEndpoint: info.GetStatusEndpoint().GetUrl(), RunnerCapabilities: info.GetRunnerCapabilities(),
	})
	if err != nil {
		if !given {
			err = learnt(err, "the provision service "+b.provision, "the runner's control service", b.control, "")
		}
		return fmt.Errorf("beam: worker %s: %w", b.id, err)
	}
	return nil
}

// Pool serves runners whose environment is [External] until ctx ends: they have executors started in this process. addr is
// where it listens, on this machine alone. A pool serves one worker of the runner: each numbers its executors by itself.
// Errors: [pipeline.ErrConfig] for another address, [pipeline.ErrUnavailable] when the port is taken.
func Pool(ctx context.Context, addr string, ready func(addr string)) error {
	host, port, err := net.SplitHostPort(addr)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || host != "localhost" && host != "127.0.0.1" {
		return fmt.Errorf("beam: a worker pool listens at localhost:PORT, not at %q: %w", addr, pipeline.ErrConfig)
	}
	pool, err := extworker.StartLoopback(ctx, int(n))
	if err != nil {
		return fmt.Errorf("beam: worker pool at %s: %w: %w", addr, err, pipeline.ErrUnavailable)
	}
	if ready != nil {
		ready(pool.EnvironmentConfig(ctx))
	}
	<-ctx.Done()
	return pool.Stop(context.WithoutCancel(ctx))
}
