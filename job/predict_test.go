package job_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/pipeline"
)

// predictWorld is a trained job with files to predict: held-*.csv with labels, new-*.csv with the same rows without.
type predictWorld struct {
	t   *testing.T
	dir string
}

const (
	heldFiles = 3
	heldRows  = 9000 // of each file
)

// click is the row of a number: its columns user, item and price, and whether it is a click.
func clickRow(i int) (user string, item int, price float64, click int) {
	user, item, price = fmt.Sprintf("u%d", i%97), i*i%53, float64(i%10)/4
	if (i%97+item)%3 == 0 {
		click = 1
	}
	return user, item, price, click
}

func newPredictWorld(t *testing.T) *predictWorld {
	t.Helper()
	w := &predictWorld{t, t.TempDir()}
	w.write("train-0.csv", 0, 4000, true)
	for f := range heldFiles {
		w.write(fmt.Sprintf("held-%d.csv", f), 10_000+f*heldRows, heldRows, true)
		w.write(fmt.Sprintf("new-%d.csv", f), 10_000+f*heldRows, heldRows, false)
	}
	if _, err := job.Run(t.Context(), w.config("eval={}"), job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return w
}

// write writes n rows from a number on.
func (w *predictWorld) write(name string, from, n int, labels bool) {
	w.t.Helper()
	var b strings.Builder
	if labels {
		b.WriteString("click,")
	}
	b.WriteString("user,item,price,request\n")
	for i := from; i < from+n; i++ {
		user, item, price, click := clickRow(i)
		if labels {
			fmt.Fprintf(&b, "%d,", click)
		}
		fmt.Fprintf(&b, "%s,%d,%g,\"r\t%d\"\n", user, item, price, i)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(w.path(name)), 0o755), os.WriteFile(w.path(name), []byte(b.String()), 0o644)); err != nil {
		w.t.Fatal(err)
	}
}

// path is that of a file of the world.
func (w *predictWorld) path(name string) string { return filepath.Join(w.dir, name) }

func (w *predictWorld) config(set ...string) *job.Config {
	w.t.Helper()
	c, err := w.decode(set...)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *predictWorld) decode(set ...string) (*job.Config, error) {
	return w.decodeWith(component.Set{}, set...)
}

// decodeWith is decode with stages of the test's own.
func (w *predictWorld) decodeWith(own component.Set, set ...string) (*job.Config, error) {
	parts := components.All()
	parts.Stages = own.Stages
	text := fmt.Sprintf(`
version: 1
name: clicks
dir: %q
seed: 5
source: {text: {files: [%q]}}
parse:
  format: csv
  header: true
  features: [{name: user}, {name: item}, {name: price, kind: dense}]
  label: click
model: {deepfm: {dim: 4, hidden: [8], batch_norm: true, dropout: 0.2}}
train: {batch: 64}
ps: {shards: 2}
eval: {source: {text: {files: [%q]}}, outputs: [{name: scores, of: predictions, to: {parquet: %q}}]}
`, w.path("run"), w.path("train-*.csv"), w.path("held-*.csv"), w.path("evaluated"))
	return job.Decode([]byte(text), "clicks.yaml", job.LoadOptions{Set: set, Components: parts})
}

// thirdBlock is a stage that hands on what it gets, and calls then with the third block of a run.
type thirdBlock struct {
	counter
	blocks atomic.Int64
	then   func()
}

func (s *thirdBlock) Stage() (pipeline.Stage[*pipeline.Batch, *pipeline.Batch], error) { return s, nil }

func (s *thirdBlock) Open(context.Context, *pipeline.Env) (pipeline.Processor[*pipeline.Batch, *pipeline.Batch], error) {
	return s, nil
}

func (s *thirdBlock) Process(_ context.Context, in *pipeline.Batch, emit func(*pipeline.Batch) error) error {
	if s.blocks.Add(1) == 3 {
		s.then()
	}
	return emit(in)
}

// predicted is what is written of a row.
type predicted struct {
	Prediction float32
	Label      string // empty: null
	Request    string
}

// predictionsIn reads the predictions of a folder in one of the formats; each may be there once. They have the fields position, split,
// request and, as the case may be, label.
func (w *predictWorld) predictions(format, dir string) map[rowPlace]predicted {
	w.t.Helper()
	out := map[rowPlace]predicted{}
	put := func(split string, position int64, p predicted) {
		at := rowPlace{split, position}
		if _, twice := out[at]; twice {
			w.t.Errorf("%v is there twice", at)
		}
		out[at] = p
	}
	paths, err := filepath.Glob(filepath.Join(dir, "[^._]*"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, path := range paths {
		if err := readPredictions(format, path, put); err != nil {
			w.t.Errorf("%s: %v", path, err)
		}
	}
	return out
}

func readPredictions(format, path string, put func(split string, position int64, p predicted)) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return err
		}
		if b, err = io.ReadAll(z); err != nil {
			return err
		}
	}
	switch format {
	case "jsonl":
		for d := json.NewDecoder(bytes.NewReader(b)); ; {
			var row struct {
				Prediction     float32
				Label          json.Number
				Request, Split string
				Position       int64
			}
			if err := d.Decode(&row); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			put(row.Split, row.Position, predicted{row.Prediction, row.Label.String(), row.Request})
		}
	case "tsv":
		r := csv.NewReader(bytes.NewReader(b))
		r.Comma = '\t'
		lines, err := r.ReadAll()
		if err != nil {
			return err
		}
		at := func(line []string, name string) string {
			if i := slices.Index(lines[0], name); i >= 0 {
				return line[i]
			}
			return ""
		}
		for _, line := range lines[1:] {
			p, err := strconv.ParseFloat(at(line, "prediction"), 32)
			if err != nil {
				return err
			}
			position, err := strconv.ParseInt(at(line, "position"), 10, 64)
			if err != nil {
				return err
			}
			put(at(line, "split"), position, predicted{float32(p), at(line, "label"), at(line, "request")})
		}
		return nil
	case "tfrecord":
		for r := tfrecord.NewReader(bytes.NewReader(b), nil); ; {
			record, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			all, err := example.All(record)
			if err != nil {
				return err
			}
			float := func(name string) []float32 { v, _ := all[name].AppendFloats(nil); return v }
			text := func(name string) string { v, _ := all[name].AppendBytes(nil); return string(bytes.Join(v, nil)) }
			position, err := all["position"].AppendInt64s(nil)
			if err != nil {
				return err
			}
			p := predicted{Prediction: float("prediction")[0], Request: text("request")}
			if label := float("label"); len(label) > 0 {
				p.Label = fmt.Sprint(label[0])
			}
			put(text("split"), position[0], p)
		}
	}
	r, err := ipc.NewFileReader(bytes.NewReader(b))
	if err != nil {
		return err
	}
	for i := range r.NumRecords() {
		rec, err := r.RecordBatch(i)
		if err != nil {
			return err
		}
		column := func(name string) arrow.Array {
			if at := rec.Schema().FieldIndices(name); len(at) > 0 {
				return rec.Column(at[0])
			}
			return nil
		}
		for k := range int(rec.NumRows()) {
			p := predicted{Prediction: column("prediction").(*array.Float32).Value(k), Request: string(column("request").(*array.Binary).Value(k))}
			if l, ok := column("label").(*array.Float32); ok && l.IsValid(k) {
				p.Label = fmt.Sprint(l.Value(k))
			}
			put(column("split").(*array.String).Value(k), column("position").(*array.Int64).Value(k), p)
		}
	}
	return nil
}

// checkPredictions compares predictions of held-*.csv or new-*.csv, in the files' order, with what they should be by number of row.
func (w *predictWorld) check(what string, got map[rowPlace]predicted, want []float32, labels bool) {
	w.t.Helper()
	if len(got) != len(want) {
		w.t.Errorf("%s: %d predictions, want %d", what, len(got), len(want))
		return
	}
	for n, i := range inOrder(got) {
		p := got[i]
		_, _, _, click := clickRow(10_000 + n)
		label := ""
		if labels {
			label = fmt.Sprint(click)
		}
		if math.Float32bits(p.Prediction) != math.Float32bits(want[n]) || p.Label != label || p.Request != fmt.Sprintf("r\t%d", 10_000+n) {
			w.t.Fatalf("%s: row %d (%v) is %+v, want %v and label %q", what, n, i, p, want[n], label)
		}
	}
}

func inOrder[T any](rows map[rowPlace]T) []rowPlace {
	var out []rowPlace
	for at := range rows {
		out = append(out, at)
	}
	slices.SortFunc(out, func(a, b rowPlace) int {
		return cmp.Or(strings.Compare(a.split, b.split), int(a.position-b.position))
	})
	return out
}

// evaluated evaluates held-*.csv and returns what it predicted, by number of row, and its AUC.
func (w *predictWorld) evaluated() (predictions []float32, auc float64) {
	w.t.Helper()
	r, err := job.Evaluate(w.t.Context(), w.config(), job.EvalOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	rows := map[rowPlace]float32{}
	eachRow(w.t, filepath.Join(w.path("evaluated"), r.Part), []arrow.Field{{Name: "prediction", Type: arrow.PrimitiveTypes.Float32}}, func(at rowPlace, b *pipeline.Batch, i int) {
		rows[at] = b.Column("prediction").(*array.Float32).Value(i)
	})
	for _, at := range inOrder(rows) {
		predictions = append(predictions, rows[at])
	}
	if len(predictions) != heldFiles*heldRows {
		w.t.Fatalf("%d rows were evaluated", len(predictions))
	}
	return predictions, r.Metrics["auc"]
}

func (w *predictWorld) predict(o job.PredictOptions, set ...string) (*job.Predicted, error) {
	w.t.Helper()
	return job.Predict(w.t.Context(), w.config(set...), o)
}

const predictFields = "predict.fields=[request, position, split, prediction]"

// TestPredictionsAreThoseOfTheEvaluation: in every format each row has the bits that the evaluation has measured, and the columns that it
// came with, whether there are labels or not, with any number of workers; the AUC of what was written is the evaluation's.
func TestPredictionsAreThoseOfTheEvaluation(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	want, auc := w.evaluated()
	for _, format := range []string{"jsonl", "tsv", "arrow", "tfrecord"} {
		for _, labels := range []bool{true, false} {
			name := fmt.Sprint(format, labels)
			set := []string{fmt.Sprintf("predict.to={%s: %q}", format, w.path(name))}
			o := job.PredictOptions{Workers: 2}
			if labels {
				o.Examples, set = job.EvalExamples, append(set, "predict.fields=[label, request, position, split]") // the prediction comes last
			} else {
				keys, err := job.SetTarget(w.path("new-*.csv"), nil)
				if err != nil {
					t.Fatal(err)
				}
				set = slices.Concat(set, keys, []string{predictFields})
			}
			r, err := w.predict(o, set...)
			if err != nil {
				t.Fatal(err)
			}
			if r.Rows != heldFiles*heldRows || r.Earlier != 0 || r.Drained || r.Place != w.path(name) || r.Fields[len(r.Fields)-1] != "prediction" {
				t.Errorf("%s: %+v", name, r)
			}
			w.check(name, w.predictions(format, w.path(name)), want, labels)
		}
	}
	// Parquet with another reader, and the usual fields.
	if _, err := w.predict(job.PredictOptions{Examples: job.EvalExamples}, fmt.Sprintf("predict.to={parquet: %q}", w.path("parquet")), "predict.fields=[label, position]"); err != nil {
		t.Fatal(err)
	}
	if _, got := scoresIn(t, w.path("parquet")); math.Abs(got-auc) > 1e-9 {
		t.Errorf("the AUC of what was written is %v, of the evaluation %v", got, auc)
	}
	r, err := w.predict(job.PredictOptions{Examples: job.EvalExamples, Snapshot: "1"}, fmt.Sprintf("predict.to={jsonl: %q}", w.path("usual")))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"label", "prediction"}; !slices.Equal(r.Fields, want) {
		t.Errorf("fields %q, usually %q", r.Fields, want)
	}
}

// TestPredictContinues cuts predictions off, with an error and by draining them, and starts them again: each row is there once, with the
// bits of a run that nobody touched. Then files come, and others are renamed and replaced: what is new is predicted, and nothing else.
func TestPredictContinues(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	want, _ := w.evaluated()
	keys, err := job.SetTarget(w.path("new-*.csv"), nil)
	if err != nil {
		t.Fatal(err)
	}
	out := w.path("cut")
	set := slices.Concat(keys, []string{predictFields, fmt.Sprintf("predict.to={tsv: {dir: %q, rows_per_file: 1000}}", out)})
	files := func() int {
		found, err := filepath.Glob(filepath.Join(out, "[^._]*"))
		if err != nil {
			t.Error(err)
		}
		return len(found)
	}
	cut, drained := 0, 0
	for life := range 6 {
		ctx, cancel := context.WithCancel(t.Context())
		drain := make(chan struct{})
		before := files()
		// With the third block something is visible that was not there, and the run is ended: more of it is to be read.
		third := &thirdBlock{then: func() {
			for files() <= before && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			if life%2 == 0 {
				cancel()
			} else {
				close(drain)
			}
		}}
		parts := component.Set{Stages: []component.Stage{{Name: "third", New: func() component.StageConfig { return third }}}}
		cfg, err := w.decodeWith(parts, append(set, "stages=[third]")...)
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Predict(ctx, cfg, job.PredictOptions{Options: job.RunOptions{Drain: drain}, Workers: 1 + life%2})
		cancel()
		switch {
		case err != nil && !errors.Is(err, context.Canceled):
			t.Fatal(err)
		case err != nil:
			cut++
		case r.Drained:
			drained++
		}
	}
	t.Logf("%d runs were cut off, %d drained", cut, drained)
	if cut == 0 {
		t.Error("no run was cut off: no test")
	}
	r, err := w.predict(job.PredictOptions{Workers: 3}, set...)
	if err != nil || r.Rows != heldFiles*heldRows || r.Earlier == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	w.check("cut off", w.predictions("tsv", out), want, false)
	if r, err = w.predict(job.PredictOptions{}, set...); err != nil || r.Rows != heldFiles*heldRows || r.Earlier != r.Rows {
		t.Errorf("once more: %+v, %v", r, err)
	}
	w.write("new-7.csv", 50_000, 10, false) // a new file
	if err := os.Rename(w.path("new-1.csv"), w.path("new-8.csv")); err != nil {
		t.Fatal(err)
	}
	w.write("new-2.csv", 60_000, 20, false) // another file under the name of one
	if r, err = w.predict(job.PredictOptions{}, set...); err != nil || r.Rows-r.Earlier != 30 {
		t.Errorf("with ten rows in a new file and twenty in a replaced one: %+v, %v", r, err)
	}
	if n := len(w.predictions("tsv", out)); n != heldFiles*heldRows+30 {
		t.Errorf("%d predictions, want %d", n, heldFiles*heldRows+30)
	}
	// A file that had its header alone has grown since, and is replaced by one with the same header.
	for i, step := range []struct{ from, rows, want int }{{0, 0, 0}, {70_000, 40, 40}, {80_000, 60, 60}, {80_000, 70, 10}, {80_000, 70, 0}} {
		w.write("new-9.csv", step.from, step.rows, false)
		if r, err = w.predict(job.PredictOptions{}, set...); err != nil || r.Rows-r.Earlier != int64(step.want) {
			t.Errorf("step %d of a file that grows and is replaced: %+v, %v; want %d new rows", i, r, err, step.want)
		}
	}
	if n := len(w.predictions("tsv", out)); n != heldFiles*heldRows+30+110 {
		t.Errorf("%d predictions, want %d", n, heldFiles*heldRows+140)
	}
}

// TestPredictCompressedLogs: predictions, too, say that a log is read again which was compressed when it was rotated, once, and nothing of a new file that only looks like it.
func TestPredictCompressedLogs(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	w.write("app.log", 50_000, 30, false)
	keys, err := job.SetTarget(w.path("app.log*"), nil)
	if err != nil {
		t.Fatal(err)
	}
	set := slices.Concat(keys, []string{predictFields, fmt.Sprintf("predict.to={tsv: {dir: %q}}", w.path("logs"))})
	pack := func(from, to string) {
		text, err := os.ReadFile(w.path(from))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(z.Close(), os.WriteFile(w.path(to), b.Bytes(), 0o644), os.Remove(w.path(from))); err != nil {
			t.Fatal(err)
		}
	}
	for i, step := range []struct {
		change func()
		rows   int64
		said   string
	}{
		{func() {}, 30, ""},
		{func() { w.write("other", 70_000, 10, false); pack("other", "app.log.0.gz") }, 10, ""}, // the log is there
		{func() { pack("app.log", "app.log.1.gz") }, 30, "app.log.1.gz"},
		{func() {}, 0, ""},
	} {
		step.change()
		said := ""
		r, err := w.predict(job.PredictOptions{Options: job.RunOptions{Notice: func(text string) { said += text + "\n" }}}, set...)
		if err != nil || r.Rows-r.Earlier != step.rows {
			t.Errorf("step %d: %+v, %v, want %d new rows", i, r, err, step.rows)
		}
		if says := strings.Contains(said, "compressed now, as it seems: "); says != (step.said != "") || !strings.Contains(said, step.said) {
			t.Errorf("step %d said\n%s", i, said)
		}
	}
}

// TestPredictSoMany: exactly so many rows are predicted as are asked for, run by run, and together they are those of one run.
func TestPredictSoMany(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	want, _ := w.evaluated()
	keys, err := job.SetTarget(w.path("new-*.csv"), nil)
	if err != nil {
		t.Fatal(err)
	}
	out := w.path("many")
	set := slices.Concat(keys, []string{predictFields, fmt.Sprintf("predict.to={tsv: {dir: %q}}", out)})
	for _, n := range []int64{1, 2, 1000, 4096, 4097, 10_000, 26_999, 0} {
		r, err := w.predict(job.PredictOptions{MaxExamples: n}, set...)
		if n == 0 {
			n = heldFiles * heldRows
		}
		if err != nil || r.Rows != n {
			t.Errorf("%d asked for: %+v, %v", n, r, err)
		}
		if got := w.predictions("tsv", out); int64(len(got)) != n {
			t.Errorf("%d asked for: %d are there", n, len(got))
		}
	}
	w.check("in parts", w.predictions("tsv", out), want, false)
	for _, n := range []int64{1, 5000} {
		cfg, err := w.decode()
		if err != nil {
			t.Fatal(err)
		}
		if r, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{MaxExamples: n}); err != nil || r.Examples != n {
			t.Errorf("%d to be evaluated: %+v, %v", n, r, err)
		}
	}
}

// TestPredictionsOfAnother: a place with predictions of another snapshot or with other fields is refused, and one with other files, and one
// that another process writes to.
func TestPredictionsOfAnother(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	to := func(dir string) string { return fmt.Sprintf("predict.to={jsonl: %q}", w.path(dir)) }
	if r, err := w.predict(job.PredictOptions{MaxExamples: 100}, to("out")); err != nil || r.Rows != 100 {
		t.Fatalf("%+v, %v", r, err)
	}
	w.write("used/x", 0, 0, false)
	refused := func(want string, o job.PredictOptions, set ...string) {
		t.Helper()
		if _, err := w.predict(o, set...); !errors.Is(err, pipeline.ErrConfig) && !errors.Is(err, pipeline.ErrSchema) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	refused("with the fields label,prediction, not user,prediction: name another place", job.PredictOptions{}, to("out"), "predict.fields=[user]")
	refused("its files are no predictions", job.PredictOptions{}, to("used"))
	refused("predict.to is not set", job.PredictOptions{})
	refused("no snapshot", job.PredictOptions{Snapshot: "77"}, to("out"))
	refused(`have no column "usr", did you mean "user"?`, job.PredictOptions{}, to("x"), "predict.fields=[usr, item]")
	refused(`no column "predicton", did you mean "prediction"?`, job.PredictOptions{}, to("x"), "predict.fields=[predicton]")
	refused("no parse.weight", job.PredictOptions{}, to("x"), "predict.fields=[weight]")
	refused(`"time" is when an example happened, which records of a text source do not say`, job.PredictOptions{}, to("x"), "predict.fields=[time]")
	refused(`no column "split"; name split alone, without column.`, job.PredictOptions{}, to("x"), "predict.fields=[column.split]")
	refused(`no column "logit_x"`, job.PredictOptions{}, to("x"), "predict.fields=[logit, logit_x]")
	keys, err := job.SetTarget(w.path("new-*.csv"), nil)
	if err != nil {
		t.Fatal(err)
	}
	refused("no column of a label", job.PredictOptions{}, append(keys, to("x"), "predict.fields=[label]")...)
	if _, err := job.Run(t.Context(), w.config("eval={}", "epochs=2"), job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	refused("has predictions of snapshot snap-00000001 of ", job.PredictOptions{}, to("out"))
	if r, err := w.predict(job.PredictOptions{Snapshot: "1"}, to("out")); err != nil || r.Rows != 4000 {
		t.Errorf("with the old one: %+v, %v", r, err)
	}
}

// TestPredictRecordsWithSomeLabels: of records of which some have a label, those that have none are null.
func TestPredictRecordsWithSomeLabels(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	text := `{"user": "u1", "item": 3, "price": 1, "click": 1, "request": "a"}
{"user": "u1", "item": 3, "price": 1, "request": "b"}
{"user": "nobody", "request": "c"}
`
	if err := os.WriteFile(w.path("some.jsonl"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	keys, err := job.SetTarget(w.path("some.jsonl"), nil)
	if err != nil {
		t.Fatal(err)
	}
	set := append(keys, fmt.Sprintf("predict.to={jsonl: %q}", w.path("out")), "predict.fields=[request, label, position, logit]")
	if _, err := w.predict(job.PredictOptions{}, set...); err != nil {
		t.Fatal(err)
	}
	got := w.predictions("jsonl", w.path("out"))
	var texts []string
	for _, at := range inOrder(got) {
		texts = append(texts, got[at].Request+got[at].Label)
	}
	if want := []string{"a1", "b", "c"}; !slices.Equal(texts, want) {
		t.Errorf("%q, want %q", texts, want)
	}

	var log bytes.Buffer
	set = append(keys, fmt.Sprintf("predict.to={jsonl: %q}", w.path("blank")), "predict.fields=[usr, quantity, prediction]")
	var o job.PredictOptions
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	_, err = w.predict(o, set...)
	const missing = `none of the 3 records of predict.source has a value of "usr" (did you mean "user"?) or of "quantity" (the records have click, item, price, request, user)`
	if !errors.Is(err, job.ErrBadRows) || !strings.Contains(err.Error(), missing) {
		t.Errorf("fields that no record has: error %v", err)
	}
	if got := log.String(); !strings.Contains(got, "column=usr examples=3 did_you_mean=user\n") || !strings.Contains(got, "column=quantity examples=3 records_have=") {
		t.Errorf("of fields that no record has the log says %s", got)
	}
	// Part of the records says little: a warning, no error.
	for name, o := range map[string]job.PredictOptions{"again": {}, "limited": {MaxExamples: 2}} {
		set := append(keys, fmt.Sprintf("predict.to={jsonl: %q}", w.path(name)), "predict.fields=[quantity, prediction]")
		if name == "again" {
			if _, err := w.predict(o, set...); !errors.Is(err, job.ErrBadRows) {
				t.Errorf("the first time: error %v", err)
			}
			if err := os.WriteFile(w.path("some.jsonl"), []byte(text+text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := w.predict(o, set...); err != nil || r.Rows == 0 {
			t.Errorf("%s: %+v, error %v", name, r, err)
		}
	}
}

// TestPredictAStream: a topic is predicted until the run is drained, its records once each, also those that came while nobody read: from
// where the stream was first taken up. The predictions go to a topic.
func TestPredictAStream(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	bed, err := broker.Start(broker.Options{Topics: map[string]int{"requests": 2, "scores": 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bed.Close() })
	made := 0
	happen := func(n int) {
		t.Helper()
		for p := range 2 {
			var records []broker.Record
			for range n / 2 {
				user, item, price, click := clickRow(made)
				records = append(records, broker.Record{Value: fmt.Appendf(nil, `{"user": %q, "item": %d, "price": %g, "click": %d}`, user, item, price, click)})
				made++
			}
			if err := broker.Produce(t.Context(), bed.Addrs(), "requests", p, broker.Batch{}, records...); err != nil {
				t.Fatal(err)
			}
		}
	}
	happen(100) // before anybody reads
	set := []string{
		fmt.Sprintf("predict.source={kafka: {brokers: [%s], topic: requests, start: latest}}", strings.Join(bed.Addrs(), ", ")), "predict.format=jsonl",
		fmt.Sprintf("predict.to={kafka: {brokers: [%s], topic: scores, commit_every: 5ms}}", strings.Join(bed.Addrs(), ", ")), "predict.fields=[label, position, prediction]",
	}
	// life predicts until so many more rows have been taken, or for two minutes, and returns how many are there.
	life := func(rows int64) int64 {
		t.Helper()
		drain := make(chan struct{})
		enough := sync.OnceFunc(func() { close(drain) })
		defer time.AfterFunc(2*time.Minute, enough).Stop()
		r, err := w.predict(job.PredictOptions{Workers: 2, Options: job.RunOptions{Drain: drain, Status: func(s job.Status) {
			if s.Examples >= rows {
				enough()
			}
		}}}, set...)
		if err != nil || !r.Drained {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Rows
	}
	if n := life(0); n != 0 {
		t.Errorf("%d rows were predicted of before the stream was taken up", n)
	}
	happen(60)
	if n := life(60); n != 60 {
		t.Errorf("%d rows, want those 60 that came while nobody read", n)
	}
	happen(40)
	if n := life(40); n != 100 {
		t.Errorf("%d rows in all, want 100", n)
	}
	if got := predictionsIn(t, bed.Addrs(), "scores", 100); len(got) != 100 {
		t.Errorf("%d predictions in the topic, want 100", len(got))
	}
}

// TestPredictAlone: a snapshot, and an export of it, predict without the job file what they predict with it, also where there are heads, masks, buckets and
// texts that are taken apart.
func TestPredictAlone(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	want, _ := w.evaluated()
	if _, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: w.path("run"), Format: "native", Dir: w.path("exports")}); err != nil {
		t.Fatal(err)
	}
	predict := func(path, data, out string, set ...string) *job.Predicted {
		t.Helper()
		cfg, err := job.Alone(t.Context(), path, data, job.LoadOptions{Set: append(set, fmt.Sprintf("predict.to={jsonl: %q}", out))})
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Predict(t.Context(), cfg, job.PredictOptions{Alone: path, Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for name, path := range map[string]string{"snapshot": w.path("run"), "export": w.path("exports/1")} {
		predict(path, w.path("new-*.csv"), w.path(name), predictFields)
		w.check(name, w.predictions("jsonl", w.path(name)), want, false)
	}
	if _, err := job.Alone(t.Context(), w.path("used"), w.path("new-*.csv"), job.LoadOptions{}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(fmt.Sprint(err), "or an export") {
		t.Errorf("a folder that is no model: %v", err)
	}
	// The same for a job with everything that a recipe may have.
	cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: many
dir: %q
source: {text: {files: [%q]}}
parse:
  format: csv
  header: true
  features:
    - {name: who, column: user, slot: 3, regexp: "u(.*)", max: 1}
    - {name: item, slot: 4, type: string, default: none}
    - {name: cost, column: price, kind: dense, standardise: running, clip: [0, 2], missing: indicator}
    - {name: band, column: price, slot: 5, buckets: [0.5, 1, 1.5]}
  weight: {name: w, column: price}
heads: [{name: click}, {name: paid, label: {column: price, positive: "> 1"}, mask: {}}]
model: {shared_bottom: {dim: 4, hidden: [8]}}
train: {precision: bf16}
`, w.path("many"), w.path("train-*.csv")), "many.yaml", job.LoadOptions{Set: []string{fmt.Sprintf("predict={to: {jsonl: %q}, fields: [request, position, prediction, logit_click]}", w.path("with"))}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := job.Predict(t.Context(), cfg, job.PredictOptions{}); err != nil {
		t.Fatal(err)
	}
	predict(w.path("many"), w.path("train-*.csv"), w.path("without"), "predict.fields=[request, position, prediction, logit_click]")
	var texts [2]string
	for i, dir := range []string{"with", "without"} {
		texts[i] = textIn(t, w.path(dir))
	}
	if texts[0] != texts[1] || strings.Count(texts[0], "\n") != 4000 || !strings.Contains(texts[0], `"prediction_paid":`) {
		t.Errorf("with its job file %.300s\nwithout %.300s", texts[0], texts[1])
	}
}
