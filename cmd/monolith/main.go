// Command monolith trains recommendation models on streams. See `monolith help`.
package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/monolith-go/monolith/cmd/monolith/internal/cli"
	"github.com/monolith-go/monolith/internal/simd/simdblas"
	"github.com/monolith-go/monolith/job"
)

// version is set by release builds (-ldflags "-X main.version=v1.2.3"); otherwise the build information says it.
var version string

func main() {
	abortOnCrash(os.Getenv)
	simdblas.Use()
	recipes := &job.Recipes{}
	runners := runners(recipes)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, cli.Signals()...)
	app := &cli.App{Ops: ops(runners, recipes), Version: version, Env: os.Environ(), Signals: signals}
	os.Exit(app.Run(context.Background(), os.Args[1:]))
}
