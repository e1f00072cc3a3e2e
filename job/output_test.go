package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/parquetsource"
)

// outputsJob trains on three files and writes the rows to a folder and the predictions to a topic.
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
- {name: predictions, of: predictions, to: {kafka: {brokers: [%[5]s], topic: %[2]s, commit_every: 10ms}}}
`, dir, run, filepath.Join(dir, "train-*.libfm"), filepath.Join(dir, run+"-rows"), strings.Join(addrs, ", "))
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

// rowsIn reads the rows of a folder of Parquet files as text, by their places; each may be there once.
func rowsIn(t *testing.T, dir string) map[rowPlace]string {
	t.Helper()
	ids := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	src, err := parquetsource.New(parquetsource.Options{Files: []string{filepath.Join(dir, "*.parquet")}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "split", Type: arrow.BinaryTypes.String},
		{Name: "position", Type: arrow.PrimitiveTypes.Int64},
		{Name: "a", Type: ids},
		{Name: "b", Type: ids},
		{Name: "c", Type: ids},
		{Name: "label", Type: arrow.PrimitiveTypes.Float32},
	}, nil)})
	if err != nil {
		t.Fatal(err)
	}
	splits, err := src.Splits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[rowPlace]string{}
	for _, sp := range splits {
		r, err := src.Open(t.Context(), &pipeline.Env{}, sp, sp.Start)
		if err != nil {
			t.Fatal(err)
		}
		for {
			b, err := r.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.NumRows() {
				at := rowPlace{b.Column("split").(*array.String).Value(i), b.Column("position").(*array.Int64).Value(i)}
				if _, ok := out[at]; ok {
					t.Errorf("%v is there twice", at)
				}
				for _, name := range []string{"a", "b", "c", "label"} {
					out[at] += b.Column(name).ValueStr(i) + " "
				}
			}
			b.Release()
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
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
// files and in the topic, with the same values as in a run that nobody touched, and the digest is the same.
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
					after := time.Duration(10+rng.IntN(150)) * time.Millisecond
					if rng.IntN(4) == 0 {
						drain := make(chan struct{})
						o.Drain = drain
						timer := time.AfterFunc(after, func() { close(drain) })
						stop = func() { timer.Stop() }
					} else {
						timer := time.AfterFunc(after, func() { cancel(cut) })
						stop = func() { timer.Stop() }
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
			got := predictionsIn(t, bed.Addrs(), durability, rows*epochs)
			if durability == "wal" { // of the last moments before a death they are those of a later model
				for at := range got {
					got[at] = wantPredictions[at]
				}
			}
			if diff := cmp.Diff(wantPredictions, got); diff != "" {
				t.Errorf("predictions (-untouched +cut off):\n%.2000s", diff)
			}
			if want, got := digest(t, whole.Snapshot), digest(t, last.Snapshot); got != want {
				t.Errorf("digest %s, untouched %s", got, want)
			}
		})
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
runner: prism
outputs:
- {name: a/b, of: rows, to: {parquet: rows}}
- {name: a, of: row, to: {kafka: {brokers: [nohost], topic: t}}}
- {name: a, of: predictions, to: {parquet: {dir: ./rows/}}}
- {name: c, of: rows, to: {}}
- {name: d, of: rows, to: {parquet: x, kafka: {brokers: ["h:1"], topic: t}}}
`), "job.yaml", job.LoadOptions{})
	for _, want := range []string{
		"runner: is prism, but outputs", `"a/b"`, "outputs[1].of", `"nohost"`, `outputs[2].name: is "a", as that of another output`, "outputs[2].to.parquet.dir: is that of a/b",
		"outputs[3].to", "outputs[4].to",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in\n%v", want, err)
		}
	}
}
