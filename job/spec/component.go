package spec

import (
	"reflect"
	"slices"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model/blocks"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/metric"
)

// Source is exactly one place examples come from. Short form: the name alone, as in `source: synthetic`.
type Source struct {
	conf.Pick[component.SourceConfig]
}

// SourceOf is a source made in Go: a name of the list of sources, and its section.
func SourceOf(name string, section component.SourceConfig) Source {
	return Source{conf.Picked(name, section)}
}

// Bounded reports whether the source ends.
func (s *Source) Bounded() bool { return s.Value() == nil || s.Value().Bounded() }

// Stream returns the name of a source that keeps track of its positions itself; ok is false for others.
func (s *Source) Stream() (name string, ok bool) {
	if k, ok := s.Value().(component.Stream); ok {
		return k.StreamName(), true
	}
	return "", false
}

// FileList returns the patterns of a file source, nil for others.
func (s *Source) FileList() []string {
	if f, ok := s.Value().(component.Files); ok {
		return f.FileList()
	}
	return nil
}

// Columnar reports whether the source has columns rather than records.
func (s *Source) Columnar() bool {
	_, ok := s.Value().(component.Columns)
	return ok
}

// NumExamples is how many examples there are; 0: nobody knows.
func (s *Source) NumExamples() int64 {
	if n, ok := s.Value().(component.Sized); ok {
		return n.NumExamples()
	}
	return 0
}

// formats lists what the records can be.
func (s *Source) formats() []string {
	if s.Value() == nil {
		return nil
	}
	return s.Value().Formats()
}

// usualFormat is the format the records have without a setting, or "".
func (s *Source) usualFormat() string {
	if s.Value() == nil {
		return ""
	}
	return s.Value().UsualFormat()
}

func (s *Source) selfDescribing() bool {
	_, ok := s.Value().(component.SelfDescribing)
	return ok
}

// Model is exactly one model. Short form: the name alone, as in `model: deepfm`.
type Model struct {
	conf.Pick[component.ModelConfig]
}

// ModelOf is a model made in Go: a name of the list of models, and its section.
func ModelOf(name string, section component.ModelConfig) Model {
	return Model{conf.Picked(name, section)}
}

// Stage is exactly one stage between parse and batch. Short form: the name alone.
type Stage struct {
	conf.Pick[component.StageConfig]
	// Phases are when the stage runs. train: in training and backfill. eval: in every evaluation, of eval.source and
	// eval.holdout, and in `monolith model insight`. predict: in `monolith predict`, and for an export's warm-up requests.
	// Give a stage that makes features all three. Give one that drops training examples [train]: evaluation and
	// predictions then keep every row. If a stage runs in train and not in eval, evaluation takes the rows of
	// eval.holdout as not sampled (heads.sample_rate). Servers run no stages. Neither do `monolith inspect` and
	// `monolith check --sample`.
	Phases []string `yaml:"phases" default:"[train, eval, predict]" enum:"train|eval|predict"`
}

// Phase is what a job reads a source for.
type Phase string

// The phases of a stage.
const (
	PhaseTrain   Phase = "train"
	PhaseEval    Phase = "eval"
	PhasePredict Phase = "predict"
)

// RunsIn reports whether the stage runs in a phase. A stage made in Go without phases runs in all.
func (s *Stage) RunsIn(p Phase) bool {
	return len(s.Phases) == 0 || slices.Contains(s.Phases, string(p))
}

// HoldoutIsSampled reports whether the examples of eval.holdout are sampled like the training examples
// (heads.sample_rate). They are not if a stage runs in training and not in evaluation: it does the sampling.
func (c *Config) HoldoutIsSampled() bool {
	trainOnly := slices.ContainsFunc(c.Stages, func(s Stage) bool { return s.RunsIn(PhaseTrain) && !s.RunsIn(PhaseEval) })
	return c.Eval.Holdout != nil && !trainOnly
}

// Table is an embedding table of its own. What it leaves out is as the model and the optimizers say.
type Table struct {
	// Name is what features call it (parse.features, table).
	Name string `yaml:"name" required:"true"`
	// Dim is the number of floats of an embedding vector. Vectors that meet in fm and deepfm are of one width.
	Dim *int `yaml:"dim" min:"1" max:"4096"`
	// EmbeddingInit is how a vector begins that was never updated.
	EmbeddingInit *component.EmbeddingInit `yaml:"embedding_init"`
	// EmbeddingL2 adds EmbeddingL2·w to the gradient of each embedding vector a batch touches.
	EmbeddingL2 *float64 `yaml:"embedding_l2" min:"0"`
	// BiasL2 adds BiasL2·w to the gradient of each linear weight a batch touches.
	BiasL2 *float64 `yaml:"bias_l2" min:"0"`
	// Sparse is the rule of embedding vectors.
	Sparse *Optimizer `yaml:"sparse"`
	// Bias is the rule of the linear weight of each id.
	Bias *Optimizer `yaml:"bias"`
	// DelayCompensation makes up for late gradients. Default: optimizer.delay_compensation.
	DelayCompensation *RowDelays `yaml:"delay_compensation"`
	// Clip are the bounds of its gradients. Default: optimizer.clip.
	Clip *Clips `yaml:"clip"`
	// Schedules are the factors on its rates. Default: optimizer.schedules.
	Schedules *RowSchedules `yaml:"schedules"`
	// Compress is what the model reads of its vectors. Default: optimizer.compress.
	Compress *Compress `yaml:"compress"`
	// Storage is the format in which shards keep the table's embedding vectors. Default: ps.storage.
	Storage *string `yaml:"storage" enum:"float32|bf16|fp16"`
}

// Optimizer is exactly one update rule. Short form: the name alone, as in `sparse: adagrad`.
type Optimizer struct {
	conf.Pick[component.OptimizerConfig]
}

// DeadLetter is exactly one place for bad records.
type DeadLetter struct {
	conf.Pick[component.DeadLetterConfig]
}

// schema is what a job may hold that names components of a set.
func schema(set component.Set) *conf.Schema {
	return conf.New[Config](conf.Options{
		Noun: "job", Empty: "; a job begins with `version: 1`", EnvPrefix: "MONOLITH_", Fixed: []string{"version"},
		Reserved: []string{"MONOLITH_DATA", "MONOLITH_REQUIRE"},
		Words: map[string][]string{
			"activations": layer.Activations(), "cell_activations": names(graph.Candidates(), func(f graph.Function) string { return string(f) }),
			"losses": names(set.Losses, func(l loss.Loss) string { return l.Name }), "metrics": names(set.Metrics, func(m metric.Metric) string { return m.Name }),
		},
		Alternatives: map[reflect.Type][]conf.Alternative{
			reflect.TypeFor[Source]():                   alternatives(set.Sources, func(s component.Source) (string, string, any) { return s.Name, s.Doc, s.New() }),
			reflect.TypeFor[Stage]():                    alternatives(set.Stages, func(s component.Stage) (string, string, any) { return s.Name, s.Doc, s.New() }),
			reflect.TypeFor[Model]():                    alternatives(set.Models, func(m component.Model) (string, string, any) { return m.Name, m.Doc, m.New() }),
			reflect.TypeFor[component.BlockKind]():      alternatives(set.Blocks, func(b blocks.Listed) (string, string, any) { return b.Name, b.Doc, b.New() }),
			reflect.TypeFor[Optimizer]():                alternatives(set.Optimizers, func(o component.Optimizer) (string, string, any) { return o.Name, o.Doc, o.New() }),
			reflect.TypeFor[component.BlockOptimizer](): alternatives(set.Optimizers, func(o component.Optimizer) (string, string, any) { return o.Name, o.Doc, o.New() }),
			reflect.TypeFor[DeadLetter]():               alternatives(set.DeadLetters, func(d component.DeadLetter) (string, string, any) { return d.Name, d.Doc, d.New() }),
			reflect.TypeFor[OutputTo]():                 alternatives(set.Sinks, func(s component.Sink) (string, string, any) { return s.Name, s.Doc, s.New() }),
		},
	})
}

func names[T any](list []T, of func(T) string) (out []string) {
	for _, x := range list {
		out = append(out, of(x))
	}
	return out
}

func alternatives[T any](list []T, of func(T) (name, doc string, section any)) (out []conf.Alternative) {
	for _, c := range list {
		name, doc, _ := of(c)
		out = append(out, conf.Alternative{Name: name, Doc: doc, New: func() any {
			_, _, section := of(c)
			return section
		}})
	}
	return out
}
