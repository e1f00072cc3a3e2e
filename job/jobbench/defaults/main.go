// Command defaults measures what models reach that nobody tuned: the job that `monolith init` writes, with each model
// in turn, on data sets and on generated sets whose best possible score is known.
//
//	export MONOLITH_DATA=/path/to/data                        # or -data; generated sets need none
//	go run ./job/jobbench/defaults -out /tmp/defaults.tsv     # everything; hours. A run that was killed continues
//	go run ./job/jobbench/defaults -data-sets '^ids39$' -models '^(lr|fm|deepfm)$' -seeds 5
//	go run ./job/jobbench/defaults -data-sets '^two-ids$' -models '^(lr|fm)$' -workers 1,2,4 -batches init,4096 -seeds 5
//	go run ./job/jobbench/defaults -set optimizer.bias.ftrl.lr=0.1 -out /tmp/changed.tsv
//
// Each run is a cell: a set, a model, a seed, a batch size and a number of workers. The seed makes the job's initial
// values and the set's rows: their truth where they are generated, their order and what is held out otherwise. A
// finished cell is a line of -out, and is not run again. Name another file after a change of the code.
//
// xLearn and PyTorch, where they are installed, train on the same rows with their own defaults: models xlearn-lr and the
// like. -with xlearn=FILE and -with torch=FILE name xlearn_train and a Python that has torch; a line says how to install
// what is not there. init's job holds a tenth of its rows out, unless -all-rows; peers do not.
//
// The table has a block for each set. Scores are those of a validation file, after each pass; "kept" is the snapshot
// that `monolith eval` takes. "first" and "last" are the first and the last 65,536 rows of the first pass, "life" all
// of them, each predicted before it is learnt. The last column says what a model misses: "auc" if it is below that of
// lr by more than .002 (.005 where the truth is linear), "loss" if its log loss is above that of lr by more than .005,
// "constant" if it is worse than the base rate, and "peer" if init's AUC is below the best peer's by more than .003.
// Scores are means over seeds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options are what is measured.
type options struct {
	sets, models     *regexp.Regexp
	seeds, passes    int
	batches, workers []int
	set              []string
	with             map[string]string // programs of peers
	allRows          bool
	data, out, dir   string
	share            float64
	markdown         bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			_, _ = fmt.Fprintln(os.Stderr, "defaults:", err)
		}
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// command measures what the arguments ask for, and prints the table of it.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	finished := map[cell]result{}
	write, done := func(cell, result) error { return nil }, func() error { return nil }
	if o.out != "" {
		if finished, err = readResults(o.out); err != nil {
			return err
		}
		if write, done, err = appendTo(o.out); err != nil {
			return err
		}
	}
	asked, err := measure(ctx, o, finished, write, stderr)
	if err := errors.Join(err, done()); err != nil {
		return err
	}
	shown := map[cell]result{}
	for _, c := range asked {
		shown[c] = finished[c]
	}
	_, err = io.WriteString(stdout, table(shown, o))
	return err
}

// parse reads the arguments.
func parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("defaults", flag.ContinueOnError)
	f.SetOutput(stderr)
	var problems []error
	pattern := func(to **regexp.Regexp, name, what string) {
		*to = regexp.MustCompile("")
		f.Func(name, what, func(s string) (err error) {
			*to, err = regexp.Compile(s)
			return err
		})
	}
	// Besides numbers from 1 there is a word, for the usual one.
	numbers := func(to *[]int, name, what, word string, usual int) {
		*to = []int{usual}
		f.Func(name, what, func(s string) error {
			*to = nil
			for part := range strings.SplitSeq(s, ",") {
				n, err := strconv.Atoi(part)
				if part == word {
					n = usual
				} else if err != nil || n < 1 {
					return fmt.Errorf("%q is no number from 1", part)
				}
				*to = append(*to, n)
			}
			return nil
		})
	}
	pattern(&o.sets, "data-sets", "regular expression of the `names` of data sets; all")
	pattern(&o.models, "models", "regular expression of the `names` of models and peers; all")
	f.IntVar(&o.seeds, "seeds", 1, "seeds 1 to `N`")
	numbers(&o.batches, "batches", "batch `sizes`; init is that of init's job (default init)", "init", ownBatch)
	numbers(&o.workers, "workers", "`numbers` of workers (default 1)", "", 1)
	f.IntVar(&o.passes, "passes", 3, "how often the training rows are read")
	f.Func("set", "`key=value` of the job; may be given again", func(s string) error {
		if !strings.Contains(s, "=") || strings.ContainsAny(s, "\t\n") {
			return errors.New("want key=value")
		}
		o.set = append(o.set, s)
		return nil
	})
	o.with = map[string]string{}
	f.Func("with", "`program=FILE` of a peer, xlearn or torch; may be given again", func(s string) error {
		name, file, _ := strings.Cut(s, "=")
		if _, ok := programs[name]; !ok || file == "" {
			return errors.New("want xlearn=FILE or torch=FILE")
		}
		o.with[name] = file
		return nil
	})
	f.BoolVar(&o.allRows, "all-rows", false, "train on all training rows: without what init's job holds out, and so without an early stop")
	f.StringVar(&o.data, "data", os.Getenv("MONOLITH_DATA"), "`folder` that has datasets (default MONOLITH_DATA)")
	f.Float64Var(&o.share, "share", 1, "share of the rows of generated sets, for a quick look")
	f.StringVar(&o.out, "out", "", "`file` of tab-separated results; cells that it has are not run again")
	f.StringVar(&o.dir, "dir", "", "`folder` for rows and snapshots (default a temporary one)")
	f.BoolVar(&o.markdown, "markdown", false, "print the table in Markdown")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		problems = append(problems, fmt.Errorf("%q is no flag", f.Arg(0)))
	}
	if o.seeds < 1 || o.passes < 1 || !(o.share > 0) {
		problems = append(problems, errors.New("-seeds and -passes must be 1 or more, -share above 0"))
	}
	return o, errors.Join(problems...)
}

// settings are what of the options a cell remembers.
func (o options) settings() string {
	s := slices.Clone(o.set)
	if o.allRows {
		s = append(s, "-all-rows")
	}
	if o.share != 1 {
		s = append(s, "-share="+strconv.FormatFloat(o.share, 'g', -1, 64))
	}
	return strings.Join(s, " ")
}

// contender is what a data set is learnt by.
type contender struct {
	name string
	// batches and workers report whether its result goes by them.
	batches, workers bool
	// peer is its program, where it is one.
	peer string
	run  func(ctx context.Context, c cell, s dataSet, d *data, folder, dir string) (result, error)
}

// contenders are the constant, the best possible and lr, which every table has, and the models that are asked for.
func contenders(o options) []contender {
	known := func(name string, of func(*data) score) contender {
		return contender{name: name, run: func(_ context.Context, _ cell, _ dataSet, d *data, _, _ string) (result, error) {
			s := of(d)
			nothing := score{math.NaN(), math.NaN()}
			return result{passes: []score{s}, kept: s, first: nothing, last: nothing, life: nothing}, nil
		}}
	}
	all := []contender{known("constant", constant), known("best", best)}
	for _, name := range models() {
		if name == "lr" || o.models.MatchString(name) { // others are compared with lr
			all = append(all, contender{name: name, batches: true, workers: true, run: func(ctx context.Context, c cell, s dataSet, _ *data, folder, dir string) (result, error) {
				return run(ctx, c, o, s, folder, dir)
			}})
		}
	}
	for _, p := range peers {
		if o.models.MatchString(p.name) {
			all = append(all, contender{name: p.name, peer: p.program, batches: p.program == "torch", run: func(ctx context.Context, c cell, _ dataSet, d *data, _, dir string) (result, error) {
				path, err := find(ctx, p.program, o.with)
				if err != nil {
					return result{}, err
				}
				return runPeer(ctx, path, p.program, p.kind, c, d, dir)
			}})
		}
	}
	return all
}

// measure runs all cells that are asked for and not finished, and returns those that are asked for. What is finished is
// put to the others and written.
func measure(ctx context.Context, o options, finished map[cell]result, write func(cell, result) error, progress io.Writer) (asked []cell, err error) {
	dir := o.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "monolith-defaults-"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	all := present(ctx, contenders(o), o, progress)
	for _, s := range dataSets(filepath.Join(o.data, "datasets"), o.share) {
		if !o.sets.MatchString(s.name) {
			continue
		}
		for seed := uint64(1); seed <= uint64(o.seeds); seed++ {
			cells, run := cellsOf(o, all, s, seed)
			missing := slices.DeleteFunc(slices.Clone(cells), func(c cell) bool {
				r, ok := finished[c]
				return ok && r.failed == ""
			})
			if len(missing) > 0 {
				d, err := s.make(seed)
				if errors.Is(err, fs.ErrNotExist) {
					say(progress, "%s is left out: %v; -data names the folder that has datasets", s.name, err)
					break
				}
				if err != nil {
					return nil, err
				}
				folder := filepath.Join(dir, fmt.Sprintf("%s-%d", s.name, seed))
				if err := d.write(folder); err != nil {
					return nil, err
				}
				for _, c := range missing {
					begin, job := time.Now(), filepath.Join(dir, "run")
					r, err := run[c](ctx, c, s, d, folder, job)
					if ctx.Err() != nil {
						return nil, context.Cause(ctx)
					}
					if r.seconds = time.Since(begin).Seconds(); err != nil {
						r = result{failed: err.Error()}
					}
					if _, r, err = readLine(line(c, r)); err != nil { // the table of a run that continues is the same
						return nil, err
					}
					finished[c] = r
					if err := errors.Join(write(c, r), os.RemoveAll(job)); err != nil {
						return nil, err
					}
					say(progress, "%s: %s", c, r)
				}
				if err := os.RemoveAll(folder); err != nil {
					return nil, err
				}
			}
			asked = append(asked, cells...)
		}
	}
	return asked, nil
}

// present are the contenders but for peers that are not installed, of which it says how to install them.
func present(ctx context.Context, all []contender, o options, progress io.Writer) []contender {
	absent := map[string]error{}
	return slices.DeleteFunc(all, func(c contender) bool {
		if c.peer == "" {
			return false
		}
		err, asked := absent[c.peer]
		if !asked {
			if _, err = find(ctx, c.peer, o.with); err != nil {
				say(progress, "%s is left out: %v", c.peer, err)
			}
			absent[c.peer] = err
		}
		return err != nil
	})
}

// cellsOf are the cells of a set and a seed, and how each is run.
func cellsOf(o options, all []contender, s dataSet, seed uint64) (cells []cell, run map[cell]func(context.Context, cell, dataSet, *data, string, string) (result, error)) {
	run = map[cell]func(context.Context, cell, dataSet, *data, string, string) (result, error){}
	for _, who := range all {
		batches, workers := o.batches, o.workers
		if !who.batches {
			batches = []int{0}
		}
		if !who.workers {
			workers = []int{0}
		}
		for _, b := range batches {
			for _, w := range workers {
				c := cell{set: s.name, model: who.name, seed: seed, batch: b, workers: w, passes: o.passes, settings: o.settings()}
				cells, run[c] = append(cells, c), who.run
			}
		}
	}
	return cells, run
}

// say prints a line of progress.
func say(to io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(to, format+"\n", args...) // progress that nobody can read is no reason to end
}

// String is a result in a line of progress.
func (r result) String() string {
	if r.failed != "" {
		return "failed: " + oneLine(r.failed)
	}
	var auc []string
	for _, p := range r.passes {
		auc = append(auc, fmt.Sprintf("%.4f", p.auc))
	}
	return fmt.Sprintf("auc %s, kept %.4f, log loss %.4f (%.1f s)", strings.Join(auc, " "), r.kept.auc, r.kept.logLoss, r.seconds)
}
