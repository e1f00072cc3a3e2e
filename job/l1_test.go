package job_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/param"
)

// TestL1 trains with l1 and without: the keys of a job reach its parameters, the weights become smaller, and a job that is cut short ends with the same bits.
func TestL1(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const model = "model: {deepfm: {dim: 3, hidden: [4], batch_norm: true}}"
	const keys = model + "\noptimizer: {l1: {dense: 0.01, sparse: 0.02, bias: 0.03}}"
	c, err := decodeGraphJob(dir, keys)
	if err != nil {
		t.Fatal(err)
	}
	m, err := job.BuildModel(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range m.Layout().Tables {
		for _, s := range table.Segments {
			want := float32(0.02)
			if s.Name == "bias" {
				want = 0.03
			}
			if s.L1 != want {
				t.Errorf("%s has l1 %v, want %v", param.SegmentName(table.Name, s.Name), s.L1, want)
			}
		}
	}
	for _, d := range m.Layout().Dense {
		want := float32(0.01)
		if name := d.Optimizer.Name(); name == "ema" || name == "intercept" { // statistics have no gradients, and an intercept a rate of its own
			want = 0
		}
		if d.L1 != want {
			t.Errorf("tensor %s has l1 %v, want %v", d.Name, d.L1, want)
		}
	}
	run := func(name, keys string, set ...string) string {
		t.Helper()
		c, err := decodeGraphJob(dir, keys, append(set, "deterministic=true", "dir="+dir+"/"+name)...)
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Run(t.Context(), c, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Snapshot
	}
	size := func(snapshot string) (sum float64) {
		t.Helper()
		tables, _ := inTables(t, snapshot, false)
		for _, rows := range tables {
			for _, p := range rows {
				for bits := p.bits; bits != ""; bits = bits[8:] {
					w, err := strconv.ParseUint(bits[:8], 16, 32)
					if err != nil {
						t.Fatal(err)
					}
					sum += math.Abs(float64(math.Float32frombits(uint32(w))))
				}
			}
		}
		return sum
	}
	whole := run("with", keys)
	if with, without := size(whole), size(run("without", model)); !(with < 0.8*without) {
		t.Errorf("the weights of rows add up to %v with l1, %v without", with, without)
	}
	run("pieces", keys, "train.max_examples=700")
	if want, got := digest(t, whole), digest(t, run("pieces", keys, "ps.shards=2")); got != want {
		t.Errorf("digest %s in pieces, %s in one", got, want)
	}
}
