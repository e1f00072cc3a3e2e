package job_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/demo"
)

// clicks is the demo's model on the demo's stream, without Kafka between them.
const clicks = `
version: 1
name: bench
source: {synthetic: {examples: 100000, splits: 4}}
` + demo.Parse + `model: {deepfm: {dim: 8, hidden: [64, 32]}}
train: {batch: 256}
snapshot: {every: 0s}
`

// BenchmarkTrain runs whole jobs, from opening the source to the last snapshot.
func BenchmarkTrain(b *testing.B) {
	run := func(b *testing.B, load func(opts job.LoadOptions) (*job.Config, error), set ...string) {
		b.ReportAllocs()
		examples := int64(0)
		for b.Loop() {
			cfg, err := load(job.LoadOptions{Env: os.Environ(), Set: append(set, "dir="+filepath.Join(b.TempDir(), fmt.Sprint(examples)))})
			if err != nil {
				b.Fatal(err)
			}
			r, err := job.Run(b.Context(), cfg, job.RunOptions{})
			if err != nil {
				b.Fatal(err)
			}
			examples += r.Examples
		}
		b.ReportMetric(float64(examples)/b.Elapsed().Seconds(), "examples/s")
	}
	for _, workers := range []int{1, 2} {
		for _, depth := range []string{"0", "2", "2-again"} { // the control
			b.Run(fmt.Sprintf("shape=demo/model=deepfm/batch=256/workers=%d/prefetch=%s", workers, depth), func(b *testing.B) {
				run(b, func(o job.LoadOptions) (*job.Config, error) { return job.Decode([]byte(clicks), "bench.yaml", o) },
					fmt.Sprintf("train.workers=%d", workers), "train.prefetch.lookup="+depth[:1], "train.prefetch.push="+depth[:1])
			})
		}
	}
	b.Run("shape=frappe/model=deepfm/batch=4096/workers=1", func(b *testing.B) {
		testbed.Data(b, "datasets/frappe")
		run(b, func(o job.LoadOptions) (*job.Config, error) {
			cfg, err := job.Load("../examples/frappe/deepfm.yaml", o)
			if err == nil {
				cfg.Epochs, cfg.Eval.Source = 2, nil // two, so that nothing is predicted beside the training pass
			}
			return cfg, err
		})
	})
}

// BenchmarkOutputs runs the demo's job without outputs, twice (the control), and with outputs to files. The processor's time is what an
// output costs, also beside other processes.
func BenchmarkOutputs(b *testing.B) {
	for _, c := range []struct{ name, outputs string }{
		{"none", "[]"},
		{"rows-parquet", "[{name: o, of: rows, to: {parquet: DIR}}]"},
		{"predictions-parquet", "[{name: o, of: predictions, to: {parquet: DIR}}]"},
		{"predictions-jsonl", "[{name: o, of: predictions, to: {jsonl: DIR}}]"},
		{"none-again", "[]"},
	} {
		b.Run("outputs="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			examples, began := int64(0), bench.CPUSeconds()
			for b.Loop() {
				dir := b.TempDir()
				cfg, err := job.Decode([]byte(clicks), "bench.yaml", job.LoadOptions{Set: []string{
					"dir=" + filepath.Join(dir, "run"), "source.synthetic.examples=200000", "outputs=" + strings.ReplaceAll(c.outputs, "DIR", filepath.Join(dir, "out")),
				}})
				if err != nil {
					b.Fatal(err)
				}
				r, err := job.Run(b.Context(), cfg, job.RunOptions{})
				if err != nil {
					b.Fatal(err)
				}
				examples += r.Examples
			}
			b.ReportMetric(float64(examples)/b.Elapsed().Seconds(), "examples/s")
			b.ReportMetric(float64(examples)/(bench.CPUSeconds()-began), "examples/cpu-s")
		})
	}
}

// BenchmarkServedTraining trains the demo's model with shards behind gRPC, beside so many servers of the job that follow them, all of it in this process: what is trained in a second on
// cores that have to do both. The last is the control of the first.
func BenchmarkServedTraining(b *testing.B) {
	for _, name := range []string{"0", "1", "3", "0-again"} {
		b.Run("servers="+name, func(b *testing.B) {
			examples, cpu := int64(0), 0.0
			for b.Loop() {
				b.StopTimer()
				cfg, err := job.Decode([]byte(clicks), "bench.yaml", job.LoadOptions{Set: []string{
					"dir=" + b.TempDir(), "source.synthetic.examples=500000", "ps.addresses=[\"" + testbed.FreeAddr(b) + "\"]",
				}})
				if err != nil {
					b.Fatal(err)
				}
				stops := []func(){serveShards(b.Context(), b, cfg)}
				for range name[0] - '0' {
					a, stop := serveModels(b.Context(), b, job.ServeModelsOptions{Jobs: []job.ServedJob{{Name: "live", Load: func() (*job.Config, error) { return cfg, nil }}}})
					a.fresh("live")
					stops = append(stops, stop)
				}
				began := bench.CPUSeconds()
				b.StartTimer()
				r, err := job.Run(b.Context(), cfg, job.RunOptions{})
				b.StopTimer()
				if err != nil {
					b.Fatal(err)
				}
				examples, cpu = examples+r.Examples, cpu+bench.CPUSeconds()-began
				for _, stop := range slices.Backward(stops) {
					stop()
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(examples)/b.Elapsed().Seconds(), "examples/s")
			b.ReportMetric(float64(examples)/cpu, "examples/cpu-s")
		})
	}
}
