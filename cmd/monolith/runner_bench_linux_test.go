package main_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/testbed/realflink"
	"github.com/monolith-go/monolith/internal/testbed/realkafka"
	"github.com/monolith-go/monolith/sinks/kafkasink"
)

// BenchmarkRunner trains the same jobs with each runner, in processes of their own, the local runner twice as a control. Flink is an
// embedded cluster beside the process that trains (loopback), with a slot for each split, of a job server that has run a job before. Rates are over the
// whole life of the process, submission and all.
func BenchmarkRunner(b *testing.B) {
	path, err := bin()
	if err != nil {
		b.Fatal(err)
	}
	for _, job := range []struct {
		name string
		text func(b *testing.B) string
	}{{"demo", demoBench}, {"frappe", frappeBench}, {"fields39", filesBench}, {"fields39-stream", streamBench}} {
		b.Run("job="+job.name, func(b *testing.B) {
			text := job.text(b)
			for _, runner := range []string{"local", "local-again", "prism", "flink", "local-last"} {
				b.Run("runner="+runner, func(b *testing.B) {
					name, _, _ := strings.Cut(runner, "-")
					args := []string{"--json", "-q", "--runner=" + name}
					if name == "flink" {
						server := realflink.Start(b)
						args = append(args, "--set", "beam.endpoint="+server.Endpoint, "--set", "beam.flink_rest="+server.REST)
						_, first := makeJob(b, demoBench(b)) // of a job server that has just begun takes seconds longer
						warm := append([]string{"train", first, "--set", "source.synthetic.examples=10000"}, args...)
						if out, err := exec.Command(path, warm...).CombinedOutput(); err != nil {
							b.Fatalf("%v\n%s", err, out)
						}
					}
					var examples, seconds float64
					for b.Loop() {
						_, job := makeJob(b, text)
						began := time.Now()
						out, err := exec.Command(path, append([]string{"train", job}, args...)...).Output()
						if err != nil {
							b.Fatalf("%v\n%s", err, stderr(err))
						}
						seconds += time.Since(began).Seconds()
						var r struct{ Result struct{ Examples float64 } }
						if err := json.Unmarshal(out, &r); err != nil {
							b.Fatal(err)
						}
						examples += r.Result.Examples
					}
					b.ReportMetric(examples/seconds, "examples/s")
				})
			}
		})
	}
}

func demoBench(*testing.B) string {
	return `
version: 1
name: bench
dir: DIR
source: {synthetic: {examples: 5000000, splits: 4}}
parse:
  format: tf_example
  features:
    - {name: user, slot: 1}
    - {name: item, slot: 2}
    - {name: category, slot: 3}
    - {name: history, slot: 4, max: 10, combiner: mean}
    - {name: price, kind: dense}
  label: click
model: {deepfm: {dim: 8, hidden: [64, 32]}}
train: {batch: 512, workers: 2}
ps: {shards: 2}
`
}

// wideBench is a DeepFM over fields of one id each.
const wideBench = `
version: 1
name: bench
dir: DIR
source: SOURCE
parse: {format: libfm, fields: [FIELDS]}
model: {deepfm: {dim: 16, hidden: [400, 400, 400]}}
train: {batch: 512, workers: 2}
ps: {shards: 2}
`

func wideJob(source string, fields int) string {
	names := make([]string, fields)
	for i := range names {
		names[i] = fmt.Sprintf("f%02d", i)
	}
	return strings.NewReplacer("SOURCE", source, "FIELDS", strings.Join(names, ", ")).Replace(wideBench)
}

// frappeBench is one epoch of Frappe, in four files.
func frappeBench(b *testing.B) string {
	packed, err := os.Open(filepath.Join(testbed.Data(b, "datasets/frappe"), "frappe.train.rebuilt.libfm.gz"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = packed.Close() }()
	r, err := gzip.NewReader(packed)
	if err != nil {
		b.Fatal(err)
	}
	all, err := io.ReadAll(r)
	if err != nil {
		b.Fatal(err)
	}
	lines := bytes.SplitAfter(all, []byte("\n"))
	return wideJob(fileSource(b, lines), 10)
}

// benchRows are rows of 39 fields of one id each, ids drawn with many rare ones and few frequent ones.
func benchRows() [][]byte {
	const rows, fields = 240_000, 39
	rng := rand.New(rand.NewPCG(39, 39))
	zipf := rand.NewZipf(rng, 1.1, 4, 199_999)
	out := make([][]byte, rows)
	for i := range out {
		line := fmt.Appendf(nil, "%d", rng.IntN(2))
		for f := range fields {
			line = fmt.Appendf(line, " %d:1", uint64(f)*200_000+zipf.Uint64())
		}
		out[i] = append(line, '\n')
	}
	return out
}

func filesBench(b *testing.B) string { return wideJob(fileSource(b, benchRows()), 39) }

// fileSource writes lines to four files.
func fileSource(b *testing.B, lines [][]byte) string {
	dir := b.TempDir()
	for i := range 4 {
		part := lines[len(lines)*i/4 : len(lines)*(i+1)/4]
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("part-%d.libfm", i)), bytes.Join(part, nil), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return "{text: {files: [" + dir + "/*.libfm]}}"
}

// streamBench is filesBench from a topic of Apache Kafka that has no end: training stops after so many examples.
func streamBench(b *testing.B) string {
	addr, rows := realkafka.Start(b).Addr, benchRows()
	if err := kafkasink.CreateTopic(b.Context(), kafkasink.Options{Brokers: []string{addr}, Topic: "rows"}, kafkasink.Topic{Partitions: 4, Replication: 1}); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	for p := range 4 {
		var records []broker.Record
		for _, row := range rows[len(rows)*p/4 : len(rows)*(p+1)/4] {
			records = append(records, broker.Record{Value: bytes.TrimSpace(row), Time: time.Now()})
		}
		if err := broker.Produce(ctx, []string{addr}, "rows", p, broker.Batch{Size: 1000}, records...); err != nil {
			b.Fatal(err)
		}
	}
	text := wideJob(fmt.Sprintf("{kafka: {brokers: [%s], topic: rows, start: earliest}}", addr), 39)
	return strings.Replace(text, "batch: 512", fmt.Sprintf("max_examples: %d, batch: 512", len(rows)-8*512), 1)
}
