// Command frappe trains the jobs of this folder, one after the other, each to where it stops, and prints a table of what they reach beside the published
// figures: docs/quality.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job"
)

// tolerance is by how much an AUC may fall short of the published one.
const tolerance = .002

// errShort is the error of a table with a figure that is too low.
var errShort = errors.New("short of the published AUC by more than .002")

// published are the models in the order of the table, each the name of a job file, with the test AUC of the leaderboard Frappe_x1 of BARS (reczoo/BARS,
// docs/CTR/leaderboard/frappe_x1.csv).
func published() []figure {
	return []figure{
		{"lr", .9356},
		{"fm", .9671},
		{"afm", .9697},
		{"nfm", .9804},
		{"wide_deep", .9841},
		{"deepfm", .9842},
		{"xdeepfm", .9845},
		{"dcn", .9839},
		{"dcnv2", .9845},
		{"autoint", .9831},
		{"dlrm", .9840},
		{"finalmlp", .9861},
	}
}

type figure struct {
	model string
	auc   float64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "frappe:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// command writes the table of the models that the arguments name, or of all, to out, a row as soon as it is known, and each evaluation to log. It fails with
// errShort, when all rows are written, if one of them is too low.
func command(ctx context.Context, args []string, out, log io.Writer) error {
	var t trainer
	flags := flag.NewFlagSet("frappe [MODEL...]", flag.ExitOnError)
	flags.StringVar(&t.data, "data", os.Getenv("MONOLITH_DATA"), "folder that holds datasets/frappe")
	flags.StringVar(&t.jobs, "jobs", "examples/frappe", "folder of the job files")
	flags.StringVar(&t.dir, "dir", "runs/frappe", "folder for snapshots, one below it for each model and seed; what is there is trained on")
	seed := flags.Int("seed", 1, "seed of initial values, shuffles and dropout")
	_ = flags.Parse(args) // it exits
	t.log = log
	rows := published()
	if names := flags.Args(); len(names) > 0 {
		rows = slices.DeleteFunc(rows, func(f figure) bool { return !slices.Contains(names, f.model) })
		if len(rows) < len(names) {
			return fmt.Errorf("the models are %s; %s are not all among them", strings.Join(models(), ", "), strings.Join(names, ", "))
		}
	}
	if t.data == "" {
		return errors.New("name the folder of the data sets with -data or MONOLITH_DATA")
	}
	if _, err := fmt.Fprint(out, "| model | seed | epochs (best) | s | processor s | log loss | AUC | published | difference |\n|---|---|---|---|---|---|---|---|---|\n"); err != nil {
		return err
	}
	var short []string
	for _, f := range rows {
		r, err := t.train(ctx, f.model, *seed)
		if err != nil {
			return err
		}
		if r.best["auc"] < f.auc-tolerance {
			short = append(short, f.model)
		}
		if _, err := fmt.Fprintf(
			out, "| `%s` | %d | %d (%d) | %.0f | %.0f | %s | %s | %s | %+.4f |\n",
			f.model, *seed, r.Epochs, r.BestEpoch, r.Seconds, r.processor, decimals(r.best["log_loss"]), decimals(r.best["auc"]), decimals(f.auc), r.best["auc"]-f.auc,
		); err != nil {
			return err
		}
	}
	if len(short) > 0 {
		return fmt.Errorf("%w: %s", errShort, strings.Join(short, ", "))
	}
	return nil
}

func models() []string {
	var names []string
	for _, f := range published() {
		names = append(names, f.model)
	}
	return names
}

// decimals is a number between 0 and 1 as tables have it.
func decimals(x float64) string { return strings.TrimPrefix(fmt.Sprintf("%.4f", x), "0") }

// trainer trains jobs.
type trainer struct {
	data, jobs, dir string
	log             io.Writer
}

// trained is what a job came to.
type trained struct {
	*job.TrainResult
	// first and best are the evaluations after the first epoch and after the one with the best AUC.
	first, best job.Scores
	// processor is the processor time of this process, in seconds.
	processor float64
}

// train runs the job of a model. set are further settings, as of --set.
func (t trainer) train(ctx context.Context, model string, seed int, set ...string) (*trained, error) {
	cfg, err := job.Load(filepath.Join(t.jobs, model+".yaml"), job.LoadOptions{
		Env: append(os.Environ(), "MONOLITH_DATA="+t.data),
		Set: append([]string{"dir=" + filepath.Join(t.dir, fmt.Sprintf("%s-%d", model, seed)), fmt.Sprintf("seed=%d", seed)}, set...),
	})
	if err != nil {
		return nil, err
	}
	r := &trained{}
	began := bench.CPUSeconds()
	r.TrainResult, err = job.Run(ctx, cfg, job.RunOptions{Evaluated: func(epoch int, s job.Scores) {
		fmt.Fprintf(t.log, "%s, seed %d, epoch %d: AUC %.5f, log loss %.4f\n", model, seed, epoch, s["auc"], s["log_loss"]) //nolint:errcheck // it is only to watch
		if r.first == nil {
			r.first = s
		}
		if r.best == nil || s["auc"] > r.best["auc"] {
			r.best = s
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", model, err)
	}
	if r.best == nil {
		return nil, fmt.Errorf("%s: everything in %s is trained already; name another -dir, or remove it", model, cfg.Dir)
	}
	r.processor = bench.CPUSeconds() - began
	return r, nil
}
