// Package zoo builds the well-known ranking models from a few settings: logistic regression, factorization machines,
// DeepFM and DCN-v2.
package zoo

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// The models of the zoo.
const (
	// LR is logistic regression: σ(b + Σ weights of the fids + Σ w·x).
	LR = "lr"
	// FM is a factorization machine of second order (Rendle, 2010, equation 1) over all entries of a row.
	FM = "fm"
	// DeepFM adds a multilayer perceptron over the same vectors to FM (Guo et al., 2017, equation 1).
	DeepFM = "deepfm"
	// DCNv2 is a cross network beside a multilayer perceptron (Wang et al., 2021, the parallel structure of figure 1b).
	DCNv2 = "dcnv2"
)

// Names lists the models of the zoo.
func Names() []string { return []string{LR, FM, DeepFM, DCNv2} }

// Interactions says which vectors meet in the second-order term of FM and DeepFM.
type Interactions uint8

// The ways.
const (
	// EntryInteractions lets all entries of a row meet, those of one feature too (Rendle, 2010, equation 1: every xᵢ that is
	// not zero). It is the zero value.
	EntryInteractions Interactions = iota
	// FieldInteractions pools each feature first, so that only features meet.
	FieldInteractions
)

// maxWidth bounds every dimension of a model, so that a slip of the finger is a fault and not a machine out of memory.
const maxWidth = 1 << 16

// Config are the settings of a model. A zero field has the default its comment says; settings a model has no use for
// are ignored.
type Config struct {
	// Name is one of [Names].
	Name string
	// Features are the inputs, at least one.
	Features []model.Feature
	// Seed makes the initial values of all parameters.
	Seed uint64
	// Dim is the width of the embedding vectors (all but LR). Default 16.
	Dim int
	// Interactions says what meets in the second-order term (FM, DeepFM). Default [EntryInteractions]; where every feature
	// has at most one entry a row, both are the same model.
	Interactions Interactions
	// Hidden are the widths of the perceptron's layers (DeepFM, DCNv2). Default 128, 64.
	Hidden []int
	// BatchNorm normalises before each activation of the perceptron. Default off: batch statistics couple the rows of a
	// batch, and a prediction needs a pass of its own.
	BatchNorm bool
	// Dropout is the rate after each activation of the perceptron, in [0, 1). Default 0.
	Dropout float64
	// CrossLayers is the number of cross layers (DCNv2). Default 3.
	CrossLayers int

	// EmbeddingInit draws new vectors. Default uniform in ±0.05 (bytedance/monolith: RandomUniformInitializer). Biases
	// begin at 0.
	EmbeddingInit param.Init
	// EmbeddingL2 and BiasL2 are the L2 factors of the rows a batch touches (see [param.Segment]); DenseL2 is that of
	// weight matrices and vectors of dense features. Default 0.
	EmbeddingL2, BiasL2, DenseL2 float32
	// BiasOptimizer updates the weights of single fids. Default [DefaultBiasOptimizer].
	BiasOptimizer optim.Optimizer
	// VecOptimizer updates embedding vectors. Default [DefaultVecOptimizer].
	VecOptimizer optim.Optimizer
	// DenseOptimizer updates everything else. Default [DefaultDenseOptimizer].
	DenseOptimizer optim.Optimizer
	// ClipNorm scales the gradients of a step down to this global norm, row and dense gradients together. Default 0: off.
	ClipNorm float64
}

// DefaultBiasOptimizer is bytedance/monolith's rule for the bias slice (FeatureSlotConfig in
// native_training/feature.py), with settings for a loss that is a mean: upstream's losses are sums over the batch, so
// their gradients are as many times larger as a batch has rows, and β = 1 would swallow ours.
func DefaultBiasOptimizer() optim.Optimizer {
	return optim.FTRL{LR: 0.05, InitialAccumulator: 1e-6}
}

// DefaultVecOptimizer is bytedance/monolith's rule for the vec slice, with an initial accumulator for a loss that is a
// mean (see [DefaultBiasOptimizer]).
func DefaultVecOptimizer() optim.Optimizer {
	return optim.Adagrad{LR: 0.05, InitialAccumulator: 1e-6}
}

// DefaultDenseOptimizer is Adam with the settings of its paper.
func DefaultDenseOptimizer() optim.Optimizer {
	return optim.Adam{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
}

// WithDefaults returns a copy in which every zero field has its default.
func (c Config) WithDefaults() Config {
	if c.Dim == 0 {
		c.Dim = 16
	}
	if len(c.Hidden) == 0 {
		c.Hidden = []int{128, 64}
	}
	if c.CrossLayers == 0 {
		c.CrossLayers = 3
	}
	if c.EmbeddingInit == param.Zeros() {
		c.EmbeddingInit = param.Uniform(-0.05, 0.05)
	}
	if c.BiasOptimizer == nil {
		c.BiasOptimizer = DefaultBiasOptimizer()
	}
	if c.VecOptimizer == nil {
		c.VecOptimizer = DefaultVecOptimizer()
	}
	if c.DenseOptimizer == nil {
		c.DenseOptimizer = DefaultDenseOptimizer()
	}
	return c
}

// Validate reports every fault at once; it looks at the values after defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf("zoo: "+format, args...)) }
	if !slices.Contains(Names(), c.Name) {
		bad("model %q is unknown%s", c.Name, nearest.Suggest(c.Name, Names()))
	}
	width := func(what string, v int) {
		if v < 1 || v > maxWidth {
			bad("%s %d is not between 1 and %d", what, v, maxWidth)
		}
	}
	c.validateFeatures(bad, width)
	width("dim", c.Dim)
	if c.Interactions > FieldInteractions {
		bad("interactions %d are unknown", c.Interactions)
	}
	if c.Name == FM && c.numVectors() == 1 && (c.Interactions == FieldInteractions || c.Features[0].Kind == model.Dense) {
		bad("fm of one field has no two vectors that meet and would be logistic regression; let its entries interact, add features, or use lr")
	}
	for i, h := range c.Hidden {
		width(fmt.Sprintf("hidden layer %d", i), h)
	}
	width("cross_layers", c.CrossLayers)
	if !(c.Dropout >= 0 && c.Dropout < 1) {
		bad("dropout %v is not in [0, 1)", c.Dropout)
	}
	notNegative := func(what string, v float64) {
		if !(v >= 0) || math.IsInf(v, 0) {
			bad("%s %v is not a number from 0 up", what, v)
		}
	}
	notNegative("embedding_l2", float64(c.EmbeddingL2))
	notNegative("bias_l2", float64(c.BiasL2))
	notNegative("dense_l2", float64(c.DenseL2))
	notNegative("clip_norm", c.ClipNorm)
	for _, o := range []struct {
		what string
		rule optim.Optimizer
	}{{"bias", c.BiasOptimizer}, {"vec", c.VecOptimizer}, {"dense", c.DenseOptimizer}} {
		if err := optim.Validate(o.rule); err != nil {
			bad("%s optimizer: %w", o.what, err)
		}
	}
	return errors.Join(faults...)
}

func (c Config) validateFeatures(bad func(string, ...any), width func(string, int)) {
	if len(c.Features) == 0 {
		bad("no features")
	}
	seen := map[string]bool{}
	for i, f := range c.Features {
		if f.Name == "" {
			bad("feature %d has no name", i)
		} else if seen[f.Name] {
			bad("feature %q is listed twice", f.Name)
		}
		seen[f.Name] = true
		switch f.Kind {
		case model.Sparse:
			if f.Combiner != model.Sum && f.Combiner != model.Mean {
				bad("feature %q: combiner %d is unknown", f.Name, f.Combiner)
			}
		case model.Dense:
			if f.Values != "" {
				bad("feature %q is dense and has no entries to weigh by %q", f.Name, f.Values)
			}
			width(fmt.Sprintf("feature %q: dim", f.Name), f.Dim)
			if !(f.Decay >= 0 && f.Decay < 1) {
				bad("feature %q: decay %v of its moments is not in (0, 1)", f.Name, f.Decay)
			}
		default:
			bad("feature %q: kind %d is unknown", f.Name, f.Kind)
		}
	}
}

// String renders the settings that the model uses in one canonical form: two configurations with the same String build
// the same model.
func (c Config) String() string {
	c = c.WithDefaults()
	var b strings.Builder
	fmt.Fprintf(&b, "%s(seed=%d", c.Name, c.Seed)
	if c.usesVec() {
		fmt.Fprintf(&b, ",dim=%d,init=%s,embedding_l2=%g,vec=%s", c.Dim, c.EmbeddingInit, c.EmbeddingL2, c.VecOptimizer)
	}
	if (c.Name == FM || c.Name == DeepFM) && c.Interactions == FieldInteractions {
		b.WriteString(",interactions=fields")
	}
	if c.usesBias() {
		fmt.Fprintf(&b, ",bias_l2=%g,bias=%s", c.BiasL2, c.BiasOptimizer)
	}
	if c.usesMLP() {
		fmt.Fprintf(&b, ",hidden=%v,batch_norm=%t,dropout=%g", c.Hidden, c.BatchNorm, c.Dropout)
	}
	if c.Name == DCNv2 {
		fmt.Fprintf(&b, ",cross_layers=%d", c.CrossLayers)
	}
	fmt.Fprintf(&b, ",dense_l2=%g,dense=%s,clip_norm=%g,features=", c.DenseL2, c.DenseOptimizer, c.ClipNorm)
	for i, f := range c.Features {
		if i > 0 {
			b.WriteByte(' ')
		}
		switch {
		case f.Kind == model.Dense:
			fmt.Fprintf(&b, "%q:dense[%d]", f.Name, f.Dim)
			if f.Decay != 0 {
				fmt.Fprintf(&b, "/ema(%g)", f.Decay)
			}
		case f.Combiner == model.Mean:
			fmt.Fprintf(&b, "%q:mean", f.Name)
		default:
			fmt.Fprintf(&b, "%q:sum", f.Name)
		}
		if f.Values != "" {
			fmt.Fprintf(&b, "*%q", f.Values)
		}
	}
	b.WriteByte(')')
	return b.String()
}

// numVectors is how many vectors a row has at least, where no feature is empty.
func (c Config) numVectors() int {
	n := 0
	for _, f := range c.Features {
		if f.Kind == model.Dense {
			n += f.Dim
		} else {
			n++
		}
	}
	return n
}

func (c Config) usesVec() bool  { return c.Name != LR }
func (c Config) usesBias() bool { return c.Name != DCNv2 }
func (c Config) usesMLP() bool  { return c.Name == DeepFM || c.Name == DCNv2 }
