package forward_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/exporttest"
	"github.com/monolith-go/monolith/export/onnx"
	"github.com/monolith-go/monolith/export/savedmodel"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/testbed/readers"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

//go:embed testdata/readers.py
var readersScript string

// sample is a batch of features as training has them, by name; lists of ids have values where they are not 1.
type sample struct {
	rows   int
	ids    map[string][][]int64
	values map[string][][]float32
	dense  map[string][]float32
}

// weights are the values of a feature's entries.
func (s *sample) weights(feature string) [][]float32 {
	if s.values[feature] == nil {
		lists := make([][]float32, s.rows)
		for i, l := range s.ids[feature] {
			for range l {
				lists[i] = append(lists[i], 1)
			}
		}
		s.values[feature] = lists
	}
	return s.values[feature]
}

// readersCase is what readers.py is told of a model.
type readersCase struct {
	Name       string         `json:"name"`
	Rows       int            `json:"rows"`
	Share      float64        `json:"share"`
	SavedModel string         `json:"savedmodel"`
	ONNX       string         `json:"onnx"`
	Numbered   string         `json:"numbered"`
	Inputs     []readersInput `json:"inputs"`
	Heads      []readersInput `json:"heads"`
	Tables     []export.Table `json:"tables"`

	unseen int // entries whose id has no row
	counts map[string]int64
	warmup []string // requests
}

type readersInput struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind,omitempty"`
	File    string   `json:"file"`
	Width   int      `json:"width"`
	Classes []string `json:"classes"`
	IDs     string   `json:"ids,omitempty"` // the file of the ids of its table
}

// exportBoth writes a model in both formats, with what a session predicts of a sample, and with warm-up requests of examples, if there are any.
func exportBoth(t *testing.T, name string, m *export.Model, s sample, warmup *export.Examples) readersCase {
	t.Helper()
	dir := t.TempDir()
	c := readersCase{Name: name, Rows: s.rows, Share: 1, SavedModel: filepath.Join(dir, "savedmodel"), ONNX: filepath.Join(dir, "onnx"), Numbered: filepath.Join(dir, "numbered"), Tables: m.Tables, counts: map[string]int64{}}
	for to, format := range map[string]export.Format{c.SavedModel: savedmodel.Format{}, c.ONNX: onnx.Format{}, c.Numbered: onnx.Format{RowNumbers: true}} {
		if err := format.Check(m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wrote := int64(0)
		if err := format.Write(t.Context(), m, export.Target{FS: fsx.Local{}, Dir: to, Progress: func(n int64) { wrote += n }}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if warmup != nil && to == c.SavedModel {
			b, err := m.WarmupOf(warmup, true)
			if err == nil {
				err = os.WriteFile(filepath.Join(to, filepath.FromSlash(export.WarmupName)), b, 0o600)
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for _, tbl := range m.Tables {
			wrote -= tbl.Rows
			c.counts[tbl.Name] = tbl.Rows
		}
		if wrote != 0 {
			t.Errorf("%s: %s: progress is %d rows beside the model's", name, format.Name(), wrote)
		}
	}
	store := func(in readersInput, values any) readersInput {
		in.File = filepath.Join(dir, fmt.Sprintf("%d.raw", len(c.Inputs)+len(c.Heads)))
		var b bytes.Buffer
		if err := binary.Write(&b, binary.LittleEndian, values); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(in.File, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return in
	}
	for _, f := range m.Graph.Features() {
		if f.Kind == model.Dense {
			c.Inputs = append(c.Inputs, store(readersInput{Name: f.Name, Kind: "dense", Width: f.Dim}, s.dense[f.Name]))
			continue
		}
		ids, width := pad(s.ids[f.Name], -1)
		c.Inputs = append(c.Inputs, store(readersInput{Name: f.Name, Kind: "ids", Width: width, IDs: filepath.Join(c.Numbered, onnx.IDsName(m.Tables[f.Table].Name))}, ids))
		if f.Values != "" {
			values, width := pad(s.weights(f.Name), float32(math.NaN()))
			c.Inputs = append(c.Inputs, store(readersInput{Name: f.Values, Kind: "values", Width: width}, values))
		}
	}
	predicted := predict(t, m, s, &c.unseen)
	for i, h := range m.Graph.Heads() {
		c.Heads = append(c.Heads, store(readersInput{Name: h.Name, Width: h.Width, Classes: h.ClassLabels()}, predicted[i]))
	}
	return c
}

// pad fills lists up to the longest and one more.
func pad[T any](lists [][]T, with T) (out []T, width int) {
	for _, l := range lists {
		width = max(width, len(l)+1)
	}
	for _, l := range lists {
		out = append(out, l...)
		for range width - len(l) {
			out = append(out, with)
		}
	}
	return out, width
}

// predict is what monolith predicts: a session, with the rows that the model has and initial values for the others.
func predict(t *testing.T, m *export.Model, s sample, unseen *int) [][]float32 {
	t.Helper()
	in, layout := &model.Inputs{NumRows: s.rows}, m.Graph.Layout()
	places, rows := make([]map[int64]int32, len(layout.Tables)), make([]map[int64][]float32, len(layout.Tables))
	in.Values = make([][]float32, len(layout.Tables))
	for i, tbl := range layout.Tables {
		places[i], rows[i] = map[int64]int32{}, map[int64][]float32{}
		if err := m.Rows(t.Context(), i, func(r *table.Rows) error {
			for k, id := range r.Keys {
				rows[i][id] = slices.Clone(r.Weights[k*tbl.Dim():][:tbl.Dim()])
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range m.Graph.Features() {
		if f.Kind == model.Dense {
			in.Dense = append(in.Dense, s.dense[f.Name])
			continue
		}
		r := model.Ragged{Offsets: []int32{0}}
		for k, list := range s.ids[f.Name] {
			for _, id := range list {
				at, ok := places[f.Table][id]
				if !ok {
					at = int32(len(places[f.Table]))
					places[f.Table][id] = at
					row, ok := rows[f.Table][id]
					if !ok {
						row = make([]float32, layout.Tables[f.Table].Dim())
						m.Initial(f.Table, id, row)
					}
					in.Values[f.Table] = append(in.Values[f.Table], row...)
				}
				if rows[f.Table][id] == nil {
					*unseen++
				}
				r.Index = append(r.Index, at)
			}
			r.Offsets = append(r.Offsets, int32(len(r.Index)))
			if f.Values != "" {
				r.Values = append(r.Values, s.weights(f.Name)[k]...)
			}
		}
		in.Sparse = append(in.Sparse, r)
	}
	session := m.Graph.NewSession(1)
	defer session.Close()
	session.SetDense(m.Dense)
	var out [][]float32
	for _, p := range session.Predict(in) {
		out = append(out, slices.Clone(p))
	}
	return out
}

// runReaders has the real readers load cases, and compares predictions and rows.
func runReaders(t *testing.T, cases []readersCase) {
	t.Helper()
	spec, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cases.json")
	if err := os.WriteFile(file, spec, 0o600); err != nil {
		t.Fatal(err)
	}
	results := json.NewDecoder(bytes.NewReader(readers.Run(t, readersScript, file)))
	for _, c := range cases {
		var r struct {
			Name        string
			Differences map[string]float64
			SavedModel  struct {
				Signatures, Ops []string
				Warmup          []string
				Rows            map[string]int64
				Method          string
			}
			ONNX struct {
				IR       int
				Opsets   map[string]int
				Encoders []int64
				Model    string
				Sparse   string
			}
			Numbered struct {
				Encoders []int64
				Sparse   string
			}
		}
		if err := results.Decode(&r); err != nil || r.Name != c.Name {
			t.Fatalf("%s: %v, %+v", c.Name, err, r)
		}
		t.Logf("%s: largest differences %v, %d of the entries have ids without rows", c.Name, r.Differences, c.unseen)
		for _, what := range []string{"features", "examples", "regress", "session", "onnx", "numbered"} {
			if d, ok := r.Differences[what]; !ok || !(d <= 1e-5) {
				t.Errorf("%s: %s differ by %v, %t", c.Name, what, d, ok)
			}
		}
		if got, want := fmt.Sprint(r.SavedModel.Rows), fmt.Sprint(c.counts); got != want || r.SavedModel.Method != "tensorflow/serving/predict" {
			t.Errorf("%s: rows %s, want %s; method %q", c.Name, got, want, r.SavedModel.Method)
		}
		if want := []string{"features", "serving_default"}; !containsAll(r.SavedModel.Signatures, want) {
			t.Errorf("%s: signatures %q", c.Name, r.SavedModel.Signatures)
		}
		want := []string{"features 1", "serving_default 1", "features 64", "serving_default 64"}
		if c.warmup != nil {
			want = c.warmup
		}
		if !slices.Equal(r.SavedModel.Warmup, want) {
			t.Errorf("%s: warm-up requests %q, want %q", c.Name, r.SavedModel.Warmup, want)
		}
		var rows []int64
		for _, tbl := range c.Tables {
			if tbl.Rows > 0 {
				rows = append(rows, tbl.Rows)
			}
		}
		slices.Sort(rows)
		slices.Sort(r.ONNX.Encoders)
		if !slices.Equal(rows, r.ONNX.Encoders) || r.ONNX.IR != 10 || r.ONNX.Opsets[""] != 18 || r.ONNX.Opsets["ai.onnx.ml"] != 3 {
			t.Errorf("%s: ONNX says %+v, want %v rows", c.Name, r.ONNX, rows)
		}
		if len(r.Numbered.Encoders) != 0 || r.ONNX.Sparse != "ids" || r.Numbered.Sparse != "row numbers" {
			t.Errorf("%s: ONNX says %+v, and of row numbers %+v", c.Name, r.ONNX, r.Numbered)
		}
	}
	if err := results.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		t.Errorf("there is more: %v", err)
	}
}

func containsAll(have, want []string) bool {
	return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(have, w) })
}

// trained runs a job for some examples and opens the model of its last snapshot.
func trained(t *testing.T, text string) *export.Model {
	t.Helper()
	cfg, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(t.TempDir(), "run")}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := job.Run(t.Context(), cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := snapshot.ReadInfo(r.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	m, err := export.Open(t.Context(), info.Path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// sampleRows is how many rows are compared.
const sampleRows = 10000

// zooSettings are the settings of a model of the zoo, as jobs write them; those that are not here have their defaults.
var zooSettings = map[string]string{
	zoo.FM: "dim: 8", zoo.DeepFM: "dim: 8, hidden: [32, 16], batch_norm: true, embedding_init: {normal: 0.01}", zoo.DCNv2: "dim: 8, hidden: [32]",
	zoo.SharedBottom: "dim: 8, hidden: [32], attention: 8, embedding_init: {truncated_normal: 0.05}",
}

// attends reports whether a model of the zoo takes sequences.
func attends(name string) bool {
	_, err := zoo.New(zoo.Config{Name: name, Features: []zoo.Feature{{Name: "item"}, {Name: "history", Attends: "item"}}})
	return err == nil
}

// TestRealDataReadersFrappe: TensorFlow and onnxruntime predict of 10,000 rows of Frappe what monolith predicts, for every model of the zoo.
func TestRealDataReadersFrappe(t *testing.T) {
	readers.Need(t)
	dir := filepath.Join(testbed.Data(t, "datasets"), "frappe")
	fields := []string{"user", "item", "daytime", "weekday", "isweekend", "homework", "cost", "weather", "country", "city"}
	s := sample{ids: map[string][][]int64{}, values: map[string][][]float32{}}
	for _, line := range lines(t, filepath.Join(dir, "frappe.validation.libfm.gz"), sampleRows) {
		for i, entry := range strings.Fields(line)[1:] {
			index, _, _ := strings.Cut(entry, ":")
			s.ids[fields[i]] = append(s.ids[fields[i]], []int64{fidOf(t, i+1, index)})
		}
		s.rows++
	}
	var cases []readersCase
	for _, name := range zoo.Names() {
		m := trained(t, fmt.Sprintf(`
version: 1
name: frappe
source: {text: {files: [%q]}}
parse: {format: libfm, fields: [%s]}
model: {%s: {%s}}
train: {batch: 1024, max_examples: 30000}
`, filepath.Join(dir, "frappe.train.rebuilt.libfm.gz"), strings.Join(fields, ", "), name, zooSettings[name]))
		cases = append(cases, exportBoth(t, name, m, s, nil))
	}
	runReaders(t, cases)
	if cases[0].unseen == 0 {
		t.Error("all ids have rows: initial values are not compared")
	}
}

// TestRealDataReadersMovieLens: the same of MovieLens-1M, with lists, two tables, numbers that are standardised, and what a user has rated before: nothing, more than a feature of
// training keeps, and more than a model tells the places apart of.
func TestRealDataReadersMovieLens(t *testing.T) {
	readers.Need(t)
	dir := filepath.Join(testbed.Data(t, "datasets"), "ml1m-bin")
	users, movies := side(t, filepath.Join(dir, "users.dat")), side(t, filepath.Join(dir, "movies.dat"))
	s := sample{ids: map[string][][]int64{}, dense: map[string][]float32{}}
	train, rated := withHistories(t, lines(t, filepath.Join(dir, "train.tsv.gz"), 200001))
	rng := rand.New(rand.NewPCG(4, 2))
	for i, line := range lines(t, filepath.Join(dir, "val.tsv.gz"), sampleRows+1)[1:] {
		fields := strings.Split(line, "\t")
		s.ids["user"] = append(s.ids["user"], []int64{fidOf(t, 1, fields[0])})
		s.ids["movie"] = append(s.ids["movie"], []int64{fidOf(t, 2, fields[1])})
		var genres []int64
		for genre := range strings.SplitSeq(movies[fields[1]][2], "|") {
			genres = append(genres, int64(8)<<fid.SignatureBits|int64(fid.HashString(genre)))
		}
		s.ids["genres"] = append(s.ids["genres"], genres)
		var seen []int64
		n := rng.IntN(12)
		if i%500 == 0 {
			n = 100
		}
		for _, movie := range rated[fields[0]][:min(n, len(rated[fields[0]]))] {
			seen = append(seen, fidOf(t, 2, movie))
		}
		s.ids["seen"] = append(s.ids["seen"], seen)
		age, err := strconv.ParseFloat(users[fields[0]][2], 32)
		if err != nil {
			t.Fatal(err)
		}
		s.dense["age"] = append(s.dense["age"], float32(age))
		s.rows++
	}
	var cases []readersCase
	for _, name := range zoo.Names() {
		taken, settings := "combiner: mean", zooSettings[name]
		if attends(name) {
			taken = "attends: movie"
		}
		if name == zoo.DSSM {
			settings = "item: [movie, genres]"
		}
		m := trained(t, fmt.Sprintf(`
version: 1
name: movielens
source: {text: {files: [%q]}}
parse:
  format: tsv
  header: true
  joins:
    - {file: %q, delimiter: "::", encoding: latin1, key: user_id, key_column: id, columns: [id, gender, age, occupation, zip]}
    - {file: %q, delimiter: "::", encoding: latin1, key: movie_id, key_column: id, columns: [id, title, genres], prefix: movie_}
  features:
    - {name: user, column: user_id, slot: 1, type: int, table: users}
    - {name: movie, column: movie_id, slot: 2, type: int}
    - {name: genres, column: movie_genres, split: "|", slot: 8, combiner: mean}
    - {name: seen, split: "|", slot: 2, type: int, max: 8, %s}
    - {name: age, kind: dense, standardise: running}
  label: label
model: {%s: {%s}}
train: {batch: 512, max_examples: 20000}
optimizer: {sparse: adagrad, bias: ftrl, intercept: dense}
`, train, filepath.Join(dir, "users.dat"), filepath.Join(dir, "movies.dat"), taken, name, settings))
		cases = append(cases, exportBoth(t, name, m, s, nil))
	}
	runReaders(t, cases)
	if cases[0].unseen == 0 {
		t.Error("all ids have rows: initial values are not compared")
	}
}

// withHistories writes rows of ratings to a file with one more column, seen: what the user has rated before. It returns what each user has rated too.
func withHistories(t *testing.T, rows []string) (file string, rated map[string][]string) {
	t.Helper()
	rated = map[string][]string{}
	out := []string{rows[0] + "\tseen"}
	for _, line := range rows[1:] {
		fields := strings.Split(line, "\t")
		before := rated[fields[0]]
		out = append(out, line+"\t"+strings.Join(before[max(0, len(before)-12):], "|"))
		rated[fields[0]] = append(before, fields[1])
	}
	file = filepath.Join(t.TempDir(), "train.tsv")
	if err := os.WriteFile(file, []byte(strings.Join(out, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, rated
}

func fidOf(t *testing.T, slot int, signature string) int64 {
	t.Helper()
	n, err := strconv.ParseUint(signature, 10, 48)
	if err != nil {
		t.Fatal(err)
	}
	id, err := fid.New(slot, n)
	if err != nil {
		t.Fatal(err)
	}
	return int64(id)
}

// lines are the first of a gzip file.
func lines(t *testing.T, name string, n int) (out []string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was read alone
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for scan := bufio.NewScanner(r); len(out) < n && scan.Scan(); {
		out = append(out, scan.Text())
	}
	if len(out) < n {
		t.Fatalf("%s has %d lines", name, len(out))
	}
	return out
}

// side are the fields of a side table by the first of them.
func side(t *testing.T, name string) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		fields := strings.Split(strings.TrimSpace(line), "::")
		out[fields[0]] = fields
	}
	return out
}

// randomSample has ids below a number, and lists of up to four.
func randomSample(g *graph.Graph, rows, ids int, seed uint64) sample {
	rng := rand.New(rand.NewPCG(seed, 9))
	s := sample{rows: rows, ids: map[string][][]int64{}, values: map[string][][]float32{}, dense: map[string][]float32{}}
	for _, f := range g.Features() {
		for range rows {
			if f.Kind == model.Dense {
				missing := f.Decay != 0 && rng.IntN(4) == 0
				for range f.Dim {
					v := float32(rng.NormFloat64())
					if missing {
						v = float32(math.NaN())
					}
					s.dense[f.Name] = append(s.dense[f.Name], v)
				}
				continue
			}
			var list []int64
			var values []float32
			for range rng.IntN(5) {
				list, values = append(list, exporttest.ID(rng.IntN(ids))), append(values, float32(rng.IntN(5))/2-1)
			}
			s.ids[f.Name] = append(s.ids[f.Name], list)
			if f.Values != "" {
				s.values[f.Name] = append(s.values[f.Name], values)
			}
		}
	}
	return s
}

// TestReaders: TensorFlow and onnxruntime compute every operator as monolith does, with ids that have rows and ids that have none, with tables that are empty, and with products in 16 bits.
func TestReaders(t *testing.T) {
	readers.Need(t)
	g := exporttest.EveryOperator(t)
	half, err := g.InPrecision(param.BF16)
	if err != nil {
		t.Fatal(err)
	}
	const ids = 60
	s := randomSample(g, 700, ids, 1)
	none := func(int) bool { return false }
	even := func(i int) bool { return i%2 == 0 }
	of := exporttest.Stored(t, half.(*graph.Graph), ids, even)
	cases := []readersCase{
		exportBoth(t, "every operator", exporttest.Stored(t, g, ids, even), s, nil),
		exportBoth(t, "empty tables", exporttest.Stored(t, g, ids, none), s, nil),
		exportBoth(t, "products in 16 bits, warmed up by examples", of, s, examplesOf(t, of, s, 100)),
	}
	cases[2].warmup = []string{"features 1", "serving_default 1", "features 64", "serving_default 64", "features 36", "serving_default 36"}
	cases[2].Share = 0.99 // an operand that differs in its last bit may be rounded the other way
	runReaders(t, cases)
}
