package job_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
)

type heldRow struct {
	N     int64 `parquet:"n" json:"n"`
	User  int64 `parquet:"user" json:"user"`
	Item  int64 `parquet:"item" json:"item"`
	Click int64 `parquet:"click" json:"click"`
}

const dividedRows, dividedUsers = 900, 90

// holdoutFiles writes the same rows as csv, plain and gzip, JSON lines, TFRecord and Parquet, in two files each.
func holdoutFiles(t *testing.T, dir string) {
	t.Helper()
	for part := range 2 {
		var csv, lines strings.Builder
		var packed, examples bytes.Buffer
		records := tfrecord.NewWriter(&examples, nil)
		var rows []heldRow
		csv.WriteString("n,user,item,click\n")
		for n := part * dividedRows / 2; n < (part+1)*dividedRows/2; n++ {
			r := heldRow{int64(n), int64(n * 7 % dividedUsers), int64(n % 13), int64(n * n % 7 % 2)}
			rows = append(rows, r)
			fmt.Fprintf(&csv, "%d,%d,%d,%d\n", r.N, r.User, r.Item, r.Click)
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			lines.Write(append(b, '\n'))
			var e example.Encoder
			e.Int64s("n", r.N)
			e.Int64s("user", r.User)
			e.Int64s("item", r.Item)
			e.Int64s("click", r.Click)
			if err := records.Write(e.Append(nil)); err != nil {
				t.Fatal(err)
			}
		}
		w := gzip.NewWriter(&packed)
		_, err := w.Write([]byte(csv.String()))
		err = errors.Join(
			err, w.Close(), records.Close(),
			os.WriteFile(filepath.Join(dir, fmt.Sprintf("r%d.csv.gz", part)), packed.Bytes(), 0o600),
			os.WriteFile(filepath.Join(dir, fmt.Sprintf("r%d.tfrecord", part)), examples.Bytes(), 0o600),
			os.WriteFile(filepath.Join(dir, fmt.Sprintf("r%d.csv", part)), []byte(csv.String()), 0o600),
			os.WriteFile(filepath.Join(dir, fmt.Sprintf("r%d.jsonl", part)), []byte(lines.String()), 0o600),
			parquet.WriteFile(filepath.Join(dir, fmt.Sprintf("r%d.parquet", part)), rows, parquet.MaxRowsPerRowGroup(100)),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// holdoutJob trains on the rows of a format and writes those that it trains on, and those that are evaluated, beside.
func holdoutJob(t *testing.T, dir, run, kind, holdout string, set ...string) *job.Config {
	t.Helper()
	source := map[string]string{"csv": "text", "csv.gz": "text", "jsonl": "text", "tfrecord": "tfrecord", "parquet": "parquet"}[kind]
	parse := map[string]string{"csv": "format: csv, header: true, ", "csv.gz": "format: csv, header: true, ", "jsonl": "format: jsonl, "}[kind]
	text := fmt.Sprintf(`
version: 1
name: held
dir: %[1]q
source: {%[2]s: {files: [%[3]q]}}
epochs: 2
shuffle: {rows: 200}
parse: {%[4]sfeatures: [{name: n, kind: dense, standardise: running}, {name: user}, {name: item}], label: click}
model: {fm: {dim: 2}}
train: {batch: 16}
snapshot: {every: 0s}
outputs: [{name: trained, of: rows, to: {jsonl: {dir: %[5]q}}}]
eval:
  holdout: %[6]s
  metrics: [auc, log_loss]
  outputs: [{name: evaluated, of: rows, to: {jsonl: {dir: %[7]q}}}]
`, filepath.Join(dir, run), source, filepath.Join(dir, "*."+kind), parse, filepath.Join(dir, run+"-trained"), holdout, filepath.Join(dir, run+"-evaluated"))
	return decode(t, text, job.LoadOptions{Set: set})
}

// numbersIn counts how often each row is in a folder of JSON lines.
func numbersIn(t *testing.T, dir string) map[int64]int {
	t.Helper()
	out := map[int64]int{}
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl*"))
	if err == nil && len(paths) == 0 { // an evaluation's are in a folder of their own
		paths, err = filepath.Glob(filepath.Join(dir, "*", "*.jsonl*"))
	}
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s has no rows: %v", dir, err)
	}
	eachLine(t, paths, func(row struct{ N float64 }) { out[int64(math.Round(row.N))]++ })
	return out
}

// TestHoldout: whatever format, workers, files' names and interruptions, training sees the rows that are not held out, each once in an epoch, and evaluation the
// others; by a column the same ones in every format.
func TestHoldout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holdoutFiles(t, dir)
	elsewhere := t.TempDir()
	for part := range 2 { // other names, in another order
		for _, kind := range []string{"csv", "parquet"} {
			text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("r%d.%s", part, kind)))
			if err == nil {
				err = os.WriteFile(filepath.Join(elsewhere, fmt.Sprintf("x%d.%s", 1-part, kind)), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	all := map[string][]int64{} // what is held out, by the holdout
	for i, tt := range []struct {
		dir, kind, holdout string
		stops              bool
		set                []string
	}{
		{dir: dir, kind: "csv", holdout: "{by: user, share: .2}"},
		{dir: dir, kind: "csv", holdout: "{by: user, share: .2}", set: []string{"train.workers=3"}},
		{dir: dir, kind: "csv", holdout: "{by: user, share: .2}", stops: true},
		{dir: elsewhere, kind: "csv", holdout: "{by: user, share: .2}", set: []string{"seed=9"}},
		{dir: dir, kind: "jsonl", holdout: "{by: user, share: .2}"},
		{dir: dir, kind: "parquet", holdout: "{by: user, share: .2}", set: []string{"train.workers=2"}},
		{dir: dir, kind: "csv", holdout: ".1"},
		{dir: elsewhere, kind: "csv", holdout: ".1", stops: true, set: []string{"shuffle.rows=0"}},
		{dir: dir, kind: "csv", holdout: ".1", set: []string{"train.workers=3", "source.text.block_rows=7"}},
		{dir: dir, kind: "csv", holdout: ".1", set: []string{"shuffle={rows: -1, one_split: true}", "train.batch=33"}},
		{dir: elsewhere, kind: "parquet", holdout: "{share: .15}", set: []string{"source.parquet.block_rows=13", "shuffle={rows: -1, one_split: true}"}},
		{dir: dir, kind: "csv.gz", holdout: ".12", stops: true},
		{dir: dir, kind: "csv.gz", holdout: ".12", set: []string{"train.workers=2", "source.text.block_rows=7", "shuffle.rows=0"}},
		{dir: dir, kind: "jsonl", holdout: ".13", stops: true, set: []string{"source.text.block_rows=3"}},
		{dir: dir, kind: "jsonl", holdout: ".13"},
		{dir: dir, kind: "tfrecord", holdout: ".14", stops: true, set: []string{"source.tfrecord.block_rows=7"}},
		{dir: dir, kind: "tfrecord", holdout: ".14", set: []string{"train.workers=2"}},
		{dir: dir, kind: "parquet", holdout: "{share: .15}"},
		{dir: dir, kind: "parquet", holdout: "{share: .15}", stops: true, set: []string{"eval.group=user"}},
		{dir: dir, kind: "parquet", holdout: "{by: n, from: 800}"},
		{dir: dir, kind: "jsonl", holdout: "{by: n, from: 800}"},
		{dir: dir, kind: "csv", holdout: "{by: n, from: 450}", set: []string{"train.workers=2"}}, // the whole of the second file
		{dir: dir, kind: "csv", holdout: "{by: n, from: 450}", stops: true, set: []string{"shuffle.rows=0"}},
		{dir: dir, kind: "parquet", holdout: "{by: n, from: 450}", stops: true},
	} {
		run := fmt.Sprint("run", i)
		cfg := func(set ...string) *job.Config {
			return holdoutJob(t, tt.dir, run, tt.kind, tt.holdout, append(slices.Clone(tt.set), set...)...)
		}
		before := int64(0) // passed over
		if tt.stops {
			r, err := job.Run(t.Context(), cfg("train.max_examples=333"), job.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			before = r.HeldOut
		}
		trained, err := job.Run(t.Context(), cfg(), job.RunOptions{})
		if err != nil {
			t.Fatalf("%v: %v", tt, err)
		}
		evaluated, err := job.Evaluate(t.Context(), cfg(), job.EvalOptions{})
		if err != nil {
			t.Fatalf("%v: %v", tt, err)
		}
		rest, held := numbersIn(t, filepath.Join(tt.dir, run+"-trained")), numbersIn(t, filepath.Join(tt.dir, run+"-evaluated"))
		for n := range int64(dividedRows) {
			if rest[n] != 2*(1-held[n]) || held[n] > 1 {
				t.Fatalf("%v: row %d was trained on %d times and evaluated %d times, in 2 epochs", tt, n, rest[n], held[n])
			}
		}
		if before+trained.HeldOut != int64(2*len(held)) {
			t.Errorf("%v: %d and %d examples passed over, of %d in each of 2 epochs", tt, before, trained.HeldOut, len(held))
		}
		if again, err := job.Run(t.Context(), cfg(), job.RunOptions{}); err != nil || again.HeldOut != 0 || again.Examples != 0 {
			t.Errorf("%v: when there is nothing left %d examples were passed over and %d trained on: %v", tt, again.HeldOut, again.Examples, err)
		}
		if int(evaluated.Examples) != len(held) || len(held) < dividedRows/20 || len(held) > dividedRows/2 {
			t.Errorf("%v: %d of %d rows are held out, %d evaluated", tt, len(held), dividedRows, evaluated.Examples)
		}
		if auc, ok := trained.Metrics["auc"]; !ok || auc != evaluated.Metrics["auc"] {
			t.Errorf("%v: training ends with an auc of %v, the evaluation says %v", tt, auc, evaluated.Metrics["auc"])
		}
		numbers := slices.Sorted(maps.Keys(held))
		if want, ok := all[tt.holdout]; ok {
			if diff := cmp.Diff(want, numbers); diff != "" {
				t.Errorf("%v: other rows are held out:\n%s", tt, diff)
			}
		}
		all[tt.holdout] = numbers
	}
	if want := all["{by: n, from: 800}"]; want[0] != 800 || len(want) != 100 {
		t.Errorf("from 800 on %v are held out", want)
	}
}

// TestHoldoutIsRemembered: a snapshot is neither evaluated nor trained further with another holdout, and predictions are of all examples, or of those of evaluation.
func TestHoldoutIsRemembered(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"csv", "parquet"} {
		dir := t.TempDir()
		holdoutFiles(t, dir)
		cfg := func(holdout string, set ...string) *job.Config {
			return holdoutJob(t, dir, "run", kind, holdout, set...)
		}
		if _, err := job.Run(t.Context(), cfg(".2"), job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		for what, do := range map[string]func(context.Context, *job.Config) error{
			"train": func(ctx context.Context, c *job.Config) error {
				_, err := job.Run(ctx, c, job.RunOptions{})
				return err
			},
			"eval": func(ctx context.Context, c *job.Config) error {
				_, err := job.Evaluate(ctx, c, job.EvalOptions{})
				return err
			},
		} {
			err := do(t.Context(), cfg("{by: user, share: .2}"))
			if want := `eval.holdout: by was not set, is "user"`; !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s by another holdout: %v, want %s", what, err, want)
			}
		}
		if _, err := job.Evaluate(t.Context(), cfg(".2"), job.EvalOptions{}); err != nil {
			t.Fatal(err)
		}
		from := filepath.Join(dir, "run", "snapshots", "snap-00000002")
		for _, do := range []func(c *job.Config) error{
			func(c *job.Config) error { _, err := job.Run(t.Context(), c, job.RunOptions{}); return err },
			func(c *job.Config) error {
				findings, err := job.Check(t.Context(), c)
				for _, f := range findings {
					err = errors.Join(err, errors.New(f.Message))
				}
				return err
			},
		} {
			err := do(cfg("{by: user, share: .2}", "dir="+filepath.Join(dir, "young"), "restore.from="+from))
			for _, want := range []string{"snapshot " + from + ", which restore.from names,", `eval.holdout: by was not set, is "user"`, "set these to what they were; or name another snapshot in restore.from, or leave it out"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("restore.from of another holdout: %v, want %s", err, want)
				}
			}
			if strings.Contains(fmt.Sprint(err), "another dir") {
				t.Errorf("restore.from of another holdout: %v", err)
			}
		}
		held := numbersIn(t, filepath.Join(dir, "run-evaluated"))
		for examples, want := range map[string]int{"": dividedRows, job.EvalExamples: len(held)} {
			to := filepath.Join(dir, "scores"+examples)
			r, err := job.Predict(t.Context(), cfg(".2", "predict.to={jsonl: {dir: "+to+"}}", "predict.fields=[n, prediction]"), job.PredictOptions{Examples: examples})
			if err != nil || int(r.Rows) != want {
				t.Fatalf("examples %q: %+v, %v; want %d", examples, r, err, want)
			}
		}
	}
}

// TestHoldoutMovesOn: a run begins with a model that has seen nothing of what is held out now, which may be less than was then and never something else; training
// that continues in its own dir has the holdout that it began with.
func TestHoldoutMovesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holdoutFiles(t, dir)
	for i, tt := range []struct {
		was, is string
		may     bool
	}{
		{"{by: n, from: 600}", "{by: n, from: 700}", true},
		{"{by: n, from: 600}", "{by: n, from: 1e3}", true}, // numbers: as texts the other way round
		{"{by: n, from: 600}", "{by: n, from: 600}", true},
		{"{by: n, from: 600}", "{by: n, from: 599}", false},
		{"{by: n, from: 600}", "{by: n, from: 60 o'clock}", false}, // a text
		{"{by: n, from: 600}", "{by: item, from: 700}", false},
		{"{by: n, from: 600}", "{by: n, share: .01}", false},
		{"{by: n, from: 4x}", "{by: n, from: 5x}", true},
		{"{by: n, from: 4x}", "{by: n, from: 3x}", false},
		{"{by: user, share: .3}", "{by: user, share: .2}", true},
		{"{by: user, share: .3}", "{by: user, share: .4}", false},
		{"{by: user, share: .3}", "{by: item, share: .2}", false},
		{".3", ".2", true},
		{".2", ".3", false},
		{".3", "", true},
	} {
		cfg := func(run, holdout string, set ...string) *job.Config {
			if holdout == "" {
				holdout, set = ".1", append(set, "eval={}")
			}
			return holdoutJob(t, dir, run, "csv", holdout, append(set, "outputs=[]", "epochs=1")...)
		}
		old := fmt.Sprint("old", i)
		if _, err := job.Run(t.Context(), cfg(old, tt.was), job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		from := cfg(fmt.Sprint("new", i), tt.is, "restore.from="+filepath.Join(dir, old))
		found, err := job.Check(t.Context(), from)
		if err != nil || (len(found) == 0) != tt.may {
			t.Errorf("%s after %s: check: %+v, %v", tt.is, tt.was, found, err)
		}
		r, err := job.Run(t.Context(), from, job.RunOptions{})
		if (err == nil) != tt.may || err != nil && (!errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "eval.holdout: ")) || err == nil && r.Examples == 0 {
			t.Errorf("%s after %s: %+v, %v", tt.is, tt.was, r, err)
		}
		if tt.is == tt.was {
			continue
		}
		if _, err := job.Run(t.Context(), cfg(old, tt.is), job.RunOptions{}); !errors.Is(err, pipeline.ErrConfig) {
			t.Errorf("%s in the dir of %s: %v", tt.is, tt.was, err)
		}
		if found, err := job.Check(t.Context(), cfg(old, tt.is)); err != nil || len(found) != 1 || found[0].Path != "dir" {
			t.Errorf("%s in the dir of %s: check: %+v, %v", tt.is, tt.was, found, err)
		}
		if tt.is == "" {
			continue
		}
		if _, err := job.Evaluate(t.Context(), cfg(old, tt.is), job.EvalOptions{}); tt.may && err != nil && !strings.Contains(err.Error(), "holds out no example") || !tt.may && !errors.Is(err, pipeline.ErrConfig) {
			t.Errorf("%s is evaluated after %s: %v", tt.is, tt.was, err)
		}
	}
}

// TestHoldoutComparesSameRows: another job is measured on the rows that the evaluated one holds out, and it is said when it has others of its own.
func TestHoldoutComparesSameRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holdoutFiles(t, dir)
	cfg, other := holdoutJob(t, dir, "a", "csv", ".2"), holdoutJob(t, dir, "b", "jsonl", "{by: user, share: .1}")
	for _, c := range []*job.Config{cfg, other} {
		if _, err := job.Run(t.Context(), c, job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var notices []string
	r, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{
		Compare: &job.CompareWith{Config: other}, Options: job.RunOptions{Notice: func(text string) { notices = append(notices, text) }},
	})
	if err != nil || r.Examples < dividedRows/10 {
		t.Fatalf("%+v, %v", r, err)
	}
	if !strings.Contains(strings.Join(notices, "\n"), "holds out other examples") {
		t.Errorf("notices %q", notices)
	}
}

// TestHoldoutOfNothing: where nothing is held out training says so and continues, and an evaluation fails.
func TestHoldoutOfNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holdoutFiles(t, dir)
	cfg := holdoutJob(t, dir, "run", "csv", "{by: n, from: 10000}")
	var notices []string
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{Notice: func(text string) { notices = append(notices, text) }}); err != nil {
		t.Fatal(err)
	}
	_, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{})
	const want = "eval.holdout holds out no example"
	if !strings.Contains(strings.Join(notices, "\n"), want) || !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
		t.Errorf("notices %q, %v", notices, err)
	}
}

// TestHoldoutOfEverything: training that is left nothing fails and stores nothing, so that it can be done with another holdout in the same dir.
func TestHoldoutOfEverything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holdoutFiles(t, dir)
	const want = "eval.holdout holds out every example (900 were read) and leaves none to train on"
	for range 2 { // the second time too
		if _, err := job.Run(t.Context(), holdoutJob(t, dir, "run", "csv", "{by: n, from: 0}", "outputs=[]"), job.RunOptions{}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	r, err := job.Run(t.Context(), holdoutJob(t, dir, "run", "csv", "{by: n, from: 600}", "outputs=[]"), job.RunOptions{})
	if err != nil || r.Examples != 1200 {
		t.Errorf("with another holdout: %+v, %v", r, err)
	}
}

// TestHoldoutOfTheWrongOnes: what holds out nothing says which column and value it went by, in training and in evaluation.
func TestHoldoutOfTheWrongOnes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holdoutFiles(t, dir)
	for i, tt := range []struct{ kind, holdout, train, eval string }{
		{"jsonl", "{by: usr, share: .5}", `see whether records have a value of "usr"`, `see whether records have a value of "usr"`},
		{"csv", "{by: n, from: 10000}", `no record has a value of "n" that is 10000 or above`, `no record has a value of "n" that is 10000 or above`},
		{"csv", "{by: n, from: a}", "otherwise as text, byte by byte", "otherwise as text, byte by byte"},
	} {
		cfg := holdoutJob(t, dir, fmt.Sprint("run", i), tt.kind, tt.holdout, "outputs=[]")
		var notices []string
		if _, err := job.Run(t.Context(), cfg, job.RunOptions{Notice: func(text string) { notices = append(notices, text) }}); err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(notices, "\n"); !strings.Contains(said, tt.train) || strings.Contains(said, "had no examples") {
			t.Errorf("%s: notices %q, want %s", tt.holdout, notices, tt.train)
		}
		if _, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{}); (err != nil) != (tt.eval != "") || err != nil && (!errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), tt.eval)) {
			t.Errorf("%s: %v, want %s", tt.holdout, err, tt.eval)
		}
	}
}

// TestHoldoutFaults: what a job says of its holdout is checked before anything is read.
func TestHoldoutFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holdoutFiles(t, dir)
	for holdout, want := range map[string]string{
		"{by: user}":                     "share: is missing",
		"{from: 3}":                      "by: is missing",
		"{by: n, from: 3, share: .1}":    "one of them decides",
		"1.5":                            "eval.holdout.share",
		"{by: user, share: .1, fold: 1}": "fold",
	} {
		text := fmt.Sprintf("version: 1\nsource: {text: {files: [%q]}}\nparse: {format: csv, columns: [n, user, item, click], features: [{name: user}], label: click}\nmodel: lr\neval: {holdout: %s}\n", filepath.Join(dir, "*.csv"), holdout)
		if _, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", holdout, err, want)
		}
		for _, more := range []string{"eval.source={text: {files: [x]}}", "eval.format=csv"} {
			if _, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{Set: []string{"eval.holdout=.1", more}}); err == nil || !strings.Contains(err.Error(), "eval.") {
				t.Errorf("%s: %v", more, err)
			}
		}
		if _, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{Set: []string{"eval.holdout={by: usr, share: .1}"}}); err == nil || !strings.Contains(err.Error(), `"usr", which is no column`) {
			t.Errorf("by a column that is not there: %v", err)
		}
	}
}

// TestHoldoutOfEqualRows: rows of one column are drawn one by one, though most are equal, so a model of it is measured by all its values.
func TestHoldoutOfEqualRows(t *testing.T) {
	t.Parallel()
	const rows, ids = 500, 40
	type row struct {
		ID    int64 `parquet:"id"`
		Click int64 `parquet:"click"`
	}
	dir := t.TempDir()
	b, err := broker.Start(broker.Options{Topics: map[string]int{"clicks": 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // of the test
	var csv strings.Builder
	var columns []row
	csv.WriteString("id,click\n")
	topic := map[int][]broker.Record{}
	for i := range rows {
		r := row{int64(i * 7 % ids), int64(i * 7 % ids % 2)}
		columns = append(columns, r)
		line := fmt.Sprintf("%d,%d", r.ID, r.Click)
		csv.WriteString(line + "\n")
		topic[i%2] = append(topic[i%2], broker.Record{Value: []byte(line)})
	}
	err = errors.Join(os.WriteFile(filepath.Join(dir, "a.csv"), []byte(csv.String()), 0o600), parquet.WriteFile(filepath.Join(dir, "a.parquet"), columns, parquet.MaxRowsPerRowGroup(60)))
	for p, records := range topic {
		err = errors.Join(err, broker.Produce(t.Context(), b.Addrs(), "clicks", p, broker.Batch{Size: 7}, records...))
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, source := range map[string]string{
		"csv":     fmt.Sprintf("epochs: 20\nsource: {text: {files: [%q]}}\nparse: {format: csv, header: true, features: [{name: id}], label: click}", filepath.Join(dir, "a.csv")),
		"parquet": fmt.Sprintf("epochs: 20\nsource: {parquet: {files: [%q]}}\nparse: {features: [{name: id}], label: click}", filepath.Join(dir, "a.parquet")),
		"kafka": fmt.Sprintf("source: {kafka: {brokers: [%s], topic: clicks, end: latest}}\nparse: {format: csv, columns: [id, click], features: [{name: id}], label: click}",
			strings.Join(b.Addrs(), ",")),
	} {
		outputs := filepath.Join(dir, name+"-rows")
		cfg := decode(t, fmt.Sprintf(`
version: 1
dir: %q
%s
model: lr
train: {batch: 10}
eval:
  holdout: {share: 0.1}
  max_examples: 10000
  outputs: [{name: evaluated, of: rows, to: {jsonl: {dir: %q}}}]
`, filepath.Join(dir, name), source, outputs), job.LoadOptions{})
		trained, err := job.Run(t.Context(), cfg, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if all := (trained.Examples+trained.HeldOut)/max(int64(cfg.Epochs), 1) - rows; all != 0 || trained.HeldOut/max(int64(cfg.Epochs), 1) != r.Examples || r.Examples < 30 || r.Examples > 70 {
			t.Errorf("%s: %d examples are trained on, %d held out and %d evaluated, in %d epochs of %d", name, trained.Examples, trained.HeldOut, r.Examples, cfg.Epochs, rows)
		}
		if auc := r.Metrics["auc"]; auc < .99 {
			t.Errorf("%s: AUC is %v over %d examples, and each id has one label", name, auc, r.Examples)
		}
		paths, err := filepath.Glob(filepath.Join(outputs, "*", "*.jsonl*"))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[int64]bool{}
		eachLine(t, paths, func(row struct{ ID []int64 }) { seen[row.ID[0]] = true })
		if len(seen) < ids/2 {
			t.Errorf("%s: %d of %d ids are held out", name, len(seen), ids)
		}
	}
}

// TestHoldoutStaysWhenFilesGrow: what is appended to a file changes no side of the rows before it, and neither does another feature.
func TestHoldoutStaysWhenFilesGrow(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"csv", "jsonl", "parquet"} {
		dir := t.TempDir()
		holdoutFiles(t, dir)
		cfg := func(set ...string) *job.Config {
			return holdoutJob(t, dir, "run", kind, ".2", append([]string{"epochs=1", "shuffle.rows=0"}, set...)...)
		}
		first, err := job.Run(t.Context(), cfg(), job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if kind != "parquet" { // which cannot be appended to
			f, err := os.OpenFile(filepath.Join(dir, "r1."+kind), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			for n := dividedRows; n < dividedRows+200; n++ {
				line := fmt.Sprintf("%d,1,2,1\n", n)
				if kind == "jsonl" {
					line = fmt.Sprintf(`{"n":%d,"user":1,"item":2,"click":1}`+"\n", n)
				}
				if _, err := f.WriteString(line); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		again, err := job.Run(t.Context(), cfg("restore.features={item: drop}", "parse.features=[{name: n, kind: dense, standardise: running}, {name: user}]"), job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := job.Evaluate(t.Context(), cfg("restore.features={item: drop}", "parse.features=[{name: n, kind: dense, standardise: running}, {name: user}]"), job.EvalOptions{}); err != nil {
			t.Fatal(err)
		}
		rest, held := numbersIn(t, filepath.Join(dir, "run-trained")), numbersIn(t, filepath.Join(dir, "run-evaluated"))
		for n, times := range rest {
			if times+held[n] != 1 {
				t.Fatalf("%s: row %d was trained on %d times and evaluated %d times", kind, n, times, held[n])
			}
		}
		if all := len(rest) + len(held); int64(all) != first.Examples+first.HeldOut+again.Examples+again.HeldOut || all < dividedRows {
			t.Errorf("%s: %d rows, %+v, %+v", kind, all, first, again)
		}
	}
}

// TestHoldoutOfOlderSnapshots: examples of older versions were drawn by their bytes, and those of other sources lie in other places. Both are refused with what to do; by a
// column nothing has changed.
func TestHoldoutOfOlderSnapshots(t *testing.T) {
	t.Parallel()
	const text = "version: 1\nsource: {text: {files: [a.csv]}}\nparse: {format: csv, columns: [user, click], features: [{name: user}], label: click}\nmodel: lr\neval: {holdout: %s}\n"
	for _, tt := range []struct{ stored, holdout, want string }{
		{`{"share": 0.1}`, ".1", `eval.holdout: examples drawn by: was bytes alone, as older versions did, is place in text csv: what was trained on would be held out; evaluate it on eval.source`},
		{`{"share": 0.2}`, ".1", "is place in text csv"},
		{`{"share": 0.1, "rows": "place in text csv"}`, ".1", ""},
		{`{"share": 0.2, "rows": "place in text csv"}`, ".1", ""},
		{`{"share": 0.1, "rows": "place in kafka csv"}`, ".1", "was place in kafka csv, is place in text csv: what is in both could be trained on in the one and held out in the other; hold out by a column in both"},
		{`{"by": "user", "share": 0.1}`, "{by: user, share: .1}", ""},
		{`{"by": "user", "share": 0.1}`, ".1", `eval.holdout: by was "user", is not set`},
	} {
		cfg := decode(t, fmt.Sprintf(text, tt.holdout), job.LoadOptions{})
		recipe := map[string]json.RawMessage{}
		if err := json.Unmarshal(cfg.Recipe().JSON(), &recipe); err != nil {
			t.Fatal(err)
		}
		recipe["holdout"] = json.RawMessage(tt.stored)
		b, err := json.Marshal(recipe)
		if err != nil {
			t.Fatal(err)
		}
		_, err = stored.Fits(cfg, nil, &snapshot.Info{Recipe: b})
		if (err == nil) != (tt.want == "") || err != nil && (!errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s after %s: %v", tt.holdout, tt.stored, err)
		}
	}
}
