package job_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/job"
)

// columnsJob trains on a csv file with a header and evaluates what eval says.
func columnsJob(dir, run, eval string) string {
	return fmt.Sprintf(`
version: 1
name: columns
dir: %q
seed: 5
deterministic: true
source: {text: {files: [%q]}}
epochs: 2
parse:
  format: csv
  header: true
  features: [{name: user}, {name: item}]
  label: {name: click}
model: {lr: {}}
train: {batch: 32}
snapshot: {every: 0s}
eval: {%s}
`, filepath.Join(dir, run), filepath.Join(dir, "train.csv"), strings.ReplaceAll(eval, "DIR", dir))
}

// writeColumns writes n examples: the header, if any, and lines of user, item and click in the given order.
func writeColumns(t *testing.T, path, header string, n int, line func(user, item, click int) string) {
	t.Helper()
	var b strings.Builder
	b.WriteString(header)
	for i := range n {
		user, item := i*7%11, 100+i*i%5
		click := 0
		if user%2 == 0 {
			click = 1
		}
		b.WriteString(line(user, item, click) + "\n")
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestEvaluationFilesHaveTheirOwnColumns evaluates the same examples from a file like the one trained on, from one without
// a header and with other columns in another order, and from one whose own header names them: in training and by itself
// the metrics are the same, over all of the examples.
func TestEvaluationFilesHaveTheirOwnColumns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	csv := func(user, item, click int) string { return fmt.Sprintf("%d,%d,%d", user, item, click) }
	tsv := func(user, item, click int) string { return fmt.Sprintf("%d\tx\t%d\t%d", click, item, user) }
	writeColumns(t, filepath.Join(dir, "train.csv"), "user,item,click\n", 400, csv)
	writeColumns(t, filepath.Join(dir, "same.csv"), "user,item,click\n", 90, csv)
	writeColumns(t, filepath.Join(dir, "bare.tsv"), "", 90, tsv)
	writeColumns(t, filepath.Join(dir, "named.tsv"), "click\tnote\titem\tuser\n", 90, tsv)
	var want job.Scores
	for i, eval := range []string{
		`source: {text: {files: ["DIR/same.csv"]}}`,
		`source: {text: {files: ["DIR/bare.tsv"]}}, format: tsv, columns: [click, "", item, user]`,
		`source: {text: {files: ["DIR/named.tsv"]}}, format: tsv`,
		`source: {text: {files: ["DIR/named.tsv"]}}, format: tsv, header: true, columns: [click, "", item, user]`,
	} {
		c := decode(t, columnsJob(dir, fmt.Sprint("run", i), eval), job.LoadOptions{})
		if findings, err := job.Check(t.Context(), c); err != nil || len(findings) > 0 {
			t.Fatalf("%s: %v, %v", eval, findings, err)
		}
		trained, err := job.Run(t.Context(), c, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Evaluate(t.Context(), c, job.EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Examples != 90 || len(r.BadRows) > 0 || trained.Metrics["auc"] != r.Metrics["auc"] {
			t.Errorf("%s: %d examples, left out %v, auc %v after training, %v by itself", eval, r.Examples, r.BadRows, trained.Metrics["auc"], r.Metrics["auc"])
		}
		if want == nil {
			want = r.Metrics
		} else if diff := cmp.Diff(want, r.Metrics); diff != "" {
			t.Errorf("%s: metrics (-from a file like the trained one +got):\n%s", eval, diff)
		}
	}
}

// TestEvaluationColumnsThatCannotBe checks the errors for names that do not fit.
func TestEvaluationColumnsThatCannotBe(t *testing.T) {
	t.Parallel()
	for eval, want := range map[string]string{
		`source: {text: {files: [a]}}, format: tsv, header: false`:         "eval.columns: is missing; name the columns, or set eval.header",
		`source: {text: {files: [a]}}, columns: [user, item]`:              `eval.columns: has no "click", which parse reads`,
		`source: {parquet: {files: [a]}}, columns: [user, item, click]`:    "eval.columns: is for csv and tsv, not columns",
		`source: {parquet: {files: [a]}}, header: true`:                    "eval.header: is for csv and tsv, not columns",
		`source: {kafka: {brokers: ["h:1"], topic: t, end: latest}}`:       "eval.header: is for files; a kafka source has no first line",
		`source: {text: {files: [a]}}, columns: [user, item, user, click]`: "eval.columns",
	} {
		_, err := job.Decode([]byte(columnsJob("/d", "run", eval)), "job.yaml", job.LoadOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", eval, err, want)
		}
	}
}
