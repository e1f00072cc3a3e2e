package job_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/filesource"
)

// Semicolons is a source of records that a semicolon ends. All that a job needs to know of it is here.
type Semicolons struct {
	// Files are the files to read.
	Files []string `yaml:"files" required:"true"`
	// MaxBytes is the length above which a record is a bad row.
	MaxBytes component.Size `yaml:"max_bytes" default:"1KiB" min:"1"`
}

// Formats says that the records are lines of libfm, csv or tsv.
func (*Semicolons) Formats() []string { return []string{"libfm", "csv", "tsv"} }

// UsualFormat is the one that a job need not name.
func (*Semicolons) UsualFormat() string { return "csv" }

// Bounded says that the source ends.
func (*Semicolons) Bounded() bool { return true }

// OpenBlocks makes the source.
func (s *Semicolons) OpenBlocks(o component.Opening) (pipeline.Source[*pipeline.Block], error) {
	return filesource.New(semicolons{int(s.MaxBytes)}, filesource.Options{Files: s.Files, Known: o.Known})
}

// semicolons finds the records of a file.
type semicolons struct{ maxBytes int }

func (semicolons) Name() string          { return "semicolons" }
func (semicolons) IsGzip([]byte) bool    { return false }
func (f semicolons) Fingerprint() string { return fmt.Sprint("semicolons ", f.maxBytes) }

func (f semicolons) Open(s *filesource.Stream, from int64) (filesource.Records, error) {
	if err := s.SeekTo(from); err != nil {
		return nil, err
	}
	return &semicolonReader{bufio.NewReader(s), from, f.maxBytes}, nil
}

type semicolonReader struct {
	r        *bufio.Reader
	at       int64
	maxBytes int
}

func (r *semicolonReader) Offset() int64 { return r.at }

func (r *semicolonReader) Scan() ([]byte, error) {
	record, err := r.r.ReadBytes(';')
	r.at += int64(len(record))
	switch {
	case errors.Is(err, io.EOF) && len(record) > 0:
		return record, nil
	case err != nil:
		return nil, err
	case len(record) > r.maxBytes:
		return record, &filesource.BadRecord{Reason: "record too long", Err: fmt.Errorf("it has %d bytes", len(record))}
	}
	return record[:len(record)-1], nil
}

// Linear is a model of one's own: here it is made of the zoo's parts; package graph has those for any other.
type Linear struct {
	// L2 pulls all weights towards 0.
	L2 float64 `yaml:"l2" default:"0.001" min:"0"`
}

// Build makes the model.
func (l *Linear) Build(in component.ModelInputs) (model.Model, error) {
	return zoo.New(zoo.Config{
		Name: zoo.LR, Features: in.Features, Seed: in.Seed, BiasOptimizer: in.Bias, DenseOptimizer: in.Dense,
		BiasL2: float32(l.L2), DenseL2: float32(l.L2),
	})
}

// Slow is an update rule of one's own.
type Slow struct {
	// Share is the learning rate.
	Share float64 `yaml:"share" default:"0.1" above:"0" max:"1"`
}

// Rule is the rule.
func (s *Slow) Rule() optim.Optimizer { return optim.SGD{LR: float32(s.Share)} }

// withMine is everything of monolith and these three: a line each.
func withMine() job.Components {
	set := components.All()
	set.Sources = append(set.Sources, component.Source{Name: "semicolons", Doc: "reads records that a semicolon ends.", New: func() component.SourceConfig { return &Semicolons{} }})
	set.Models = append(set.Models, component.Model{Name: "linear", Doc: "a sum of weights.", New: func() component.ModelConfig { return &Linear{} }})
	set.Optimizers = append(set.Optimizers, component.Optimizer{Name: "slow", Doc: "a slow one.", New: func() component.OptimizerConfig { return &Slow{} }})
	return set
}

// A program trains its own model, with its own update rule, on a format of its own. Sections, bounds and faults come with
// the structs' tags.
func ExampleComponents() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // an example's leftovers
	data := filepath.Join(dir, "data")
	if err := os.WriteFile(data, []byte("1,5,1;2,5,0;1,6,1;2,6,0;1,7,1;2,7,0"), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	load := func(set ...string) (*job.Config, error) {
		text := `
version: 1
source: {semicolons: {files: [` + data + `]}}
parse: {columns: [user, item, click], features: [{name: user}, {name: item}], label: click}
model: {linear: {l2: 0.01}}
optimizer: {bias: slow}
train: {batch: 2}
epochs: 20
`
		return job.Decode([]byte(text), "mine.yaml", job.LoadOptions{Set: append(set, "dir="+filepath.Join(dir, "run")), Components: withMine()})
	}
	_, err = load("source.semicolons.max_bytes=0", "model.linear.l3=1", "optimizer.dense=slowly")
	fmt.Println(err)
	cfg, err := load("eval.source.semicolons.files=" + data)
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := job.Run(context.Background(), cfg, job.RunOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Examples, "examples, AUC", result.Metrics["auc"])
	// Output:
	// 3 faults in the job:
	//   --set model.linear.l3: model.linear.l3: unknown key; did you mean "l2"?
	//   --set optimizer.dense: optimizer.dense: "slowly" is none of auto, adam, adagrad, sgd, ftrl, adagradw, lazy_adagradw, rowwise_adagrad, group_adagrad, group_ftrl, momentum, rmsprop, adadelta, amsgrad, adamw, dense_adam, adamom, lamb, shampoo, slow; did you mean "slow"?
	//   --set source.semicolons.max_bytes: source.semicolons.max_bytes: is 0, must be at least 1
	// 120 examples, AUC 1
}
