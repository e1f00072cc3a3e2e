package serving_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/serving"
)

// BenchmarkRowShards predicts batches of 256 examples with 600 distinct ids, most of them without a row, by a server that has all rows ("all", and "all-again" as the control) and by one that reads them of
// two row shards in this process over gRPC: with no cache, and with one that has all.
func BenchmarkRowShards(b *testing.B) {
	tr := train(b, "{deepfm: {dim: 16, hidden: [64]}}", "")
	config := serving.ModelConfig{Name: "clicks", Dir: tr.exports}
	const rows, distinct, per = 256, 600, 39
	rng := rand.New(rand.NewPCG(1, 2))
	offsets, ids := []int32{0}, []int64{}
	for range rows {
		for range per {
			ids = append(ids, fidOf(3, rng.Int64N(distinct)))
		}
		offsets = append(offsets, int32(len(ids)))
	}
	in := &serving.Input{Form: serving.FormFeatures, Rows: rows, Columns: map[string]*serving.Column{"tags": {Type: serving.Ints, Ints: ids, Offsets: offsets}}}
	run := func(name string, m *serving.Models) {
		b.Run(name, func(b *testing.B) {
			v, _, done, err := m.Use("clicks", serving.Which{})
			if err != nil {
				b.Fatal(err)
			}
			defer done()
			var out [][]float32
			b.ReportAllocs()
			for b.Loop() {
				if out, err = v.Predict(b.Context(), in, out); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "examples/s")
		})
	}
	shards := newRowShards(b, 2, config)
	all := models(b, config)
	run("rows=all", all)
	run("rows=all-again", all)
	for _, cache := range []int64{0, 16 << 20} {
		run(fmt.Sprintf("rows=shards/cache=%d", cache), entryOf(b, cache, nil, shards, config))
	}
}
