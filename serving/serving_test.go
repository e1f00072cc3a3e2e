package serving_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/serving"
	"github.com/monolith-go/monolith/transforms/parse"
)

// record is what a job is trained on and a client asks about.
type record struct {
	User  string  `json:"user"`
	Item  int64   `json:"item"`
	Tags  []int64 `json:"tags,omitempty"`
	Price float32 `json:"price"`
	Click int     `json:"click,omitempty"`
	Late  int     `json:"late,omitempty"`
}

// records makes n of them, some with ids that training has not seen.
func records(n int, seed uint64) []record {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]record, n)
	for i := range out {
		r := record{User: fmt.Sprint("u", rng.IntN(40)), Item: rng.Int64N(60), Price: rng.Float32() * 50, Click: rng.IntN(2), Late: rng.IntN(2)}
		for range rng.IntN(5) {
			r.Tags = append(r.Tags, rng.Int64N(9))
		}
		out[i] = r
	}
	return out
}

func write(t testing.TB, path string, list []record) {
	t.Helper()
	var b bytes.Buffer
	for _, r := range list {
		line, err := json.Marshal(struct {
			record
			Click int `json:"click"`
			Late  int `json:"late"`
		}{r, r.Click, r.Late})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// trained is a job that was trained, with its exports.
type trained struct {
	cfg      *job.Config
	exports  string
	asked    []record
	want     map[string][]float32 // what an evaluation predicts of them, by column
	snapshot string
}

const heads = `
heads:
  - {name: click, label: click}
  - {name: late, label: late, loss: squared}
`

// train trains a model, exports it, and evaluates it on records that it was not trained on.
func train(t testing.TB, model, heads string) *trained {
	t.Helper()
	dir := t.TempDir()
	out := &trained{exports: filepath.Join(dir, "exports"), asked: records(300, 2), want: map[string][]float32{}}
	for i := range out.asked {
		if i%10 == 0 {
			out.asked[i].User, out.asked[i].Item = fmt.Sprint("new", i), int64(1000+i)
		}
	}
	write(t, filepath.Join(dir, "train.jsonl"), records(2000, 1))
	write(t, filepath.Join(dir, "asked.jsonl"), out.asked)
	label := "label: click"
	if heads != "" {
		label = ""
	}
	text := fmt.Sprintf(`
version: 1
name: clicks
source: {text: {files: [%q]}}
parse:
  format: jsonl
  features:
    - {name: user, slot: 1, table: users}
    - {name: item, slot: 2}
    - {name: tags, slot: 3, max: 3, combiner: mean, default: "7"}
    - {name: price, kind: dense, log: true, standardise: {given: {mean: 2, std: 3}}}
  %s
%s
model: %s
train: {batch: 100}
eval:
  source: {text: {files: [%q]}}
  outputs: [{name: predicted, of: predictions, to: {jsonl: {dir: %q}}}]
`, filepath.Join(dir, "train.jsonl"), label, heads, model, filepath.Join(dir, "asked.jsonl"), filepath.Join(dir, "predicted"))
	var err error
	if out.cfg, err = job.Decode([]byte(text), "clicks.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(dir, "run")}}); err != nil {
		t.Fatal(err)
	}
	r, err := job.Run(t.Context(), out.cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out.snapshot = r.Snapshot
	if _, err := job.Evaluate(t.Context(), out.cfg, job.EvalOptions{}); err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, pattern := range []string{"*.jsonl.gz", "*/*.jsonl.gz", "*/*/*.jsonl.gz"} {
		found, err := filepath.Glob(filepath.Join(dir, "predicted", pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) != 1 {
		t.Fatalf("predictions are in %q", files)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // read only
	lines := bufio.NewScanner(unzipped(t, f))
	for lines.Scan() {
		var row map[string]json.RawMessage
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		for name, value := range row {
			var x float32
			if strings.HasPrefix(name, "prediction") && json.Unmarshal(value, &x) == nil {
				out.want[name] = append(out.want[name], x)
			}
		}
	}
	for name, list := range out.want {
		if len(list) != len(out.asked) || slices.Min(list) == slices.Max(list) {
			t.Fatalf("%s: %d predictions of %d, from %v to %v", name, len(list), len(out.asked), slices.Min(list), slices.Max(list))
		}
	}
	out.export(t)
	return out
}

// export exports the job's newest snapshot, and returns its folder.
func (tr *trained) export(t testing.TB) string {
	t.Helper()
	r, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: tr.cfg.Dir, Format: "native", Dir: tr.exports, RowsPerFile: 50, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	return r.Dir
}

// fidOf is a feature id, and hashed the signature of a text.
func fidOf(slot int, signature int64) int64 { return int64(slot)<<48 | signature }

func hashed(text string) int64 { return int64(fid.HashString(text)) }

func recipe(m *export.Model) (parse.Options, error) {
	return wiring.RecipeOptions(m.Recipe, components.All())
}

// models serves folders of exports.
func models(t testing.TB, configs ...serving.ModelConfig) *serving.Models {
	t.Helper()
	m := serving.NewModels(serving.ModelsOptions{Recipe: recipe, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	t.Cleanup(m.Close)
	if err := m.Configure(t.Context(), configs); err != nil {
		t.Fatal(err)
	}
	return m
}

// ask posts a body, or gets without one, and returns code and answer.
func ask(t testing.TB, h http.Handler, path, body string) (int, string) {
	t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, strings.TrimSpace(w.Body.String())
}

// instances are the objects of a request.
func instances(t testing.TB, list []record) string {
	t.Helper()
	var out []map[string]any
	for _, r := range list {
		row := map[string]any{"user": r.User, "item": r.Item, "price": r.Price}
		if r.Tags != nil {
			row["tags"] = r.Tags
		}
		out = append(out, row)
	}
	b, err := json.Marshal(map[string]any{"instances": out})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// predictions reads an answer of rows, by head; a model of one head has "".
func predictions(t testing.TB, body string) map[string][]float32 {
	t.Helper()
	var got struct{ Predictions []json.RawMessage }
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	out := map[string][]float32{}
	for _, raw := range got.Predictions {
		var one []float32
		many := map[string][]float32{}
		if json.Unmarshal(raw, &one) == nil {
			many[""] = one
		} else if err := json.Unmarshal(raw, &many); err != nil {
			t.Fatal(err)
		}
		for name, x := range many {
			out[name] = append(out[name], x...)
		}
	}
	return out
}

// column is the evaluation's column of a head.
func column(head string) string {
	if head == "" {
		return "prediction"
	}
	return "prediction_" + head
}

// TestEqualsEvaluation: each model of the zoo, served, predicts what an evaluation of its snapshot predicts, bit for bit, whatever form the examples have and however many a request
// has.
func TestEqualsEvaluation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ model, heads string }{
		"lr": {"{lr: {}}", ""}, "fm": {"{fm: {dim: 4}}", ""}, "deepfm": {"{deepfm: {dim: 4, hidden: [8]}}", ""},
		"dcnv2": {"{dcnv2: {dim: 4, hidden: [8]}}", ""}, "shared_bottom": {"{shared_bottom: {dim: 4, hidden: [8]}}", heads},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := train(t, c.model, c.heads)
			m := models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports})
			h := serving.NewServer(serving.Options{Models: m}).Handler(nil)
			for _, size := range []int{1, 7, 300} {
				for from := 0; from < len(tr.asked); from += size {
					if size == 1 && from > 20 {
						break
					}
					to := min(from+size, len(tr.asked))
					code, body := ask(t, h, "/v1/models/clicks:predict", instances(t, tr.asked[from:to]))
					if code != http.StatusOK {
						t.Fatalf("%d: %s", code, body)
					}
					for head, got := range predictions(t, body) {
						if want := tr.want[column(head)]; !slices.Equal(got, want[from:to]) {
							t.Fatalf("head %q of rows %d to %d: %v, an evaluation gives %v", head, from, to, got, want[from:to])
						}
					}
				}
			}
			v, _, done, err := m.Use("clicks", serving.Which{})
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			for form, in := range forms(tr.asked) {
				got, err := v.Predict(t.Context(), in, nil)
				if err != nil {
					t.Errorf("%s: %v", form, err)
					continue
				}
				for i, head := range v.Model().Graph.Heads() {
					want := tr.want[column(head.Name)]
					if c.heads == "" {
						want = tr.want["prediction"]
					}
					if !slices.Equal(got[i], want) {
						t.Errorf("%s: head %s: %v..., an evaluation gives %v...", form, head.Name, got[i][:5], want[:5])
					}
				}
			}
		})
	}
}

// forms are the same examples in each other form.
func forms(list []record) map[string]*serving.Input {
	examples := &serving.Input{Form: serving.FormExample}
	offsets := make([]int32, len(list)+1)
	user, item := &serving.Column{Type: serving.Texts, Offsets: offsets}, &serving.Column{Offsets: offsets}
	tags, price := &serving.Column{Offsets: make([]int32, 1)}, &serving.Column{Type: serving.Floats, Offsets: offsets}
	var e example.Encoder
	for i, r := range list {
		e.Bytes("user", []byte(r.User))
		e.Int64s("item", r.Item)
		if r.Tags != nil {
			e.Int64s("tags", r.Tags...)
		}
		e.Floats("price", r.Price)
		examples.Records = append(examples.Records, e.Append(nil))
		offsets[i+1] = int32(i + 1)
		user.Texts, item.Ints, price.Floats = append(user.Texts, []byte(r.User)), append(item.Ints, r.Item), append(price.Floats, r.Price)
		tags.Ints = append(tags.Ints, r.Tags...)
		tags.Offsets = append(tags.Offsets, int32(len(tags.Ints)))
	}
	return map[string]*serving.Input{
		"tf.Example": examples,
		"columns":    {Form: serving.FormColumns, Rows: len(list), Columns: map[string]*serving.Column{"user": user, "item": item, "tags": tags, "price": price}},
	}
}
