package job_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// TestFiguresToDoubt: weights of nothing, labels that are all the same, an AUC that no honest data gives or that of guessing, and probabilities that are worse than a constant are
// said of what was trained on and of what was held out, in the result; and nothing is said of good figures, of few examples or of labels
// that are all the same on purpose.
func TestFiguresToDoubt(t *testing.T) {
	t.Parallel()
	const same, noAUC, alike, good, worse, guess, weightless = "there is nothing to learn", "so there is no AUC", "a constant would do as well", "is hardly true", "the mean label", "that of guessing", "the weights of all 60 examples are 0"
	for _, tt := range []struct {
		name  string
		rows  int
		row   func(r *rand.Rand) (y, x float64)
		set   []string
		train string // what is doubted of training, and of held-out examples
		eval  string
	}{
		{name: "honest", rows: 4000, row: func(r *rand.Rand) (float64, float64) {
			x := r.NormFloat64()
			return float64(btoi(r.Float64() < 0.3+0.2*btof(x > 0))), x
		}},
		{name: "one class", rows: 60, row: func(r *rand.Rand) (float64, float64) { return 1, r.Float64() }, train: same, eval: noAUC},
		{name: "one class has weights", rows: 60, row: func(r *rand.Rand) (float64, float64) {
			y := r.IntN(2)
			return float64(y), float64(y)
		}, set: []string{"parse.weight=x"}, train: same, eval: noAUC},
		{name: "no weight", rows: 60, row: func(r *rand.Rand) (float64, float64) { return float64(r.IntN(2)), 0 }, set: []string{"parse.weight=x"}, train: weightless, eval: weightless},
		{name: "few", rows: 49, row: func(r *rand.Rand) (float64, float64) { return 1, r.Float64() }},
		{name: "one number", rows: 60, row: func(r *rand.Rand) (float64, float64) { return 7, r.Float64() }, set: []string{"parse.label=", "heads=[{name: y, loss: squared}]"}, train: same, eval: alike},
		{name: "biased sample", rows: 60, row: func(r *rand.Rand) (float64, float64) { return 0, r.Float64() }, set: []string{"parse.label=", "heads=[{name: y, sample_bias: true}]"}},
		{name: "leak", rows: 4000, set: []string{"epochs=2", "optimizer.dense.adam.lr=0.1"}, row: func(r *rand.Rand) (float64, float64) {
			y := float64(r.IntN(2))
			return y, 2*y - 1
		}, train: good, eval: good},
		{name: "guessing", rows: 4000, row: func(r *rand.Rand) (float64, float64) {
			return float64(r.IntN(2)), r.NormFloat64()
		}, train: guess, eval: guess},
		{name: "few to guess", rows: 999, row: func(r *rand.Rand) (float64, float64) {
			return float64(r.IntN(2)), r.NormFloat64()
		}},
		{name: "diverging", rows: 4000, set: []string{"optimizer.dense.sgd.lr=500"}, row: func(r *rand.Rand) (float64, float64) {
			return float64(btoi(r.Float64() < 0.3)), r.NormFloat64()
		}, train: worse, eval: worse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r, text := rand.New(rand.NewPCG(1, 2)), strings.Builder{}
			text.WriteString("y,x\n")
			for range tt.rows {
				y, x := tt.row(r)
				fmt.Fprintf(&text, "%g,%g\n", y, x)
			}
			file := filepath.Join(dir, "rows.csv")
			if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %[2]q
source: {text: {files: [%[1]q]}}
parse: {format: csv, header: true, features: [{name: x, kind: dense}], label: y}
model: lr
train: {batch: 50}
eval: {source: {text: {files: [%[1]q]}}}
`, file, filepath.Join(dir, "run")), "one.yaml", job.LoadOptions{Set: tt.set})
			if err != nil {
				t.Fatal(err)
			}
			trained, err := job.Run(t.Context(), c, job.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			evaluated, err := job.Evaluate(t.Context(), c, job.EvalOptions{})
			if err != nil {
				t.Fatal(err)
			}
			all := strings.Join(trained.Doubts, "\n")
			for of, want := range map[string]string{"in training: ": tt.train, "held out: ": tt.eval} {
				if n := strings.Count(all, of); want == "" && n > 0 || want != "" && (n != 1 || !strings.Contains(all[strings.Index(all, of):], want)) {
					t.Errorf("%s: doubts are %q, want %q once", of, all, want)
				}
			}
			if got := strings.Join(evaluated.Doubts, "\n"); tt.eval == "" && got != "" || !strings.Contains(got, tt.eval) {
				t.Errorf("the evaluation is doubted by %q, want %q", got, tt.eval)
			}
		})
	}
}

// TestStreamsAreDoubtedBeforeTheyEnd: a log says what speaks against the figures of a run once, when it has had a hundred thousand examples.
func TestStreamsAreDoubtedBeforeTheyEnd(t *testing.T) {
	t.Parallel()
	lines := make([]string, 150_000)
	for i := range lines {
		lines[i] = "0,1"
	}
	for want, n := range []int{99_900, len(lines)} {
		var out bytes.Buffer
		c := csvJob(t, lines[:n], `parse: {format: csv, columns: [y, x], features: [{name: x, kind: dense}], label: y}`, "model=lr")
		if _, err := job.Run(t.Context(), c, job.RunOptions{Logger: slog.New(slog.NewTextHandler(&out, nil))}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(out.String(), "figures to doubt"); got != want {
			t.Errorf("of %d examples they are said %d times, want %d:\n%s", n, got, want, out.String())
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func btof(b bool) float64 { return float64(btoi(b)) }
