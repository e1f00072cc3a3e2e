package job_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// csvJob makes a job that trains on the lines of a csv file, `label,number` each.
func csvJob(t *testing.T, lines []string, parse string, set ...string) *job.Config {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "train.csv")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
version: 1
name: numbers
deterministic: true
source: {text: {files: [%q]}}
%s
model: {deepfm: {dim: 4, hidden: [8]}}
train: {batch: 50}
snapshot: {every: 0s}
`, path, parse)
	c, err := job.Decode([]byte(text), "numbers.yaml", job.LoadOptions{Set: append(set, "dir="+filepath.Join(dir, "run"))})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAbsurdNumbersAreBadRows: a label that is none and numbers that no model survives go to the policy by their position,
// and the rows around them are trained.
func TestAbsurdNumbersAreBadRows(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 500 {
		lines = append(lines, fmt.Sprintf("%d,%d.5", i%2, i%7))
	}
	lines[200], lines[300], lines[400] = "7,2", "1,1e30", "0,-3e38"
	const parse = `parse: {format: csv, columns: [y, x], features: [{name: x, kind: dense}], label: y}`
	r, err := job.Run(t.Context(), csvJob(t, lines, parse, "train.on_bad_row=skip"), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Examples != 497 || r.BadRows["bad label"] != 1 || r.BadRows["value out of range"] != 2 {
		t.Errorf("%d examples, bad rows %v", r.Examples, r.BadRows)
	}
	_, err = job.Run(t.Context(), csvJob(t, lines, parse), job.RunOptions{})
	if err == nil || !strings.Contains(err.Error(), `position 1200: bad label: column "y" is 7, not in 0 to 1`) {
		t.Errorf("under fail: %v", err)
	}
}

// numbersJob trains on numbers as they come out of a log: one between 1 and 90 that the label follows, and a count with a
// long tail that says little. Some of the first are missing.
func numbersJob(t *testing.T, features string, set ...string) *job.Config {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	var lines []string
	for range 4000 {
		age := 1 + 89*rng.Float64()
		label := 0
		if rng.Float64() < 1/(1+math.Exp(-(age-50)/10)) {
			label = 1
		}
		x := strconv.FormatFloat(age, 'f', 1, 64)
		if rng.IntN(10) == 0 {
			x = ""
		}
		lines = append(lines, fmt.Sprintf("%d,%s,%.0f", label, x, math.Exp(9*rng.Float64())))
	}
	return csvJob(t, lines, "parse: {format: csv, columns: [y, age, count], label: y, features: "+features+"}", append(set, "optimizer.dense.adam.lr=0.01")...)
}

const (
	rawNumbers    = "[{name: age, kind: dense}, {name: count, kind: dense}]"
	scaledNumbers = "[{name: age, kind: dense, standardise: running, missing: indicator}, {name: count, kind: dense, log: true, standardise: {running: {decay: 0.99}}}]"
)

// TestNumbersAsTheyCome: what the options are for. Raw numbers ruin a model; scaled, by given or running moments, or cut
// into buckets, it learns.
func TestNumbersAsTheyCome(t *testing.T) {
	t.Parallel()
	loss := map[string]float64{}
	for name, features := range map[string]string{
		"raw": rawNumbers, "running": scaledNumbers,
		"given":   "[{name: age, kind: dense, standardise: {given: {mean: 45, std: 25}}}, {name: count, kind: dense, clip: [0, 5000], log: true, standardise: {given: {mean: 4.5, std: 2.6}}}]",
		"buckets": "[{name: age, buckets: [10, 20, 30, 40, 50, 60, 70, 80], missing: indicator}, {name: count, type: float}]",
	} {
		r, err := job.Run(t.Context(), numbersJob(t, features), job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		loss[name] = r.Metrics["progressive_log_loss"]
	}
	if !(loss["raw"] > 0.8 && loss["running"] < 0.6 && loss["given"] < 0.6 && loss["buckets"] < 0.6) {
		t.Errorf("log loss %v: raw should be beyond use, the others near .45, and a coin is .69", loss)
	}
}

// TestRunningMomentsAreExact interrupts a run that standardises by running moments: they are a function of the batches
// that were applied, so the digest is that of an untouched run, on any number of shards, and evaluation reads the same.
func TestRunningMomentsAreExact(t *testing.T) {
	t.Parallel()
	whole := numbersJob(t, scaledNumbers)
	want, err := job.Run(t.Context(), whole, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	parts := numbersJob(t, scaledNumbers, "ps.shards=3")
	parts.Source = whole.Source
	for _, limit := range []int64{150, 1000, 2750, 0} {
		parts.Train.MaxExamples = limit
		got, err := job.Run(t.Context(), parts, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if limit == 0 && digest(t, got.Snapshot) != digest(t, want.Snapshot) {
			t.Errorf("digest %s in parts, %s in one", digest(t, got.Snapshot), digest(t, want.Snapshot))
		}
	}
	info, err := job.InspectSnapshot(t.Context(), want.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range info.Dense {
		names = append(names, d.Name)
	}
	if !slices.Contains(names, "moments.age") || !slices.Contains(names, "moments.count") || slices.Contains(names, "moments.age_missing") {
		t.Errorf("the snapshot has %v", names)
	}
}

func TestFaultsOfNumbers(t *testing.T) {
	t.Parallel()
	for feature, want := range map[string]string{
		"{name: x, kind: dense, clip: [3]}":                                   "parse.features[0].clip: is [3], not [lo, hi]",
		"{name: x, kind: dense, clip: [3, 3]}":                                "parse.features[0].clip: is [3 3], not [lo, hi]",
		"{name: x, kind: dense, buckets: [1]}":                                "parse.features[0].buckets: make ids of numbers; set kind: sparse",
		"{name: x, kind: dense, standardise: {given: {mean: 1}}}":             "parse.features[0].standardise.given.std",
		"{name: x, kind: dense, standardise: sometimes}":                      `"sometimes" is none of given, running`,
		"{name: x, kind: dense, standardise: {given: {std: 1}, running: {}}}": "takes one of its keys",
		"{name: x, log: true}":                                                "parse.features[0].log: is for dense features; set kind: dense",
		"{name: x, standardise: running}":                                     "parse.features[0].standardise: is for dense features",
		"{name: x, missing: indicator}":                                       "parse.features[0].missing: is indicator, which is for numbers",
		"{name: x, buckets: [1, 2, 2]}":                                       "parse.features[0].buckets[2]: is 2, not above the boundary before it",
		"{name: x, buckets: [1], hash: hash}":                                 "parse.features[0].buckets: are of numbers",
		"{name: x, buckets: [1], default: a}":                                 `parse.features[0].default: is "a", not a number`,
		"{name: x, buckets: [1], default: 3, missing: indicator}":             "parse.features[0].default: stands for missing values",
		"{name: x, kind: dense, missing: indicator}, {name: x_missing}":       `parse.features[0].missing: adds a feature "x_missing", but there is one already`,
		"{name: x, kind: dense, standardise: {running: {decay: 1}}}":          "parse.features[0].standardise.running.decay",
	} {
		_, err := job.Decode([]byte("version: 1\nsource: {text: {files: [x]}}\nparse: {format: jsonl, label: y, features: ["+feature+"]}\nmodel: lr\n"), "x.yaml", job.LoadOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error lacks %q: %v", feature, want, err)
		}
	}
}

// TestUnscaledNumbersAreSaid: a run warns once of each dense feature that a model cannot use as it is, and of no other.
func TestUnscaledNumbersAreSaid(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		features string
		set      []string
		want     []string
	}{
		"raw, several epochs": {rawNumbers, []string{"epochs=2"}, []string{"age", "count"}},
		"few rows":            {rawNumbers, []string{"train.max_examples=200"}, []string{"age", "count"}},
		"scaled":              {scaledNumbers, nil, nil},
		"log":                 {"[{name: age, kind: dense, clip: [0, 5]}, {name: count, kind: dense, log: true}]", nil, nil},
		"given, wrongly":      {"[{name: age, kind: dense, clip: [20, 30]}, {name: count, kind: dense, standardise: {given: {mean: 300, std: 400}}}]", nil, []string{"age"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			if _, err := job.Run(t.Context(), numbersJob(t, tc.features, tc.set...), job.RunOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
				t.Fatal(err)
			}
			var got []string
			for line := range strings.Lines(log.String()) {
				if _, rest, ok := strings.Cut(line, "far from the size of 1"); ok {
					_, rest, _ = strings.Cut(rest, "feature=")
					feature, _, _ := strings.Cut(rest, " ")
					got = append(got, feature)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("warned of %q, want %q:\n%s", got, tc.want, log.String())
			}
		})
	}
}

// TestInspectSaysWhatNumbersAre: range, mean and fill rate are those of the values that are there, and a feature that a
// model cannot use as it is is named.
func TestInspectSaysWhatNumbersAre(t *testing.T) {
	t.Parallel()
	lines := []string{"1,10,5000", "0,30,", "1,,1", "0,50,2"}
	const parse = "parse: {format: csv, columns: [y, age, count], label: y, features: " +
		"[{name: age, kind: dense}, {name: scaled, column: age, kind: dense, standardise: running, missing: indicator}, {name: count, kind: dense, log: true}]}"
	info, err := job.InspectSource(t.Context(), csvJob(t, lines, parse), job.InspectOptions{Rows: 4})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range info.Features {
		got = append(got, fmt.Sprintf("%s %d of 4, %v, unscaled %v", f.Name, f.Rows, *f.Numbers, f.Unscaled))
	}
	want := []string{
		"age 3 of 4, {10 50 30}, unscaled true", "scaled 3 of 4, {10 50 30}, unscaled false", "scaled_missing 4 of 4, {0 1 0.25}, unscaled false",
		fmt.Sprintf("count 3 of 4, {%v %v %v}, unscaled false", log1p(1), log1p(5000), (log1p(1)+log1p(2)+log1p(5000))/3), "label 4 of 4, {0 1 0.5}, unscaled false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(info.Notes) != 1 || !strings.Contains(info.Notes[0], `feature "age" goes from 10 to 50, mean 30`) {
		t.Errorf("notes %q", info.Notes)
	}
	if v, ok := info.Rows[2].Features["scaled"]; !ok || v != nil {
		t.Errorf("the missing value shows as %v", v)
	}
}

func log1p(x float64) float64 { return float64(float32(math.Log1p(x))) }

// TestOneNumberAlone: a dense feature that is the same number in every example is a warning, standardised or not, and one that differs in a single
// example is none, nor is one with few examples.
func TestOneNumberAlone(t *testing.T) {
	t.Parallel()
	const parse = `parse: {format: csv, columns: [y, a, b, c], features: [{name: a, kind: dense}, {name: b, kind: dense, standardise: running}, {name: c, kind: dense}], label: y}`
	for n, want := range map[int][]string{49: nil, 5000: {"feature=a number=3 examples=5000", "feature=b number=0 examples=5000"}} {
		lines := make([]string, n)
		for i := range lines {
			lines[i] = fmt.Sprintf("%d,3,0,1", i%2)
		}
		lines[n-1] = "1,3,0,2"
		var out bytes.Buffer
		if _, err := job.Run(t.Context(), csvJob(t, lines, parse), job.RunOptions{Logger: slog.New(slog.NewTextHandler(&out, nil))}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(out.String(), "the same number in every example"); got != len(want) {
			t.Errorf("%d warnings of %d rows, want %d:\n%s", got, n, len(want), out.String())
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("no %q in\n%s", w, out.String())
			}
		}
	}
}

// TestOneIDAlone: an id feature that is the same id in every example is a warning; one that differs in a single example, is missing
// in one, or has few examples, is none.
func TestOneIDAlone(t *testing.T) {
	t.Parallel()
	const parse = `parse: {format: csv, columns: [y, a, b, c, d], features: [{name: a}, {name: b}, {name: c}, {name: d, split: "|"}], label: y}`
	const message = "an id feature was the same id in every example"
	for n, want := range map[int][]string{49: nil, 5000: {"feature=a examples=5000", "feature=d examples=5000"}} {
		lines := make([]string, n)
		for i := range lines {
			lines[i] = fmt.Sprintf("%d,3,x,1,5|5", i%2)
		}
		lines[n-1], lines[n-2] = "1,3,y,1,5", "1,3,x,,5"
		var out bytes.Buffer
		if _, err := job.Run(t.Context(), csvJob(t, lines, parse), job.RunOptions{Logger: slog.New(slog.NewTextHandler(&out, nil))}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(out.String(), message); got != len(want) {
			t.Errorf("%d warnings of %d rows, want %d:\n%s", got, n, len(want), out.String())
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("no %q in\n%s", w, out.String())
			}
		}
	}
}
