package spec

import "github.com/monolith-go/monolith/internal/conf"

// Model is exactly one model. Short form: the name alone, as in `model: deepfm`.
type Model struct {
	// LR is logistic regression.
	LR *LRModel `yaml:"lr"`
	// FM is a factorization machine (Rendle, 2010).
	FM *FMModel `yaml:"fm"`
	// DeepFM is a factorization machine beside a multi-layer perceptron over shared embeddings (Guo et al., 2017).
	DeepFM *DeepFMModel `yaml:"deepfm"`
	// DCNv2 is a cross network beside a multi-layer perceptron (Wang et al., 2021).
	DCNv2 *DCNv2Model `yaml:"dcnv2"`
}

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
	Dim int `yaml:"dim" default:"16" min:"1" max:"4096"`
	// EmbeddingInit is how a vector begins that was never updated.
	EmbeddingInit EmbeddingInit `yaml:"embedding_init" default:"{uniform: 0.05}"`
	// EmbeddingL2 adds EmbeddingL2·w to the gradient of each embedding vector a batch touches.
	EmbeddingL2 float64 `yaml:"embedding_l2" default:"0" min:"0"`
}

// Interaction is the option of models with a factorization machine.
type Interaction struct {
	// Interactions says which vectors meet. With entries all of a row do, those of one feature too (Rendle, 2010: every
	// non-zero x). With fields a feature's vectors are pooled by its combiner first and only features meet. Where every
	// feature has one value a row, both are the same. An entry is weighed by its value (libfm), and under combiner: mean by
	// its share.
	Interactions string `yaml:"interactions" default:"entries" enum:"entries|fields"`
}

// EmbeddingInit is exactly one distribution of initial values.
type EmbeddingInit struct {
	// Normal draws from the normal distribution with mean 0 and this standard deviation.
	Normal *float64 `yaml:"normal" min:"0"`
	// Uniform draws from minus this to this.
	Uniform *float64 `yaml:"uniform" min:"0"`
}

// MLP are the options of models with a multi-layer perceptron.
type MLP struct {
	// Hidden are the widths of the layers, from the input on; empty: none.
	Hidden []int `yaml:"hidden" default:"128,64" min:"1" max:"65536"`
	// BatchNorm normalises each layer by its batch's mean and variance.
	BatchNorm bool `yaml:"batch_norm" default:"false"`
	// Dropout is the share of each layer's outputs that is set to 0 while training.
	Dropout float64 `yaml:"dropout" default:"0" min:"0" max:"0.99"`
}

// LRModel are the options of logistic regression.
type LRModel struct {
	Regularisation `yaml:",inline"`
}

// FMModel are the options of a factorization machine.
type FMModel struct {
	Embedding      `yaml:",inline"`
	Interaction    `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// DeepFMModel are the options of DeepFM.
type DeepFMModel struct {
	Embedding      `yaml:",inline"`
	Interaction    `yaml:",inline"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// DCNv2Model are the options of DCNv2.
type DCNv2Model struct {
	Embedding `yaml:",inline"`
	// CrossLayers is the number of cross layers: the highest degree of feature products less one.
	CrossLayers    int `yaml:"cross_layers" default:"3" min:"1" max:"32"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// ModelOptions are the options of whichever model was chosen; what it does not have is zero.
type ModelOptions struct {
	Embedding
	MLP
	Regularisation
	Interaction
	CrossLayers int
}

// Name is the chosen model: "lr", "fm", "deepfm" or "dcnv2"; empty when none is.
func (m *Model) Name() string { return conf.Chosen(m) }

// Options returns the options of the chosen model in one shape for all models.
func (m *Model) Options() ModelOptions {
	switch {
	case m.LR != nil:
		return ModelOptions{Regularisation: m.LR.Regularisation}
	case m.FM != nil:
		return ModelOptions{Embedding: m.FM.Embedding, Interaction: m.FM.Interaction, Regularisation: m.FM.Regularisation}
	case m.DeepFM != nil:
		return ModelOptions{
			Embedding: m.DeepFM.Embedding, Interaction: m.DeepFM.Interaction, MLP: m.DeepFM.MLP, Regularisation: m.DeepFM.Regularisation,
		}
	case m.DCNv2 != nil:
		return ModelOptions{
			Embedding: m.DCNv2.Embedding, MLP: m.DCNv2.MLP, Regularisation: m.DCNv2.Regularisation,
			CrossLayers: m.DCNv2.CrossLayers,
		}
	}
	return ModelOptions{}
}

func (*Model) OneOf()         {}
func (*EmbeddingInit) OneOf() {}
