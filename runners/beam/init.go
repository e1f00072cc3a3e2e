package beam

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"sync"

	sdk "github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/runtime/harness"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/core/util/hooks"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism" // makes the runner known to sdk.Run

	"github.com/monolith-go/monolith/internal/beamuser"
)

// Beam is initialised: this package imports it.
func init() { beamuser.TakeBack() }

// initOnce: Beam may be initialised once in a process.
var initOnce sync.Once

// Init makes the process ready to be a worker or to call [Run]; call it first thing in main, after [Register]. In a process
// that a runner has started as a worker it serves the runner and never returns. Otherwise it returns at once: it parses no
// flags, and those that Beam declares stay on [flag.CommandLine], where a program that parses its own never meets them.
func Init() {
	initOnce.Do(func() {
		sdk.RegisterDoFn(reflect.TypeFor[leaseFn]())
		sdk.RegisterDoFn(reflect.TypeFor[boundedFn]())
		sdk.RegisterDoFn(reflect.TypeFor[collectFn]())
		sdk.RegisterDoFn(reflect.TypeFor[feedFn]())
		sdk.RegisterDoFn(reflect.TypeFor[groupFn]())
		sdk.RegisterDoFn(reflect.TypeFor[pickFn]())
		sdk.RegisterDoFn(reflect.TypeFor[handFn]())
		if boot, ok := parseBoot(os.Args[1:]); ok {
			sdk.Init()
			if err := boot.work(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1) //nolint:forbidigo // as Beam's own worker does: main was started for nothing else
			}
			os.Exit(0) //nolint:forbidigo // as above
		}
		// A harness in this process would take over Beam's log and send it in a circle, in the end to the standard error.
		hooks.DisableHook(harness.DefaultRemoteLoggingHook)
		keepLogs(sdk.Init)
	})
}
