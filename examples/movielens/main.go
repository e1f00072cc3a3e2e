// Command movielens trains the jobs of this folder, one after the other, and prints a table of what they reach: docs/quality.md.
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

// jobs are the job files of this folder, in the order of the table.
func jobs() []string {
	return []string{"two_tower", "like", "rating", "mmoe", "ple", "fm", "din", "hstu"}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "movielens:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// options are the command's.
type options struct {
	data, jobs, dir string
	nth, seed       int
}

// command writes the files that two towers want, and trains the jobs that the arguments name, or all: a row of the table as soon as it is known to out, each
// evaluation to log.
func command(ctx context.Context, args []string, out, log io.Writer) error {
	var o options
	flags := flag.NewFlagSet("movielens [JOB...]", flag.ExitOnError)
	flags.StringVar(&o.data, "data", os.Getenv("MONOLITH_DATA"), "folder that holds datasets/ml1m-bin")
	flags.StringVar(&o.jobs, "jobs", "examples/movielens", "folder of the job files")
	flags.StringVar(&o.dir, "dir", "runs/movielens-1m", "folder for files with histories and, below it, for the snapshots of each job and seed")
	flags.IntVar(&o.nth, "nth", 1, "take every nth user alone, in the files with histories")
	flags.IntVar(&o.seed, "seed", 1, "seed of initial values and shuffles")
	_ = flags.Parse(args) // it exits
	names := flags.Args()
	for _, name := range names {
		if !slices.Contains(jobs(), name) {
			return fmt.Errorf("there is no job %q; the jobs are %s", name, strings.Join(jobs(), ", "))
		}
	}
	if len(names) == 0 {
		names = jobs()
	}
	if o.data == "" {
		return errors.New("name the folder of the data sets with -data or MONOLITH_DATA")
	}
	if o.nth < 1 {
		return fmt.Errorf("-nth is %d, want 1 or more", o.nth)
	}
	d, err := read(filepath.Join(o.data, "datasets/ml1m-bin"), o.nth)
	if err != nil {
		return err
	}
	if err := d.write(o.files()); err != nil {
		return err
	}
	if _, err := fmt.Fprint(out, "| job | seed | epochs (best) | s | processor s | |\n|---|---|---|---|---|---|\n"); err != nil {
		return err
	}
	for _, name := range names {
		row, err := o.train(ctx, name, log)
		if err != nil {
			return err
		}
		if name == "two_tower" {
			row += fmt.Sprintf("; popularity has %.4f, that of the last 30,000 likes %.4f", d.popularity(len(d.train)), d.popularity(30_000))
		}
		if _, err := fmt.Fprintf(out, "%s |\n", row); err != nil {
			return err
		}
	}
	return nil
}

// files is where the files with histories are.
func (o options) files() string { return filepath.Join(o.dir, "files") }

// load reads a job. set are further settings, as of --set.
func (o options) load(name string, set ...string) (*job.Config, error) {
	return job.Load(filepath.Join(o.jobs, name+".yaml"), job.LoadOptions{
		Env: append(os.Environ(), "MONOLITH_DATA="+o.data, "MOVIELENS_FILES="+o.files()),
		Set: append([]string{"dir=" + filepath.Join(o.dir, fmt.Sprintf("%s-%d", name, o.seed)), fmt.Sprintf("seed=%d", o.seed)}, set...),
	})
}

// train runs a job and returns its row of the table, open at the end. Where the job stops early it has the evaluation of the epoch whose snapshot is kept.
func (o options) train(ctx context.Context, name string, log io.Writer) (string, error) {
	cfg, err := o.load(name)
	if err != nil {
		return "", err
	}
	began := bench.CPUSeconds()
	evaluated := map[int]job.Scores{}
	r, err := job.Run(ctx, cfg, job.RunOptions{Evaluated: func(epoch int, s job.Scores) {
		evaluated[epoch] = s
		fmt.Fprintf(log, "%s, seed %d, epoch %d: %s\n", name, o.seed, epoch, scores(s)) //nolint:errcheck // it is only to watch
	}})
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if r.Examples == 0 {
		return "", fmt.Errorf("%s: everything in %s is trained already; name another -dir, or remove it", name, cfg.Dir)
	}
	epochs, reached := fmt.Sprint(r.Epochs), r.Metrics
	if best := evaluated[r.BestEpoch]; best != nil { // early stop has kept its snapshot
		epochs, reached = fmt.Sprintf("%d (%d)", r.Epochs, r.BestEpoch), best
	}
	return fmt.Sprintf("| `%s` | %d | %s | %.0f | %.0f | %s", name, o.seed, epochs, r.Seconds, bench.CPUSeconds()-began, scores(reached)), nil
}

// scores writes metrics of evaluations side by side.
func scores(s job.Scores) string {
	var parts []string
	for _, name := range s.Names() {
		if !strings.Contains(name, "progressive_") && !strings.Contains(name, "training_") {
			parts = append(parts, fmt.Sprintf("%s %.4f", name, s[name]))
		}
	}
	return strings.Join(parts, ", ")
}
