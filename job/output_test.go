package job_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/parquetsource"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// outputsJob trains on three files and writes the rows to a folder of Parquet files, and the predictions to a topic and to a folder of
// JSON lines.
func outputsJob(t *testing.T, dir, run string, addrs []string, set ...string) *job.Config {
	t.Helper()
	text := fmt.Sprintf(`
version: 1
name: %[2]s
seed: 5
deterministic: true
source: {text: {files: [%[3]q]}}
epochs: 2
shuffle: {rows: 300}
parse: {format: libfm, fields: [a, b, c]}
model: {deepfm: {dim: 4, hidden: [8], batch_norm: true, dropout: 0.2}}
train: {batch: 32}
snapshot: {every: 15ms}
outputs:
- {name: examples, of: rows, to: {parquet: {dir: %[4]q, rows_per_file: 300, file_every: 30ms}}}
- {name: lines, of: predictions, to: {jsonl: {dir: %[6]q, rows_per_file: 400, file_every: 20ms}}}
- {name: predictions, of: predictions, to: {kafka: {brokers: [%[5]s], topic: %[2]s, commit_every: 10ms}}}
`, dir, run, filepath.Join(dir, "train-*.libfm"), filepath.Join(dir, run+"-rows"), strings.Join(addrs, ", "), filepath.Join(dir, run+"-lines"))
	c, err := job.Decode([]byte(text), run+".yaml", job.LoadOptions{Set: append([]string{"dir=" + filepath.Join(dir, run)}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rowPlace distinguishes a row.
type rowPlace struct {
	split    string
	position int64
}

// eachRow reads columns of a folder of Parquet files, row by row, with the place of each; a place may be there once.
func eachRow(t *testing.T, dir string, columns []arrow.Field, row func(at rowPlace, b *pipeline.Batch, i int)) {
	t.Helper()
	columns = append([]arrow.Field{{Name: "split", Type: arrow.BinaryTypes.String}, {Name: "position", Type: arrow.PrimitiveTypes.Int64}}, columns...)
	src, err := parquetsource.New(parquetsource.Options{Files: []string{filepath.Join(dir, "*.parquet")}, Columns: arrow.NewSchema(columns, nil)})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[rowPlace]bool{}
	pipelinetest.ReadAll(t, src, &pipeline.Env{}, func(_ pipeline.Split, b *pipeline.Batch) {
		for i := range b.NumRows() {
			at := rowPlace{b.Column("split").(*array.String).Value(i), b.Column("position").(*array.Int64).Value(i)}
			if seen[at] {
				t.Errorf("%v is there twice", at)
			}
			seen[at] = true
			row(at, b, i)
		}
	})
}

// rowsIn reads the rows of a folder of Parquet files as text, by their places.
func rowsIn(t *testing.T, dir string) map[rowPlace]string {
	t.Helper()
	ids := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	out := map[rowPlace]string{}
	columns := []arrow.Field{{Name: "a", Type: ids}, {Name: "b", Type: ids}, {Name: "c", Type: ids}, {Name: "label", Type: arrow.PrimitiveTypes.Float32}}
	eachRow(t, dir, columns, func(at rowPlace, b *pipeline.Batch, i int) {
		for _, c := range columns {
			out[at] += b.Column(c.Name).ValueStr(i) + " "
		}
	})
	return out
}

// eachLine calls each with the lines of compressed files of JSON lines.
func eachLine[T any](t *testing.T, paths []string, each func(T)) {
	t.Helper()
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for d := json.NewDecoder(z); ; {
			var row T
			if err := d.Decode(&row); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			each(row)
		}
	}
}

// linesIn reads the predictions of a folder of JSON lines; each may be there once.
func linesIn(t *testing.T, dir string) map[rowPlace]float64 {
	t.Helper()
	out := map[rowPlace]float64{}
	paths, err := filepath.Glob(filepath.Join(dir, "[^.]*.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	type line struct {
		Prediction *float64
		Position   int64
		Split      string
	}
	eachLine(t, paths, func(row line) {
		if row.Prediction == nil {
			t.Fatalf("%+v", row)
		}
		at := rowPlace{row.Split, row.Position}
		if _, ok := out[at]; ok {
			t.Errorf("%v is there twice", at)
		}
		out[at] = *row.Prediction
	})
	return out
}

// predictionsIn reads the predictions that are committed in a topic, n of them and whatever comes after; each may be there once.
func predictionsIn(t *testing.T, addrs []string, topic string, n int) map[rowPlace]float64 {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out := map[rowPlace]float64{}
	for patience := 20 * time.Second; ; patience = 300 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		f := c.PollFetches(ctx)
		cancel()
		f.EachRecord(func(r *kgo.Record) {
			var row struct {
				Prediction *float64
				Label      *float64
				Position   int64
			}
			at := rowPlace{}
			if err := json.Unmarshal(r.Value, &row); err != nil || row.Prediction == nil || row.Label == nil {
				t.Errorf("%s: %v", r.Value, err)
				return
			}
			for _, h := range r.Headers {
				if h.Key == "split" {
					at.split = string(h.Value)
				}
			}
			at.position = row.Position
			if _, ok := out[at]; ok {
				t.Errorf("%v is there twice", at)
			}
			out[at] = *row.Prediction
		})
		if f.NumRecords() == 0 && len(out) >= n || f.NumRecords() == 0 && patience > time.Second {
			return out
		}
	}
}

// TestOutputsAreExact ends runs at random moments, without a word, and drains some; a row then is once in the parameters, in the
// files of both formats and in the topic, with the same values as in a run that nobody touched, and the digest is the same.
func TestOutputsAreExact(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const rows, epochs = 3000, 2
	for i := range 3 {
		writeLibfm(t, filepath.Join(dir, fmt.Sprintf("train-%d.libfm", i)), rows/3, i*1000)
	}
	bed, err := broker.Start(broker.Options{Topics: map[string]int{"whole": 2, "none": 2, "wal": 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bed.Close() })
	whole, err := job.Run(t.Context(), outputsJob(t, dir, "whole", bed.Addrs()), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantRows := rowsIn(t, filepath.Join(dir, "whole-rows"))
	wantPredictions := predictionsIn(t, bed.Addrs(), "whole", rows*epochs)
	if len(wantRows) != rows*epochs || len(wantPredictions) != rows*epochs {
		t.Fatalf("%d rows and %d predictions of a run that nobody touched, want %d", len(wantRows), len(wantPredictions), rows*epochs)
	}
	for _, durability := range []string{"none", "wal"} {
		t.Run(durability, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed: %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			cut := errors.New("cut off")
			died := 0
			var last *job.TrainResult
			for lives := 0; last == nil; lives++ {
				cfg := outputsJob(t, dir, durability, bed.Addrs(), "ps.durability="+durability)
				ctx, cancel := context.WithCancelCause(t.Context())
				o := job.RunOptions{}
				stop := func() {}
				if lives < 12 {
					end := func() { cancel(cut) }
					if rng.IntN(4) == 0 {
						drain := make(chan struct{})
						o.Drain = drain
						end = sync.OnceFunc(func() { close(drain) })
					}
					// After some time, which may be before the first step, and at last after some batches, however fast the machine is.
					timer := time.AfterFunc(time.Duration(10+rng.IntN(150))*time.Millisecond, end)
					stop = func() { timer.Stop() }
					left := 1 + rng.IntN(40)
					o.Observe = func(trainstep.Observation) {
						if left--; left == 0 {
							end()
						}
					}
				}
				r, err := job.Run(ctx, cfg, o)
				stop()
				cancel(nil)
				switch {
				case errors.Is(err, cut) || errors.Is(err, context.Canceled):
					died++
				case err != nil:
					t.Fatal(err)
				case !r.Drained:
					last = r
				}
			}
			if died < 3 {
				t.Errorf("only %d runs were cut off", died)
			}
			if diff := cmp.Diff(wantRows, rowsIn(t, filepath.Join(dir, durability+"-rows"))); diff != "" {
				t.Errorf("rows (-untouched +cut off):\n%.2000s", diff)
			}
			for place, got := range map[string]map[rowPlace]float64{
				"topic": predictionsIn(t, bed.Addrs(), durability, rows*epochs),
				"lines": linesIn(t, filepath.Join(dir, durability+"-lines")),
			} {
				if durability == "wal" { // of the last moments before a death they are those of a later model
					for at := range got {
						if v, ok := wantPredictions[at]; ok {
							got[at] = v
						}
					}
				}
				if diff := cmp.Diff(wantPredictions, got); diff != "" {
					t.Errorf("predictions in the %s (-untouched +cut off):\n%.2000s", place, diff)
				}
			}
			if want, got := digest(t, whole.Snapshot), digest(t, last.Snapshot); got != want {
				t.Errorf("digest %s, untouched %s", got, want)
			}
		})
	}
}

// TestOutputIsAway: an output whose place is gone for a while ends the run; the run after it predicts what an untouched one does, not with a model that has learnt what
// the output lacks.
func TestOutputIsAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train-0.libfm"), 1000, 0)
	lines := func(run string) string { return filepath.Join(dir, run+"-lines") }
	config := func(run string) *job.Config { // what is taken is stored for snapshots alone
		return outputsJob(t, dir, run, nil, "snapshot.every=10ms", fmt.Sprintf("outputs=[{name: lines, of: predictions, to: {jsonl: {dir: %q}}}]", lines(run)))
	}
	whole, err := job.Run(t.Context(), config("whole"), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	_, err = job.Run(t.Context(), config("gone"), job.RunOptions{Observe: func(trainstep.Observation) {
		time.Sleep(5 * time.Millisecond) // there is time for snapshots
		if steps++; steps == 30 {
			err := os.Rename(lines("gone"), lines("gone")+".away")
			if err = errors.Join(err, os.WriteFile(lines("gone"), nil, 0o600)); err != nil { // a folder would be made again
				t.Error(err)
			}
		}
	}})
	if err == nil || !strings.Contains(err.Error(), "output lines") {
		t.Fatalf("a run whose output is gone: %v", err)
	}
	if err := errors.Join(os.Remove(lines("gone")), os.Rename(lines("gone")+".away", lines("gone"))); err != nil {
		t.Fatal(err)
	}
	after, err := job.Run(t.Context(), config("gone"), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.Examples == 0 {
		t.Error("nothing was left to train: no test")
	}
	if diff := cmp.Diff(linesIn(t, lines("whole")), linesIn(t, lines("gone"))); diff != "" {
		t.Errorf("predictions (-untouched +gone):\n%.2000s", diff)
	}
	if want, got := digest(t, whole.Snapshot), digest(t, after.Snapshot); got != want {
		t.Errorf("digest %s, untouched %s", got, want)
	}
}

// TestOutputIsAdded: an output that a trained job gets is written from the beginning on, though the job has its examples, and
// training is not touched by it.
func TestOutputIsAdded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 3 {
		writeLibfm(t, filepath.Join(dir, fmt.Sprintf("train-%d.libfm", i)), 1000, i*1000)
	}
	bed, err := broker.Start(broker.Options{Topics: map[string]int{"fixed": 1, "arrival": 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bed.Close() })
	for name, set := range map[string][]string{
		"fixed":   {"train.max_examples=2200"},
		"arrival": {"train.max_examples=2200", "deterministic=false", "train.workers=2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, err := job.Run(t.Context(), outputsJob(t, dir, name, bed.Addrs(), append(set, "outputs=[]")...), job.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			after, err := job.Run(t.Context(), outputsJob(t, dir, name, bed.Addrs(), set...), job.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if after.Examples != 0 {
				t.Errorf("%d examples were trained on again", after.Examples)
			}
			if n := len(rowsIn(t, filepath.Join(dir, name+"-rows"))); n != int(before.Examples) {
				t.Errorf("%d rows are written of %d that were trained on", n, before.Examples)
			}
			if n := len(predictionsIn(t, bed.Addrs(), name, int(before.Examples))); n != int(before.Examples) {
				t.Errorf("%d predictions are written of %d", n, before.Examples)
			}
			if want, got := digest(t, before.Snapshot), digest(t, after.Snapshot); got != want {
				t.Errorf("digest %s, before %s", got, want)
			}
		})
	}
}

func TestOutputFaults(t *testing.T) {
	t.Parallel()
	_, err := job.Decode([]byte(`
version: 1
source: {synthetic: {}}
parse: {features: [{name: user, slot: 1}], label: click}
model: {fm: {}}
outputs:
- {name: a/b, of: rows, to: {parquet: rows}}
- {name: a, of: row, to: {kafka: {brokers: [nohost], topic: t}}}
- {name: a, of: predictions, to: {parquet: {dir: ./rows/}}}
- {name: c, of: rows, to: {}}
- {name: d, of: rows, to: {parquet: x, kafka: {brokers: ["h:1"], topic: t}}}
`), "job.yaml", job.LoadOptions{})
	for _, want := range []string{
		`"a/b"`, "outputs[1].of", `"nohost"`, `outputs[2].name: is "a", as that of another output`, "outputs[2].to.parquet.dir: is that of output a/b",
		"outputs[3].to", "outputs[4].to",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in\n%v", want, err)
		}
	}
}

// TestOutputsDoNotFeedTheSource: an output to where the job reads is a fault.
func TestOutputsDoNotFeedTheSource(t *testing.T) {
	t.Parallel()
	const rest = "version: 1\nparse: {format: jsonl, features: [{name: user}], label: click}\nmodel: lr\n"
	const kafka, files = `source: {kafka: {brokers: ["a:1", "b:1"], topic: in}}`, `source: {text: {files: ["x/*.gz"]}}`
	for _, c := range []struct{ source, outputs, want string }{
		{kafka, `outputs: [{name: r, of: rows, to: {kafka: {brokers: ["b:1"], topic: in}}}]`, "outputs[0].to.kafka.topic: is read by the job too"},
		{kafka, `outputs: [{name: r, of: rows, to: {kafka: {brokers: ["c:1"], topic: in}}}]`, ""},
		{kafka, `outputs: [{name: r, of: rows, to: {kafka: {brokers: ["b:1"], topic: out}}}]`, ""},
		{files, `outputs: [{name: r, of: rows, to: {jsonl: ./y/../x}}]`, "outputs[0].to.jsonl.dir: is read by the job too"},
		{files, `outputs: [{name: r, of: rows, to: {jsonl: y}}]`, ""},
		{files, `eval: {source: {text: {files: [y/a]}}, outputs: [{name: r, of: rows, to: {jsonl: y}}]}`, "eval.outputs[0].to.jsonl.dir: is read by the job too"},
	} {
		_, err := job.Decode([]byte(rest+c.source+"\n"+c.outputs+"\n"), "job.yaml", job.LoadOptions{})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n%s\n%v, want %q", c.source, c.outputs, err, c.want)
		}
	}
}

// TestOutputsOfAnEvaluation: an evaluation writes its predictions with keys as training does, once however often it is cut off or
// run again; another snapshot, and other examples, are other parts.
func TestOutputsOfAnEvaluation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const held = 9000
	writeLibfm(t, filepath.Join(dir, "train-0.libfm"), 1000, 0)
	writeLibfm(t, filepath.Join(dir, "held-0.libfm"), held/2, 7000)
	writeLibfm(t, filepath.Join(dir, "held-1.libfm"), held/2, 20000)
	bed, err := broker.Start(broker.Options{Topics: map[string]int{"eval": 2, "rehearsal": 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bed.Close() })
	out := filepath.Join(dir, "held-rows")
	section := func(name, topic string) string {
		return fmt.Sprintf(`eval={source: {text: {files: [%q]}}, outputs: [
  {name: examples, of: rows, to: {parquet: {dir: %q, rows_per_file: 500}}},
  {name: scores, of: predictions, to: {parquet: {dir: %q, rows_per_file: 500}}},
  {name: predictions, of: predictions, to: {kafka: {brokers: [%s], topic: %s, commit_every: 1ms}}}]}`,
			filepath.Join(dir, "held-*.libfm"), filepath.Join(dir, name+"-rows"), filepath.Join(dir, name+"-scores"), strings.Join(bed.Addrs(), ", "), topic)
	}
	config := func(set ...string) *job.Config {
		return outputsJob(t, dir, "eval", bed.Addrs(), append([]string{"outputs=[]", "deterministic=false", section("held", "eval")}, set...)...)
	}
	if _, err := job.Run(t.Context(), config("eval.every=end", "eval.max_examples=100"), job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an evaluation while training has written something: %v", err)
	}
	// How long one takes, whose outputs lie elsewhere, on this machine.
	began := time.Now()
	rehearsal := outputsJob(t, dir, "eval", bed.Addrs(), "outputs=[]", "deterministic=false", section("rehearsal", "rehearsal"))
	if _, err := job.Evaluate(t.Context(), rehearsal, job.EvalOptions{}); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(began)
	// Runs that are cut off as soon as something is visible, or after an ever longer part of that time; then one to the end, and one more.
	const attempts = 20
	cutOff := 0
	for i := range attempts {
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i+1)/(attempts+1))
		before := len(visible(t, out))
		go func() {
			for len(visible(t, out)) <= before && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		_, err := job.Evaluate(ctx, config(), job.EvalOptions{})
		cancel()
		if err != nil {
			cutOff++
		}
	}
	if cutOff == 0 {
		t.Error("no evaluation was cut off")
	}
	var first *job.EvalResult
	seen := job.RunOptions{Status: func(job.Status) {}} // who asks how far it is runs beside: a test under the race detector
	for range 2 {
		r, err := job.Evaluate(t.Context(), config(), job.EvalOptions{Options: seen})
		if err != nil {
			t.Fatal(err)
		}
		if r.Examples != held || r.Part == "" {
			t.Errorf("%+v", r)
		}
		if first == nil {
			first = r
		} else if r.Part != first.Part || r.Metrics["auc"] != first.Metrics["auc"] {
			t.Errorf("part %s auc %g, before %s and %g", r.Part, r.Metrics["auc"], first.Part, first.Metrics["auc"])
		}
		if n := len(rowsIn(t, filepath.Join(out, r.Part))); n != held {
			t.Errorf("%d rows, want %d", n, held)
		}
		if n := len(predictionsIn(t, bed.Addrs(), "eval", held)); n != held {
			t.Errorf("%d predictions, want %d", n, held)
		}
	}
	scores, auc := scoresIn(t, filepath.Join(dir, "held-scores", first.Part))
	if diff := cmp.Diff(predictionsIn(t, bed.Addrs(), "eval", held), scores); diff != "" {
		t.Errorf("predictions (-topic +files):\n%.500s", diff)
	}
	if want := first.Metrics["auc"]; math.Abs(auc-want) > 1e-9 {
		t.Errorf("the auc of what was written is %g, of the evaluation %g", auc, want)
	}
	// Other examples, and another snapshot.
	writeLibfm(t, filepath.Join(dir, "held-2.libfm"), 10, 90000)
	more, err := job.Evaluate(t.Context(), config(), job.EvalOptions{Options: seen})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Run(t.Context(), config("epochs=3", "eval={}"), job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	later, err := job.Evaluate(t.Context(), config(), job.EvalOptions{Options: seen})
	if err != nil {
		t.Fatal(err)
	}
	if more.Part == first.Part || later.Part == more.Part || later.Part == first.Part {
		t.Errorf("parts %s, %s with other examples, %s of another snapshot", first.Part, more.Part, later.Part)
	}
	if n := len(rowsIn(t, filepath.Join(out, later.Part))); n != held+10 {
		t.Errorf("%d rows, want %d", n, held+10)
	}
}

// visible are the files of rows in a folder's folders.
func visible(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*", "*.parquet"))
	if err != nil {
		t.Error(err)
	}
	return found
}

// scoresIn reads the predictions of a folder of Parquet files, and computes their AUC over all pairs.
func scoresIn(t *testing.T, dir string) (map[rowPlace]float64, float64) {
	t.Helper()
	out := map[rowPlace]float64{}
	var good, bad []float64
	columns := []arrow.Field{{Name: "label", Type: arrow.PrimitiveTypes.Float32}, {Name: "prediction", Type: arrow.PrimitiveTypes.Float32}}
	eachRow(t, dir, columns, func(at rowPlace, b *pipeline.Batch, i int) {
		p, err := strconv.ParseFloat(strconv.FormatFloat(float64(b.Column("prediction").(*array.Float32).Value(i)), 'g', -1, 32), 64)
		if err != nil {
			t.Fatal(err)
		}
		out[at] = p // as in a topic: the shortest digits
		if b.Column("label").(*array.Float32).Value(i) > 0 {
			good = append(good, p)
		} else {
			bad = append(bad, p)
		}
	})
	wins := 0.
	for _, g := range good {
		for _, b := range bad {
			switch {
			case g > b:
				wins++
			case g == b:
				wins += .5
			}
		}
	}
	return out, wins / float64(len(good)*len(bad))
}

// endOffset is how many records, those of transactions' ends included, a topic's only partition has taken.
func endOffset(t *testing.T, bed *broker.Broker, topic string) int64 {
	t.Helper()
	c, err := broker.NewClient(bed.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Timestamp = -1
	asked := kmsg.NewListOffsetsRequestTopic()
	asked.Topic, asked.Partitions = topic, append(asked.Partitions, part)
	q := kmsg.NewPtrListOffsetsRequest()
	q.ReplicaID, q.Topics = -1, append(q.Topics, asked)
	answer, err := q.RequestWith(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	got := answer.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		t.Fatal(err)
	}
	return got.Offset
}

// TestOutputsAreCounted: the metrics of an output are what it has stored, and what it lacks of what was trained before it came.
func TestOutputsAreCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const rows = 1000
	writeLibfm(t, filepath.Join(dir, "train-0.libfm"), rows, 0)
	bed, err := broker.Start(broker.Options{Topics: map[string]int{"counted": 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bed.Close() })
	if _, err := job.Run(t.Context(), outputsJob(t, dir, "counted", bed.Addrs(), "outputs=[]", "epochs=1"), job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	value := func(name, output, code string) float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Error(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if f.GetName() == name && labels["output"] == output && labels["code"] == code {
					return m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
		return -1
	}
	most := 0.
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			most = max(most, value("monolith_output_lag_rows", "examples", ""))
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	_, err = job.Run(t.Context(), outputsJob(t, dir, "counted", bed.Addrs()), job.RunOptions{Registerer: reg})
	close(stop)
	<-done
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "counted-rows", "*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	for _, output := range []string{"examples", "predictions"} {
		if n, lag := value("monolith_output_rows_total", output, ""), value("monolith_output_lag_rows", output, ""); n != 2*rows || lag != 0 {
			t.Errorf("%s: %g rows, lag %g; want %d and 0", output, n, lag, 2*rows)
		}
	}
	if len(files) < 2*rows/500 { // 300 and what a batch adds, two batches where one is under way
		t.Errorf("%d files", len(files))
	}
	if n, held := value("monolith_output_stores_total", "predictions", "ok"), endOffset(t, bed, "counted"); n+2*rows != float64(held) { // a transaction leaves a marker
		t.Errorf("%g transactions are counted, and %d rows and markers are there", n, held)
	}
	if n := value("monolith_output_stores_total", "examples", "ok"); n != float64(len(files)) {
		t.Errorf("%g files are counted, and there are %d", n, len(files))
	}
	if n := value("monolith_output_bytes_total", "examples", ""); n < .7*float64(size) || n > 1.1*float64(size) {
		t.Errorf("%g bytes are counted of files of %d", n, size)
	}
	if most >= 2*rows { // what was trained before the output came, and what a file holds
		t.Errorf("the lag was up to %g", most)
	}
}
