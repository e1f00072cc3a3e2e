package components

import (
	"errors"

	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/zoo"
)

// Regularisation are the options all models share.
type Regularisation struct {
	// BiasL2 adds BiasL2·w to the gradient of each linear weight a batch touches.
	BiasL2 float64 `yaml:"bias_l2" default:"0" min:"0"`
	// DenseL2 adds DenseL2·w to the gradient of each dense weight.
	DenseL2 float64 `yaml:"dense_l2" default:"0" min:"0"`
	// ClipNorm scales the gradients of a batch down to this global norm; 0: never.
	ClipNorm float64 `yaml:"clip_norm" default:"0" min:"0"`
}

// Embedding are the options of models with embedding vectors.
type Embedding struct {
	// Dim is the number of floats of an embedding vector. Memory and time grow with it.
	Dim int `yaml:"dim" min:"1" max:"4096"`
	// EmbeddingInit is how a vector begins that was never updated.
	EmbeddingInit component.EmbeddingInit `yaml:"embedding_init"`
	// EmbeddingL2 adds EmbeddingL2·w to the gradient of each embedding vector a batch touches.
	EmbeddingL2 float64 `yaml:"embedding_l2" default:"0" min:"0"`
}

// Defaults implements [conf.Defaulted].
func (*Embedding) Defaults() map[string]string {
	return map[string]string{"dim": written(zoo.Config{}.WithDefaults().Dim), "embedding_init": uniform(zoo.DefaultSpread)}
}

// uniform is how a section has new vectors drawn from minus spread to spread.
func uniform(spread float64) string { return "{uniform: " + written(spread) + "}" }

// Interaction is the option of models with a factorization machine.
type Interaction struct {
	// Interactions chooses which vectors meet. With entries all of a row do, those of one feature too (Rendle, 2010: every
	// non-zero x). With fields a feature's vectors are pooled by its combiner first and only features meet. Where every
	// feature has one value a row, both are the same. An entry is weighed by its value (libfm), and under combiner: mean by
	// its share.
	Interactions string `yaml:"interactions" default:"entries" enum:"entries|fields"`
}

// MLP are the options of models with a multi-layer perceptron.
type MLP struct {
	// Hidden are the widths of the layers, from the input on; empty: none.
	Hidden []int `yaml:"hidden" min:"1" max:"65536"`
	// BatchNorm normalises each layer by its batch's mean and variance.
	BatchNorm bool `yaml:"batch_norm" default:"false"`
	// NormDecay is what a batch leaves of the moving statistics of batch_norm, which predictions are normalised by.
	NormDecay float64 `yaml:"norm_decay" default:"0.9" above:"0" max:"0.999999"`
	// NormMaxScale corrects what batch_norm normalises by the batch to what the moving statistics would have made of it, by this factor at most (batch renormalisation, Ioffe, 2017: up to 3); 0: not at all.
	NormMaxScale float64 `yaml:"norm_max_scale" default:"0" min:"0" max:"1000000"`
	// NormMaxShift is how far, in deviations, that correction shifts at most (up to 5); 0: it does not.
	NormMaxShift float64 `yaml:"norm_max_shift" default:"0" min:"0" max:"1000000"`
	// KernelNorm learns the length of each column of a layer's weights for itself, apart from its direction: steps along both do not disturb each other.
	KernelNorm bool `yaml:"kernel_norm" default:"false"`
	// KernelNormFixed has the lengths of kernel_norm be 1 and not learned.
	KernelNormFixed bool `yaml:"kernel_norm_fixed" default:"false"`
	// NoBias leaves the bias of each layer out.
	NoBias bool `yaml:"no_bias" default:"false"`
	// Dropout is the share of each layer's outputs that is set to 0 while training.
	Dropout float64 `yaml:"dropout" default:"0" min:"0" max:"0.99"`
	// Activation is the function behind each layer; auto: relu, and for din and dien prelu. docs/models.md has the formulas.
	Activation string `yaml:"activation" default:"auto" enum:"auto|relu|prelu|gelu|sigmoid|sigmoid2|softmax|linear|tanh|leaky_relu|elu|selu|softplus|softsign|swish|hard_sigmoid|thresholded_relu|exponential"`
}

// Defaults implements [conf.Defaulted].
func (*MLP) Defaults() map[string]string {
	return map[string]string{"hidden": written(zoo.Config{}.WithDefaults().Hidden)}
}

// settings are keys of a section that go into the settings of a model of the zoo.
type settings interface{ put(c *zoo.Config) }

// own are the keys that one model alone has.
type own func(c *zoo.Config)

func (f own) put(c *zoo.Config) { f(c) }

// build makes a model of the zoo of what every job has and the keys of its section.
func build(name string, in component.ModelInputs, keys ...settings) (model.Model, error) {
	for _, k := range keys {
		if m, ok := k.(*MLP); ok {
			if err := m.check(); err != nil {
				return nil, err
			}
		}
	}
	c := config(in, keys...)
	c.Name = name
	return zoo.New(c)
}

// config is a configuration with what every job has and some keys of a section.
func config(in component.ModelInputs, keys ...settings) zoo.Config {
	c := zoo.Config{
		Features: in.Features, Heads: in.Heads, Seed: in.Seed, BiasOptimizer: in.Bias, VecOptimizer: in.Sparse, DenseOptimizer: in.Dense,
		Tables: in.Tables,
	}
	for _, k := range keys {
		k.put(&c)
	}
	return c
}

func (r *Regularisation) put(c *zoo.Config) {
	c.BiasL2, c.DenseL2, c.ClipNorm = float32(r.BiasL2), float32(r.DenseL2), r.ClipNorm
}

func (e *Embedding) put(c *zoo.Config) {
	c.Dim, c.EmbeddingInit, c.EmbeddingL2 = e.Dim, e.EmbeddingInit.Init(), float32(e.EmbeddingL2)
}

func (i *Interaction) put(c *zoo.Config) {
	if c.Interactions = zoo.EntryInteractions; i.Interactions == "fields" {
		c.Interactions = zoo.FieldInteractions
	}
}

// check refuses settings that nothing reads.
func (m *MLP) check() error {
	if !m.BatchNorm && (float32(m.NormDecay) != graph.DefaultBatchNormDecay || m.NormMaxScale != 0 || m.NormMaxShift != 0) {
		return errors.New("norm_decay, norm_max_scale and norm_max_shift are settings of batch_norm, which is false")
	}
	if m.KernelNormFixed && !m.KernelNorm {
		return errors.New("kernel_norm_fixed is a setting of kernel_norm, which is false")
	}
	return nil
}

func (m *MLP) put(c *zoo.Config) {
	c.Norm = zoo.Norm{Decay: float32(m.NormDecay), MaxScale: float32(m.NormMaxScale), MaxShift: float32(m.NormMaxShift)}
	c.Hidden, c.KernelNorm, c.KernelNormFixed, c.BatchNorm, c.NoBias, c.Dropout = m.Hidden, m.KernelNorm, m.KernelNormFixed, m.BatchNorm, m.NoBias, m.Dropout
	if m.Activation != "auto" {
		c.Activation = m.Activation
	}
}
