package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/kafkasink"
	"github.com/monolith-go/monolith/sources/kafkasource"
	"github.com/monolith-go/monolith/sources/synthsource"
)

// Parse is the parse section of the demo's job: it reads what synthsource makes.
const Parse = `parse:
  format: tf_example
  features:
    - {name: user, slot: 1}
    - {name: item, slot: 2}
    - {name: category, slot: 3}
    - {name: audience, slot: 4}
    - {name: hour, slot: 5}
    - {name: device, slot: 6}
    - {name: country, slot: 7}
    - {name: history, slot: 8, max: 4, combiner: mean}
    - {name: price, kind: dense}
  label: click
`

// jobFile is the demo's job, as a user would write it.
var jobFile = template.Must(template.New("job").Parse(`# Written by monolith demo. The broker lived in that process; evaluate and inspect work without it.
version: 1
name: demo
dir: {{.Dir}}
seed: {{.Seed}}
source:
  kafka:
    brokers: [{{.Broker}}]
    topic: clicks
    end: {{.End}}
    max_wait: 100ms
` + Parse + `model:
{{.Model}}
optimizer:
  dense: {adam: {lr: 0.002}}
  sparse: {adagrad: {lr: 0.05, initial_accumulator: 0.0001}}
  bias: {ftrl: {lr: 0.05, initial_accumulator: 0.0001}}
train: {batch: {{.Batch}}, workers: {{.Workers}}}
ps: {shards: 2}
snapshot: {every: 2s, keep: 3}
eval:
  source: {tfrecord: {files: ["{{.Dir}}/heldout.tfrecord"]}}
`))

var models = map[string]string{
	"lr":     "  lr: {}",
	"fm":     "  fm: {dim: 8}",
	"deepfm": "  deepfm: {dim: 8, hidden: [64, 32]}",
	"dcnv2":  "  dcnv2: {dim: 8, hidden: [64, 32], cross_layers: 2}",
}

// job writes and loads the job file.
func (d *demo) job() (*job.Config, error) {
	text, ok := models[d.opts.Model]
	if !ok {
		return nil, fmt.Errorf("demo: no model %q: %w", d.opts.Model, pipeline.ErrConfig)
	}
	dir, err := filepath.Abs(d.dir)
	if err != nil {
		return nil, err
	}
	end := "{"
	for p := range int64(partitions) {
		end += fmt.Sprintf("%d: %d, ", p, (d.opts.Examples-p+partitions-1)/partitions)
	}
	end = end[:len(end)-2] + "}"
	var b bytes.Buffer
	err = jobFile.Execute(&b, map[string]any{
		"Dir": dir, "Seed": d.opts.Seed, "Broker": d.brokers[0], "End": end, "Model": text, "Workers": d.opts.Workers,
		"Batch": max(512/max(d.opts.Workers, 2), 32),
	})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "job.yaml")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return nil, fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
	}
	return job.Load(path, job.LoadOptions{})
}

// publish sends the stream to the broker, continuing where an earlier run stopped: the partitions say how far that was.
func (d *demo) publish(ctx context.Context) (err error) {
	p, err := kafkasink.NewProducer(kafkasink.Options{Brokers: d.brokers, Topic: topic})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	published, err := kafkasource.New(kafkasource.Options{Brokers: d.brokers, Topic: topic, End: kafkasource.Bound{Place: kafkasource.Latest}})
	if err != nil {
		return err
	}
	splits, err := published.Splits(ctx) // in the order of the partitions
	if err != nil {
		return err
	}
	const chunk = 1000
	var ex synthsource.Example
	for from := int64(0); from < d.opts.Examples; from += chunk {
		var records []kafkasink.Record
		for i := from; i < min(from+chunk, d.opts.Examples); i++ {
			partition := i % partitions
			if i/partitions < int64(splits[partition].End) {
				continue
			}
			d.stream.At(i, &ex)
			records = append(records, kafkasink.Record{
				Partition: int(partition), Key: ex.AppendKey(nil), Value: ex.AppendTFExample(nil), Time: time.UnixMicro(ex.Time),
			})
		}
		if err := p.Produce(ctx, records...); err != nil {
			return err
		}
	}
	return nil
}
