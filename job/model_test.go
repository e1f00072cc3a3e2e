package job_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// modelJob is a small job over the synthetic source, in a folder of its own.
func modelJob(t *testing.T, model string) *job.Config {
	t.Helper()
	c, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
source: {synthetic: {examples: 3000}}
parse:
  features: [{name: user, slot: 1}, {name: item, slot: 2}, {name: price, kind: dense}]
  label: {name: y, column: click}
model: %s
`, filepath.Join(t.TempDir(), "run"), model), "model.yaml", job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDescribeModel counts a model by hand, and finds the same in the snapshot that it is trained to.
func TestDescribeModel(t *testing.T) {
	t.Parallel()
	c := modelJob(t, "{deepfm: {dim: 4, hidden: [16, 8]}}")
	m, err := job.DescribeModel(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	// The deep part takes two pooled rows and the embedded price, 4 numbers each; price has a weight and a vector of its own.
	const deep = (12*16 + 16) + (16*8 + 8) + (8 + 1)
	if want := int64(deep + 1 + 1 + 4); m.Parameters != want || m.RowParameters != 0 {
		t.Errorf("%d dense parameters and %d in rows, want %d and none: %+v", m.Parameters, m.RowParameters, want, m.Tensors)
	}
	products := 0.0
	for _, o := range m.Operators {
		if strings.HasPrefix(o.Operator, "linear") {
			products += o.FLOPs
		}
		for _, in := range o.Inputs {
			if in >= o.ID {
				t.Errorf("%%%d takes %%%d, which comes later", o.ID, in)
			}
		}
	}
	if want := 2.0 * (12*16 + 16*8 + 8 + 1); products != want {
		t.Errorf("products make %v additions and multiplications, want %v", products, want)
	}
	if m.FLOPs < products || m.Entries != 1 || len(m.Heads) != 1 || m.Heads[0].Loss != "cross_entropy" {
		t.Errorf("%+v", m)
	}
	// The widest values of rows are 16 numbers, and to train all are kept.
	if least := int64(m.MemoryBatch) * 4 * 16; m.MemoryBatch != 512 || m.PredictBytes < least || m.TrainBytes < 2*m.PredictBytes {
		t.Errorf("%d examples take %d bytes to predict and %d to train", m.MemoryBatch, m.PredictBytes, m.TrainBytes)
	}
	more, err := job.DescribeModel(c, 5)
	if err != nil || more.FLOPs <= m.FLOPs || more.Parameters != m.Parameters {
		t.Errorf("with five ids each %v additions and multiplications, with one %v: %v", more.FLOPs, m.FLOPs, err)
	}

	if _, err := job.Run(t.Context(), c, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	stored, err := job.DescribeStoredModel(t.Context(), c.Dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	info, err := job.InspectSnapshot(t.Context(), c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if stored.RowParameters != 5*info.Rows || info.Rows == 0 || stored.Snapshot != info.Path || stored.Model != "deepfm" {
		t.Errorf("%d weights in %d rows of %s, model %q", stored.RowParameters, info.Rows, stored.Snapshot, stored.Model)
	}
	if stored.FLOPs != m.FLOPs || stored.Parameters != m.Parameters || len(stored.Operators) != len(m.Operators) {
		t.Errorf("stored %+v\nmade %+v", stored, m)
	}
}

// TestNearest is checked against all rows, compared one by one.
func TestNearest(t *testing.T) {
	t.Parallel()
	c := modelJob(t, "{fm: {dim: 4}}")
	r, err := job.Run(t.Context(), c, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.Open(t.Context(), r.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it was only read
	vectors := map[int64][]float32{}
	at, dim := 0, s.Info().Tables[0].Dim()
	for _, segment := range s.Info().Tables[0].Segments {
		if segment.Dim == 4 {
			break
		}
		at += segment.Dim
	}
	if err := s.Rows(0, func(r *table.Rows) error {
		for i, id := range r.Keys {
			vectors[id] = slices.Clone(r.Weights[i*dim+at:][:4])
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	cosine := func(a, b []float32) float64 {
		var ab, aa, bb float64
		for i := range a {
			ab, aa, bb = ab+float64(a[i])*float64(b[i]), aa+float64(a[i])*float64(a[i]), bb+float64(b[i])*float64(b[i])
		}
		return ab / math.Sqrt(aa*bb)
	}
	var id int64
	for candidate := range vectors {
		if candidate>>48 == 2 {
			id = candidate
		}
	}
	for _, all := range []bool{false, true} {
		const k = 7
		got, err := job.Nearest(t.Context(), c.Dir, job.NearestOptions{Table: s.Info().Tables[0].Name, ID: id, K: k, AllSlots: all})
		if err != nil {
			t.Fatal(err)
		}
		var want []float64
		for other, v := range vectors {
			if other != id && (all || other>>48 == 2) {
				want = append(want, cosine(vectors[id], v))
			}
		}
		slices.Sort(want)
		slices.Reverse(want)
		if got.Compared != int64(len(want)) || len(got.Rows) != k {
			t.Fatalf("all slots %v: %d rows of %d, want %d of %d", all, len(got.Rows), got.Compared, k, len(want))
		}
		for i, row := range got.Rows {
			if math.Abs(row.Cosine-want[i]) > 1e-6 || math.Abs(row.Cosine-cosine(vectors[id], vectors[row.ID])) > 1e-6 || row.Updated == nil || row.Occurrences == 0 {
				t.Errorf("all slots %v: place %d is %+v, want cosine %v", all, i, row, want[i])
			}
		}
	}
	for words, o := range map[string]job.NearestOptions{
		"SLOT:SIGNATURE":     {Table: s.Info().Tables[0].Name, ID: 5, K: 1}, // no row of id 5
		"no row of id 5":     {Table: s.Info().Tables[0].Name, ID: 5, K: 1},
		"no table":           {Table: "none", ID: id, K: 1},
		`did you mean "vec"`: {Table: s.Info().Tables[0].Name, ID: id, K: 1, Segment: "vect"},
	} {
		if _, err := job.Nearest(t.Context(), c.Dir, o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), words) {
			t.Errorf("%+v: %v, want one that says %q", o, err, words)
		}
	}
}

// TestIDsOfValues finds rows by values of features, as the job file's recipe and the snapshot's have them.
func TestIDsOfValues(t *testing.T) {
	t.Parallel()
	c := modelJob(t, "{fm: {dim: 4}}")
	if _, err := job.Run(t.Context(), c, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	o := job.ValueOptions{Feature: "item", Values: []string{"7", "some text"}, Table: "embedding"}
	want := []int64{2<<48 | 7, 2<<48 | int64(fid.HashString("some text"))}
	by, err := job.IDs(c, o)
	if err != nil || !slices.Equal(by, want) {
		t.Errorf("the job has %v, %v, want %v", by, err, want)
	}
	stored, err := job.IDsStored(t.Context(), c.Dir, o)
	if err != nil || !slices.Equal(stored, want) {
		t.Errorf("the snapshot has %v, %v, want %v", stored, err, want)
	}
	for text, o := range map[string]job.ValueOptions{
		`did you mean "item"`: {Feature: "itm", Values: []string{"7"}},
		"is dense":            {Feature: "price", Values: []string{"7"}},
		"has no id":           {Feature: "item", Values: []string{""}},
		"ids are 0 to":        {Feature: "item", Values: []string{"-7"}},
	} {
		if _, err := job.IDsStored(t.Context(), c.Dir, o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v, want %s", o, err, text)
		}
	}
}
