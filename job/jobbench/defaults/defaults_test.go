package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
)

// generatedSets are those whose truth is known, with a share of their rows.
func generatedSets(t *testing.T, share float64) (sets []dataSet) {
	t.Helper()
	for _, s := range dataSets(t.TempDir(), share) {
		if _, err := s.make(1); err == nil {
			sets = append(sets, s)
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want that files are not there", s.name, err)
		}
	}
	if len(sets) != 9 {
		t.Fatalf("%d generated sets", len(sets))
	}
	return sets
}

// expected are the AUC and the log loss that labels drawn by probabilities have in the mean, by definition. A pair of
// rows counts by how likely one is positive and the other negative.
func expected(p []float64) score {
	var wins, pairs, loss float64
	for i, a := range p {
		loss -= (a*math.Log(a) + (1-a)*math.Log(1-a)) / float64(len(p))
		for j, b := range p {
			if i == j {
				continue
			}
			pairs += a * (1 - b)
			if a > b {
				wins += a * (1 - b)
			}
		}
	}
	return score{wins / pairs, loss}
}

// TestBestPossible: the best possible scores are about those that the true probabilities lead one to expect, and as many
// rows are positive as should be.
func TestBestPossible(t *testing.T) {
	t.Parallel()
	positives := map[string]float64{"rare": .005}
	for _, s := range generatedSets(t, .1) {
		d, err := s.make(1)
		if err != nil {
			t.Fatal(err)
		}
		var p []float64
		sum, positive := 0., 0.
		for _, r := range d.valid {
			p = append(p, r.p)
		}
		all := slices.Concat(d.train, d.valid)
		for _, r := range all {
			sum, positive = sum+r.p/float64(len(all)), positive+float64(bit(r.positive))/float64(len(all))
		}
		want, got, base := expected(p), best(d), constant(d)
		if math.Abs(got.auc-want.auc) > .06 || math.Abs(got.logLoss-want.logLoss) > .06*want.logLoss+.005 {
			t.Errorf("%s: best %+v, want about %+v", s.name, got, want)
		}
		if got.auc < base.auc+.1 || got.logLoss > base.logLoss-.0005 {
			t.Errorf("%s: best %+v, but a constant has %+v", s.name, got, base)
		}
		if want := positives[s.name]; want > 0 && math.Abs(sum-want) > 1e-6 || math.Abs(positive-sum) > .03 {
			t.Errorf("%s: the probabilities have a mean of %g, the labels of %g", s.name, sum, positive)
		}
	}
}

// TestBestIsBest: what is not the truth is worse than it.
func TestBestIsBest(t *testing.T) {
	t.Parallel()
	for _, s := range generatedSets(t, .1) {
		d, err := s.make(2)
		if err != nil {
			t.Fatal(err)
		}
		want, rng := best(d), rand.New(rand.NewPCG(1, 2))
		for i, r := range d.valid {
			d.valid[i].p = sigmoid(math.Log(r.p/(1-r.p)) + 2*rng.NormFloat64())
		}
		if got := best(d); got.auc > want.auc || got.logLoss < want.logLoss {
			t.Errorf("%s: with noise %+v, by the truth %+v", s.name, got, want)
		}
	}
}

// TestSeeds: a seed makes the same rows again, another one others.
func TestSeeds(t *testing.T) {
	t.Parallel()
	for _, s := range generatedSets(t, .01) {
		var rows []string
		for _, seed := range []uint64{1, 1, 2} {
			d, err := s.make(seed)
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, fmt.Sprint(d.train, d.valid))
		}
		if rows[0] != rows[1] || rows[0] == rows[2] {
			t.Errorf("%s: seed 1 again is the same %t, seed 2 is %t", s.name, rows[0] == rows[1], rows[0] == rows[2])
		}
	}
}

// runCells runs a model on a set, and returns its result and the constant's and the best possible score.
func runCells(t *testing.T, s dataSet, model string, passes int, set ...string) (r result, base, top score) {
	t.Helper()
	d, err := s.make(1)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := d.write(folder); err != nil {
		t.Fatal(err)
	}
	r, err = run(t.Context(), cell{set: s.name, model: model, seed: 1, batch: 64, workers: 1, passes: passes}, options{set: set}, s, folder, filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatalf("%s on %s: %v", model, s.name, err)
	}
	return r, constant(d), best(d)
}

// TestLinearTruth: logistic regression comes near the best that is possible where the truth is linear and there are few
// ids, and a factorization machine far above it where only products say something.
func TestLinearTruth(t *testing.T) {
	t.Parallel()
	linear := dataSet{name: "linear", make: func(seed uint64) (*data, error) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := manyIDs(rng, 2, 1.5, 0)
		draw := l.draw
		l.draw = func(rng *rand.Rand, time float64) ([]string, float64) { // of few ids, so that all are learnt
			for {
				if cells, logit := draw(rng, time); len(cells[1]) < 3 {
					return cells, logit
				}
			}
		}
		return generate(rng, l, 8000, 4000, .4), nil
	}}
	r, base, top := runCells(t, linear, "lr", 3, "optimizer.bias.ftrl.lr=0.2")
	if r.kept.auc < top.auc-.02 || r.kept.logLoss > top.logLoss+.01 || !slices.Contains(r.passes, r.kept) {
		t.Errorf("kept %+v of %+v, the best possible is %+v", r.kept, r.passes, top)
	}
	if r.life.auc < .6 || r.life.auc > r.passes[0].auc || r.first != r.life || r.last != r.life || r.life.logLoss > base.logLoss {
		t.Errorf("before learning %+v, %+v, %+v; after the first pass %+v, a constant %+v", r.first, r.last, r.life, r.passes[0], base)
	}
	if trained := float64(r.rows) / float64(8000*len(r.passes)); trained < .85 || trained > .95 {
		t.Errorf("trained on %d rows in %d passes of 8,000, of which a tenth is held out", r.rows, len(r.passes))
	}
	products := dataSet{name: "products", make: func(seed uint64) (*data, error) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := twoIDs(rng, 30, 30, 1, 1.5)
		return generate(rng, l, 8000, 4000, .4), nil
	}}
	lr, _, _ := runCells(t, products, "lr", 2)
	fm, _, top := runCells(t, products, "fm", 2, "optimizer.sparse.adagrad={lr: 0.1, initial_accumulator: 1e-8}")
	if fm.kept.auc < lr.kept.auc+.05 || fm.kept.auc > top.auc+.01 {
		t.Errorf("fm %+v, lr %+v, the best possible %+v", fm.kept, lr.kept, top)
	}
}

// TestPassesAreOneRun: training pass by pass comes to what one run comes to, and is ended early where that is.
func TestPassesAreOneRun(t *testing.T) {
	t.Parallel()
	for _, s := range generatedSets(t, .05) {
		if s.name != "ids39" {
			continue
		}
		const passes = 6 // more than are of use
		folder, dir := t.TempDir(), filepath.Join(t.TempDir(), "run")
		d, err := s.make(1)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.write(folder); err != nil {
			t.Fatal(err)
		}
		set := []string{"deterministic=true", "train.early_stop={patience: 1, metric: log_loss}", "optimizer.sparse.adagrad.lr=0.2"}
		r, err := run(t.Context(), cell{model: "fm", seed: 3, batch: 32, workers: 1, passes: passes}, options{set: set}, s, folder, dir)
		if err != nil {
			t.Fatal(err)
		}
		text, err := propose(t.Context(), folder)
		if err == nil {
			text, err = withModel(text, "fm", s)
		}
		if err != nil {
			t.Fatal(err)
		}
		decode := func(text string) *job.Config {
			cfg, err := job.Decode([]byte(text), "fm.yaml", job.LoadOptions{Set: append(set, "dir="+dir+"-whole", "seed=3", "train.batch=32", fmt.Sprint("epochs=", passes))})
			if err != nil {
				t.Fatal(err)
			}
			return cfg
		}
		whole, err := job.Run(t.Context(), decode(text), job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if text, err = evaluating(text, filepath.Join(folder, "valid.tsv")); err != nil {
			t.Fatal(err)
		}
		e, err := job.Evaluate(t.Context(), decode(text), job.EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := score{e.Metrics["auc"], e.Metrics["log_loss"]}
		if r.kept != want || len(r.passes) != whole.Epochs || !whole.EarlyStopped || r.rows != whole.Examples {
			t.Errorf("%+v after %d passes and %d rows, in one run %+v after %d epochs and %d rows, ended early %t", r.kept, len(r.passes), r.rows, want, whole.Epochs, whole.Examples, whole.EarlyStopped)
		}
		if at := slices.Index(r.passes, r.kept); at < 0 || at == len(r.passes)-1 {
			t.Errorf("kept %+v of %+v, want an earlier one", r.kept, r.passes)
		}
	}
}

// TestAllRows: without a hold-out all rows are trained on.
func TestAllRows(t *testing.T) {
	t.Parallel()
	s := generatedSets(t, .01)[0]
	d, err := s.make(1)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := d.write(folder); err != nil {
		t.Fatal(err)
	}
	r, err := run(t.Context(), cell{model: "lr", seed: 1, batch: 64, workers: 2, passes: 2}, options{allRows: true}, s, folder, filepath.Join(t.TempDir(), "run"))
	if err != nil || r.rows != int64(2*len(d.train)) {
		t.Errorf("%d of %d rows, %v", r.rows, 2*len(d.train), err)
	}
}

// TestEveryModel: each model's job loads, trains and is scored, where there is a history and where there is none.
func TestEveryModel(t *testing.T) {
	t.Parallel()
	if got := len(models()); got != 30 {
		t.Errorf("%d models with init's, want 30", got)
	}
	for _, s := range generatedSets(t, .004) {
		if s.name != "histories" && s.name != "two-ids" {
			continue
		}
		for _, model := range models() {
			t.Run(s.name+" "+model, func(t *testing.T) {
				t.Parallel()
				r, _, _ := runCells(t, s, model, 1)
				for _, x := range []score{r.kept, r.first, r.last, r.life} {
					if !(x.auc > 0 && x.auc < 1 && x.logLoss > 0) {
						t.Errorf("scores %+v", r)
					}
				}
			})
		}
	}
}

// TestJobs: what is put into init's job for a model, and nothing else.
func TestJobs(t *testing.T) {
	t.Parallel()
	const text = `
parse:
  features: [{name: user, slot: 1}, {name: item, slot: 2}, {name: history, slot: 3, split: "|", combiner: mean}]
  label: label
model: {deepfm: {dim: 16}}
train: {batch: 512, early_stop: {patience: 1}}
eval: {holdout: {share: 0.1}}
`
	s := dataSet{item: "item", history: "history"}
	for model, want := range map[string][]string{
		initModel: {"deepfm: {dim: 16}", "label: label", "combiner: mean"},
		"lr":      {"model: lr\n", "label: label\n", "combiner: mean"},
		"dssm":    {"dssm: {item: [item]}", "combiner: mean"},
		"din":     {"model: din\n", `{name: history, split: "|", slot: 2, attends: item}`},
		"mmoe":    {"model: mmoe\n", "[{name: main, label: label}, {name: second, label: label}]"},
		"esmm":    {"model: esmm\n", "[{name: main, label: label}, {name: second, label: label}]", "combiner: mean"},
	} {
		got, err := withModel(text, model, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range append(want, "early_stop: {patience: 1}", "holdout") {
			if !strings.Contains(oneLine(got), oneLine(w)) {
				t.Errorf("%s: no %q in\n%s", model, w, got)
			}
		}
		if has := strings.Contains(got, "\n  label:") || strings.Contains(got, "\n    label:"); has == slices.Contains([]string{"mmoe", "esmm"}, model) {
			t.Errorf("%s: a label beside heads, or none:\n%s", model, got)
		}
	}
	got, err := trainingOnAll(text)
	if err != nil || strings.Contains(got, "eval") || strings.Contains(got, "early_stop") || !strings.Contains(got, "batch: 512") {
		t.Errorf("%v:\n%s", err, got)
	}
	if got, err = evaluating(text, `a"b.tsv`); err != nil || strings.Contains(got, "holdout") || !strings.Contains(got, `files: ["a\"b.tsv"]`) || !strings.Contains(got, "early_stop") {
		t.Errorf("%v:\n%s", err, got)
	}
	if _, err := withModel("[]", "lr", s); err == nil {
		t.Error("a list is a job")
	}
}

// TestContinues: cells of the file are not run again, one that was cut off or failed is, and the table is the same.
func TestContinues(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out.tsv")
	measured := func() (shown, progress string) {
		var stdout, stderr bytes.Buffer
		args := []string{"-data-sets", "^ids39-linear$", "-models", "^fm$", "-share", "0.05", "-passes", "2", "-batches", "64", "-workers", "1,2", "-seeds", "2", "-out", out}
		if err := command(t.Context(), args, &stdout, &stderr); err != nil {
			t.Fatal(err)
		}
		return stdout.String(), stderr.String()
	}
	shown, progress := measured()
	if n := strings.Count(progress, "\n"); n != 2*(2+2*2) {
		t.Fatalf("%d lines of progress:\n%s", n, progress)
	}
	for _, want := range []string{"ids39-linear, batch 64, 2 seeds\n", "\nfm ", "\nlr ", "\nbest ", "\nconstant ", "difference to 1 worker\n", " ± "} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
	if again, progress := measured(); again != shown || progress != "" {
		t.Errorf("again it is\n%s\nafter\n%s\nfirst\n%s", again, progress, shown)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	cut := strings.Join(lines[:len(lines)-2], "") + lines[len(lines)-2][:20] // the last line is empty
	if err := os.WriteFile(out, []byte(cut), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, progress := measured(); strings.Count(progress, "\n") != 1 {
		t.Errorf("after a kill in the last line:\n%s", progress)
	}
	if _, progress := measured(); progress != "" {
		t.Errorf("the line that was cut off is missing again:\n%s", progress)
	}
	f := strings.Split(strings.TrimSuffix(lines[len(lines)-2], "\n"), "\t")
	f[len(f)-1] = "disk full"
	if err := os.WriteFile(out, []byte(strings.Join(lines[:len(lines)-2], "")+strings.Join(f, "\t")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, progress := measured(); strings.Count(progress, "\n") != 1 {
		t.Errorf("after a failure:\n%s", progress)
	}
	if err := os.WriteFile(out, []byte(lines[0]+"x\ty\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := command(t.Context(), []string{"-out", out}, new(bytes.Buffer), new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "out.tsv:2: 2 fields") {
		t.Errorf("%v", err)
	}
}

// TestLines: a line of results is read as what was written.
func TestLines(t *testing.T) {
	t.Parallel()
	c := cell{set: "a", model: "lr", seed: 3, batch: 512, workers: 2, passes: 3, settings: "train.batch=1 -all-rows"}
	r := result{passes: []score{{.5, .25}, {.75, .125}}, kept: score{.75, .125}, first: score{.5, 1}, last: score{.25, 2}, life: score{.125, 3}, rows: 7, seconds: 1.5}
	gotCell, got, err := readLine(line(c, r))
	if err != nil || gotCell != c {
		t.Fatalf("%+v, %v", gotCell, err)
	}
	if diff := cmp.Diff(r, got, cmp.AllowUnexported(result{}, score{})); diff != "" {
		t.Errorf("-written +read: %s", diff)
	}
	if _, got, err = readLine(line(c, result{failed: "a\tb\nc"})); err != nil || got.failed != "a b c" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestTable: a table of results that were made up says what each misses, and by how much several workers differ.
func TestTable(t *testing.T) {
	t.Parallel()
	nothing := score{math.NaN(), math.NaN()}
	of := func(auc, logLoss float64, earlier ...score) result {
		s := score{auc, logLoss}
		return result{passes: append(earlier, s), kept: s, first: s, last: s, life: s}
	}
	known := func(auc, logLoss float64) result {
		s := score{auc, logLoss}
		return result{passes: []score{s}, kept: s, first: nothing, last: nothing, life: nothing}
	}
	results := map[cell]result{}
	put := func(model string, batch, workers int, seeds ...result) {
		for i, r := range seeds {
			results[cell{set: "ids39", model: model, seed: uint64(i + 1), batch: batch, workers: workers, passes: 2}] = r
		}
	}
	put("constant", 0, 0, known(.5, .6), known(.5, .6))
	put("best", 0, 0, known(.8, .4), known(.8, .4))
	put("lr", 64, 1, of(.7, .5, score{.65, .55}), of(.7, .5, score{.65, .55}))
	put("lr", 64, 2, of(.71, .51), of(.73, .51))
	put("init", 64, 1, of(.7, .5), of(.7, .5))
	put("fm", 64, 1, of(.6, .5, score{.72, .4}), of(.7, .6, score{.72, .4}))
	put("afm", 64, 1, of(.699, .504), of(.699, .504))
	put("ffm", 64, 1, of(.4, .7), of(.4, .7))
	put("nfm", 64, 1, result{failed: "out of\nmemory"}, of(.7, .5))
	put("xlearn-fm", 0, 0, known(.71, .9), known(.71, .9))
	o, err := parse([]string{"-passes", "2", "-batches", "64", "-workers", "1,2", "-markdown"}, new(bytes.Buffer))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"model": "misses", "constant": "", "best": "", "lr": "", "init": "peer", "afm": "", "fm": "auc loss", "ffm": "auc loss constant", "nfm": "failed: out of memory", "xlearn-fm": "",
	}
	got := map[string]string{}
	text := table(results, o)
	block, workers, _ := strings.Cut(text, "**ids39, batch 64: difference to 1 worker**")
	rows := map[string][]string{}
	for l := range strings.Lines(block) {
		if cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(l, "| "), " |\n"), " | "); len(cells) > 1 {
			got[cells[0]], rows[cells[0]] = cells[len(cells)-1], cells
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("misses (-want +got): %s\n%s", diff, text)
	}
	if diff := cmp.Diff([]string{"fm", ".7200", ".6500", ".7200", ".6500", ".4000", ".5500", ".4000", ".5500"}, rows["fm"][:9]); diff != "" {
		t.Errorf("fm (-want +got): %s", diff)
	}
	own := table(map[cell]result{
		{set: "ids39", model: "lr", batch: ownBatch, workers: 1}: of(.7, .5), {set: "ids39", model: "constant"}: known(.5, .6), {set: "ids39", model: "xlearn-fm"}: known(.7, .5),
	}, options{passes: 1, batches: []int{ownBatch}, workers: []int{1}, models: o.models})
	var order []string
	for l := range strings.Lines(own) {
		order = append(order, strings.Fields(l + " -")[0])
	}
	if diff := cmp.Diff([]string{"ids39,", "model", "constant", "lr", "xlearn-fm", "-"}, order); diff != "" {
		t.Errorf("rows (-want +got): %s", diff)
	}
	if want := "| lr | 2 | +0.0200 ± 0.0100 | +0.0200 ± 0.0100 | +0.0200 ± 0.0100 | +0.0200 ± 0.0100 | +0.0100 ± 0.0000 |"; !strings.Contains(workers, want) {
		t.Errorf("no %q in %s", want, workers)
	}
	linear := score{.6955, .5}
	if a, b := misses(linear, score{.7, .5}, score{.5, .6}, true), misses(linear, score{.7, .5}, score{.5, .6}, false); a != "" || b != "auc" {
		t.Errorf("%q where the truth is linear, %q elsewhere", a, b)
	}
	if got := misses(score{.75, .61}, score{.7, .65}, score{.5, .6}, false); got != "constant" {
		t.Errorf("a log loss worse than a constant's misses %q", got)
	}
	if got := misses(nothing, score{.7, .5}, score{.5, .6}, false); got != "constant" {
		t.Errorf("no score misses %q", got)
	}
}

// TestFlags: what cannot be is refused with a reason.
func TestFlags(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"-seeds 0", "-batches 0", "-workers a", "-set batch", "-with fw=x", "-models (", "more", "-share 0", "-workers init", "-batches -1"} {
		if _, err := parse(strings.Fields(args), new(bytes.Buffer)); err == nil {
			t.Errorf("%s is taken", args)
		}
	}
}

// TestPeerRows: what peers read of a row.
func TestPeerRows(t *testing.T) {
	t.Parallel()
	d := &data{columns: []column{{"a", idColumn}, {"x", numberColumn}, {"l", listColumn}}, train: []row{
		{cells: []string{"p", "0", "u|v"}, positive: true},
		{cells: []string{"q", fmt.Sprint(math.E*math.E - 1), "v"}},
		{cells: []string{"q", "", ""}},
	}, valid: []row{{cells: []string{"new", fmt.Sprint(math.E - 1), "u|new"}}}}
	e, path := newEncoder(d), filepath.Join(t.TempDir(), "rows")
	for _, tt := range []struct {
		rows   []row
		fields bool
		want   string
	}{
		{d.train, true, "1 0:1:1 1:3:-1 2:4:0.5 2:5:0.5\n0 0:2:1 1:3:1 2:5:1\n0 0:2:1\n"},
		{d.train, false, "1 1:1 3:-1 4:0.5 5:0.5\n0 2:1 3:1 5:1\n0 2:1\n"},
		{d.valid, true, "0 1:3:0 2:4:0.5\n"},
	} {
		if err := e.write(path, tt.rows, tt.fields); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != tt.want {
			t.Errorf("%q, %v, want %q", got, err, tt.want)
		}
	}
}

// TestXLearn: with programs in the place of xLearn's, each number of passes is trained and predicted by itself; what fails
// is named.
func TestXLearn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sh", "awk"} {
		if _, err := exec.LookPath(name); err != nil {
			testbed.Require(t, "posix", name+" is not installed")
		}
	}
	dir := t.TempDir()
	script := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// The model is the number of passes, and predictions are the label's, the nearer the more passes there were.
	script("xlearn_train", `[ -n "$USER" ] && [ "$2 $3 $4" = "-s 1 -e" ] && echo $5 > $7`)
	script("xlearn_predict", `awk -v e=$(cat $2) '{print $1 == 1 ? 1 - 0.4 / e : 0.4 / e}' $1 > $4`)
	var s dataSet
	for _, s = range generatedSets(t, .01) {
		if s.name == "numbers" {
			break
		}
	}
	d, err := s.make(1)
	if err != nil {
		t.Fatal(err)
	}
	path, err := find(t.Context(), "xlearn", map[string]string{"xlearn": filepath.Join(dir, "xlearn_train")})
	if err != nil {
		t.Fatal(err)
	}
	r, err := runPeer(t.Context(), path, "xlearn", "1", cell{passes: 2}, d, t.TempDir())
	if err != nil || len(r.passes) != 2 || r.kept != r.passes[1] || r.kept.auc != 1 || math.Abs(r.passes[0].logLoss+math.Log(.6)) > 1e-6 || math.Abs(r.kept.logLoss+math.Log(.8)) > 1e-6 {
		t.Errorf("%+v, %v", r, err)
	}
	script("xlearn_train", "echo cannot; exit 3")
	if _, err := runPeer(t.Context(), path, "xlearn", "1", cell{passes: 1}, d, t.TempDir()); err == nil || !strings.HasSuffix(err.Error(), "exit status 3: cannot") {
		t.Errorf("%v", err)
	}
	if _, err := find(t.Context(), "xlearn", map[string]string{"xlearn": filepath.Join(dir, "none")}); err == nil || !strings.Contains(err.Error(), "-with xlearn=FILE") {
		t.Errorf("%v", err)
	}
}

// TestDataSets: the sets are read as their descriptions say.
func TestDataSets(t *testing.T) {
	t.Parallel()
	for _, s := range dataSets(testbed.Data(t, "datasets"), 1)[:5] {
		want := map[string]string{
			"criteo8k": "39 columns, 5400 and 1800 rows", "chicago_taxi": "16 columns, 12002 and 3000 rows", "frappe": "10 columns, 202027 and 57722 rows",
			"ml1m": "2 columns, 100017 and 23636 rows", "ml100k": "8 columns, 90000 and 10000 rows",
		}[s.name]
		d, err := s.make(1)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d columns, %d and %d rows", len(d.columns), len(d.train), len(d.valid)); got != want {
			t.Errorf("%s: %s, want %s", s.name, got, want)
		}
		for _, r := range slices.Concat(d.train, d.valid) {
			if len(r.cells) != len(d.columns) {
				t.Fatalf("%s: a row of %q", s.name, r.cells)
			}
		}
	}
}
