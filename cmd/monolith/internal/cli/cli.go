// Package cli is the command line: it reads flags and jobs, calls the functions of [Ops], and writes what they return.
// Nothing here knows how training works.
//
// Standard output carries the result and nothing else; logs, progress and notices go to standard error. Every error
// becomes an exit code in one place, see [Exit].
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/psbench"
)

// Ops are the functions behind the commands. A nil one makes its command fail with an error that says so.
type Ops struct {
	// Train runs a job until its input ends or it is asked to drain.
	Train func(context.Context, *job.Config, job.RunOptions) (*job.TrainResult, error)
	// Serve serves shards of a job's parameter server.
	Serve func(context.Context, *job.Config, job.ServeOptions) (*job.ServeResult, error)
	// ServeModels answers requests with exported models.
	ServeModels func(context.Context, job.ServeModelsOptions) error
	// Scale makes the shards of a running job others.
	Scale func(context.Context, *job.Config, job.ScaleOptions) (*job.Scaled, error)
	// Promote lets the standby of a shard take over.
	Promote func(context.Context, *job.Config, job.PromoteOptions) (*job.Promoted, error)
	// Pool runs executors for a worker of a Beam runner until ctx ends.
	Pool func(ctx context.Context, listen string, ready func(addr string)) error
	// Translate makes what training a job would submit to its runner, as JSON. It reads no data.
	Translate func(context.Context, *job.Config) (json.RawMessage, error)
	// Eval evaluates a snapshot.
	Eval func(context.Context, *job.Config, job.EvalOptions) (*job.EvalResult, error)
	// Tune searches for settings of a job.
	Tune func(context.Context, *job.Config, job.TuneOptions) (*job.Tuned, error)
	// Predict writes predictions of a snapshot.
	Predict func(context.Context, *job.Config, job.PredictOptions) (*job.Predicted, error)
	// Plan checks a job's graph without I/O.
	Plan func(*job.Config) (job.Plan, error)
	// Cut describes how the job's runner cuts its graph. It lists the source's splits and reads no data.
	Cut func(context.Context, *job.Config) (*pipeline.Cut, error)
	// Model writes the graph of a job's model.
	Model func(*job.Config) ([]byte, error)
	// Check looks for everything that would keep a job from running, without reading data.
	Check func(context.Context, *job.Config) ([]job.Finding, error)
	// Need reckons what the tables of a job will take.
	Need func(context.Context, *job.Config, job.NeedOptions) (*job.MemoryNeed, error)
	// InspectSource looks into a job's source.
	InspectSource func(context.Context, *job.Config, job.InspectOptions) (*job.SourceInfo, error)
	// Propose writes a job for a source.
	Propose func(ctx context.Context, target string, o job.ProposeOptions) (*job.Proposed, error)
	// InspectSnapshot describes a snapshot, or the newest one of a job's dir.
	InspectSnapshot func(ctx context.Context, path string) (*job.SnapshotInfo, error)
	// InspectSlots describes the rows of a snapshot, or of the newest one of a job's dir, by their slots.
	InspectSlots func(ctx context.Context, path string, o job.SlotOptions) (*job.SnapshotSlots, error)
	// Models are the functions behind `monolith model`.
	Models ModelOps
	// PS are the functions behind the commands below `monolith ps`.
	PS RowOps
	// Snapshots are the functions behind `monolith snapshot`.
	Snapshots SnapshotOps
	// ExportModel writes the model of a snapshot, or its rows, for other programs, FetchExport brings a native one from a store to this machine, and VerifyExport reads all of one.
	ExportModel  func(context.Context, job.ExportModelOptions) (*job.ExportedModel, error)
	FetchExport  func(context.Context, job.FetchExportOptions) (*job.FetchedExport, error)
	VerifyExport func(ctx context.Context, dir string) (*job.VerifiedExport, error)
	// Import makes a snapshot for a job of a checkpoint of bytedance/monolith, and Export such a checkpoint of a snapshot.
	Import func(context.Context, *job.Config, job.ImportOptions) (*job.Imported, error)
	Export func(context.Context, job.ExportOptions) (*job.Exported, error)
	// Demo trains on a synthetic stream from a broker in this process.
	Demo func(context.Context, job.DemoOptions) (*job.DemoResult, error)
	// Begin is called before any command: its error says what of the environment cannot be had; nil: nothing.
	Begin func() error
	// Bench measures, by the name of the benchmark.
	Bench map[string]func(context.Context, bench.Options) ([]bench.Result, error)
	// BenchShards measures the shards of a job's cluster.
	BenchShards func(context.Context, *job.Config, job.Asking, psbench.ShardsOptions) ([]psbench.ShardRates, error)
}

// App is one invocation of the program. All fields but Ops may be left zero.
type App struct {
	Ops Ops
	// Version is that of the release, empty for what the build information says.
	Version string
	// BuildInfo is what the Go toolchain stored about the build; nil: what is in this program.
	BuildInfo *debug.BuildInfo
	// Stdin, Stdout and Stderr default to the process's own. A job file called - is read from Stdin.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Env is the environment as NAME=value pairs.
	Env []string
	// Signals delivers what the process is sent; nil: nothing.
	Signals <-chan os.Signal

	json, noColor, quiet, verbose bool

	// typed names the flag behind each override that did not come from --set; see [App.fromFlag].
	typed map[string]string

	// piped is the job file that came by standard input; nil: it was not read.
	piped []byte

	screen    *ui.Screen
	logger    atomic.Pointer[slog.Logger]
	logFormat atomic.Pointer[string]
	drain     chan struct{}
	snapshot  chan struct{}          // has one while a signal asks for a snapshot
	drains    atomic.Pointer[string] // how the command answers the first signal by draining; nil: it does not
	drainedBy atomic.Int32           // the signal that asked to drain; 0: none did
	cancel    context.CancelCauseFunc
}

// errMissing reports a command that the program was built without.
var errMissing = errors.New("this program was built without that command")

// Run runs one command line, without the program's name, and returns the process's exit code. A second SIGINT or SIGTERM
// makes it return at once, leaving goroutines behind: the caller exits.
func (a *App) Run(ctx context.Context, args []string) int {
	if a.Stdin == nil {
		a.Stdin = os.Stdin
	}
	if a.Stdout == nil {
		a.Stdout = os.Stdout
	}
	if a.Stderr == nil {
		a.Stderr = os.Stderr
	}
	a.json = wantsJSON(args)
	a.screen = ui.NewScreen(a.Stderr, false, a.getenv)
	a.setLogger(&job.Log{Level: "info", Format: "text"})
	a.drain, a.snapshot = make(chan struct{}), make(chan struct{}, 1)
	ctx, a.cancel = context.WithCancelCause(ctx)
	defer a.cancel(nil)
	a.Stdin = &interruptible{ctx: ctx, from: a.Stdin}

	done := make(chan int, 1)
	go func() { done <- a.execute(ctx, args) }()
	return a.supervise(done)
}

func (a *App) execute(ctx context.Context, args []string) int {
	out := &outcome{command: "monolith"}
	root := a.root(out)
	root.SetArgs(args)
	ran, err := root.ExecuteContextC(ctx)
	out.help = ran.CommandPath() + " --help"
	if cause := context.Cause(ctx); err != nil && cause != nil && errors.Is(err, context.Canceled) {
		err = cause // what cancelled it says more
	}
	a.screen.SetLine("")
	return a.finish(out, err)
}

// wantsJSON finds --json before flags are parsed, so that an error in them is reported in the envelope too.
func wantsJSON(args []string) bool {
	for _, arg := range args {
		switch arg {
		case "--":
			return false
		case "--json", "--json=true":
			return true
		}
	}
	return false
}

func (a *App) getenv(name string) string {
	for _, kv := range slices.Backward(a.Env) { // the last one counts, as in os.Environ
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// setLogger makes the logger a job asks for; -v and -q win over it.
func (a *App) setLogger(cfg *job.Log) {
	var level slog.Level
	switch {
	case a.verbose:
		level = slog.LevelDebug
	case a.quiet:
		level = slog.LevelError
	default:
		// The job's check has seen to it that the level is one of slog's.
		_ = level.UnmarshalText([]byte(cfg.Level))
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	format := cfg.Format
	var handler slog.Handler = slog.NewTextHandler(a.screen, opts)
	if format == "json" {
		handler = slog.NewJSONHandler(a.screen, opts)
	}
	a.logger.Store(slog.New(handler))
	a.logFormat.Store(&format)
}

// utf8 reports whether the locale's text is UTF-8: only one that is set and says otherwise is not.
func (a *App) utf8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := a.getenv(name); v != "" {
			return v != "C" && v != "POSIX" && !strings.Contains(strings.ToUpper(v), "ASCII") && !strings.Contains(strings.ToUpper(v), "8859")
		}
	}
	return true
}

// readable writes durations in both formats as people do, with four digits at most: 1.234s, not 1234567890; and errors as
// the command writes them.
func readable(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok && err != nil {
		return slog.String(a.Key, failure.Plain(err))
	}
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	d, unit := a.Value.Duration(), time.Duration(1)
	for limit := 10 * time.Microsecond; d.Abs() >= limit && unit < time.Second; limit *= 10 {
		unit *= 10
	}
	return slog.String(a.Key, d.Round(unit).String())
}

// notice prints a line for the user, which in a log of JSON is a record of level info; -q silences it.
func (a *App) notice(text string) {
	switch {
	case a.quiet:
	case *a.logFormat.Load() == "json":
		a.record(slog.LevelInfo, text)
	default:
		_, _ = io.WriteString(a.screen, "monolith: "+text+"\n")
	}
}

// record writes what is for the user into the log, whatever its level is.
func (a *App) record(level slog.Level, text string, attrs ...slog.Attr) {
	r := slog.NewRecord(time.Now(), level, text, 0)
	r.AddAttrs(attrs...)
	_ = a.logger.Load().Handler().Handle(context.Background(), r) // as of all that is logged
}
