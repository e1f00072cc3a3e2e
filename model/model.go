// Package model describes a ranking model to those who feed and train it: which features it wants, which parameters it
// has ([Model]), and how one batch goes forward and back ([Session]). The models themselves are in model/zoo, the graph
// and its differentiation in model/graph.
package model

import (
	"strconv"

	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/param"
)

// Kind describes how a feature's values reach the model.
type Kind uint8

// The kinds of features.
const (
	// Sparse features are fids, any number a row, in an order of their own.
	Sparse Kind = iota
	// Dense features are Dim numbers a row.
	Dense
)

// MaxDeviations is how many standard deviations from the mean the numbers of a standardised feature go at most; those
// beyond are cut.
const MaxDeviations = 10

// Feature is one input of a model.
type Feature struct {
	// Name is the column in the batch.
	Name string
	Kind Kind
	// Values is the column with the number that each fid of a sparse feature is weighed by; empty: all are 1.
	Values string
	// Dim is the width of a dense feature.
	Dim int
	// Decay, if not 0, has the model standardise a dense feature by running moments that are part of its parameters, and
	// is their decay from one batch to the next, in (0, 1). Values may then be NaN: missing.
	Decay float32
	// Table is the index in the layout of the table that a sparse feature is bound to. Features of one table share the rows
	// of equal fids.
	Table int
}

// Head is one output of a model with what it learns from.
type Head struct {
	// Name distinguishes the heads of a model.
	Name string `json:"name"`
	// Loss is the name of a loss of package loss: "cross_entropy", "squared" and so on.
	Loss string `json:"loss"`
	// Own, if not nil, is the loss itself, where it is none of package loss; Loss is then its name. A graph with such a head
	// cannot be written.
	Own *loss.Loss `json:"-"`
	// Labels are the columns that the loss reads: one that holds all that [loss.Loss.NumLabels] wants for Width outputs, or as
	// many columns. Empty: the batch's label column.
	Labels []string `json:"labels,omitempty"`
	// Width is the number of outputs a row. 0 means 1.
	Width int `json:"width"`
	// Weight multiplies the head's loss where the losses of heads are added up; above 0. 0 means 1.
	Weight float32 `json:"weight"`
	// SampleRate is the share of the negative examples that the data holds, in (0, 1]; the model's logit is that of all
	// examples, and the loss is taken of logit - ln SampleRate, which is the logit in the sampled data (He et al., 2014,
	// section 6.3; bytedance/monolith: LogitCorrection). For losses with Sampled set. 0 means 1.
	SampleRate float32 `json:"sample_rate"`
	// LogitClip, if above 0, is how near to 0 and 1 a probability may come for the loss, below 1/2: logits are cut to ±ln((1-LogitClip)/LogitClip), with the shift of a
	// sample rate, so that a row that is predicted beyond teaches nothing (bytedance/monolith: logit_clip_threshold). Predictions are as they are. For losses with Clipped set.
	LogitClip float32 `json:"logit_clip,omitempty"`
	// Settings are those of the loss: what it does not take is 0.
	loss.Settings
	// Mask is a column of booleans, false where a row has no label for this head: the row then adds nothing to the head's
	// loss and is still one of the rows it is divided by. Empty: all rows have one.
	Mask string `json:"mask,omitempty"`
	// Group is the key column whose values say which rows are a list, for losses with Ranks set. Empty: the batch is one.
	Group string `json:"group,omitempty"`
	// Metrics are the names of those that the head is measured by; empty: what suits the loss.
	Metrics []string `json:"metrics,omitempty"`
}

// FindLoss returns the head's loss. Errors: a name that package loss does not know.
func (h Head) FindLoss() (*loss.Loss, error) {
	if h.Own != nil {
		return h.Own, nil
	}
	return loss.Find(h.Loss)
}

// ClassLabels are the labels of the classes that a prediction tells apart, as text: "0" and "1" of a head of one probability, that of "1", and of a head that learns several
// classes the number of each, in the order of its predictions. nil: the head does not predict classes.
func (h Head) ClassLabels() []string {
	h = h.WithDefaults()
	l, err := h.FindLoss()
	n := h.Width
	switch {
	case err != nil:
		return nil
	case l.Link == loss.Sigmoid && h.Width == 1:
		n = 2
	case !l.Classes:
		return nil
	}
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(i)
	}
	return out
}

// Sampled reports whether the head learns from data with other shares of positive examples than it
// predicts for: SampleRate is below 1, or SampleBias is set.
func (h Head) Sampled() bool { return h.SampleRate != 0 && h.SampleRate != 1 || h.SampleBias }

// InData returns the probability that an example is positive in the data that the head learns from. p is
// the prediction, a probability among all examples. With SampleBias a positive is in the data as a
// negative too, so p becomes p/(1+p). With a SampleRate of r only that share of the negatives is there,
// so the odds become p/(1-p)/r. Both are what the loss is taken of, but for LogitClip. Compare metrics over that data
// with this, since its labels have these probabilities.
func (h Head) InData(p float32) float32 {
	x, rest := float64(p), 1-float64(p)
	if h.SampleBias {
		x, rest = x/(1+x), 1/(1+x)
	}
	if h.SampleRate != 0 {
		rest *= float64(h.SampleRate)
	}
	if !(x+rest > 0) {
		return p // NaN
	}
	return float32(x / (x + rest))
}

// WithDefaults returns a copy in which every zero field has its default.
func (h Head) WithDefaults() Head {
	if h.Width == 0 {
		h.Width = 1
	}
	if h.Weight == 0 {
		h.Weight = 1
	}
	if h.SampleRate == 0 {
		h.SampleRate = 1
	}
	h.Settings = h.Settings.WithDefaults(h.Loss)
	return h
}

// Model is an immutable description, safe to share between workers.
type Model interface {
	// String names the model with its settings in one canonical form.
	String() string
	// Layout describes the parameters.
	Layout() *param.Layout
	// Features lists the inputs; [Inputs] follows this order, sparse and dense each for themselves.
	Features() []Feature
	// Heads lists the outputs, at least one, with every default filled in; labels, predictions and losses follow this order.
	Heads() []Head
	// Marshal writes the model with all its settings, for graph.Unmarshal: what is read back gives the same bits. It fails
	// where a loss or an operator is the program's own; an update rule of the program's own is written by its name, and what is read back cannot be trained.
	Marshal() ([]byte, error)
	// NewSession makes a worker's own activations. Sessions share nothing that changes. threads is how many threads a session uses at most,
	// the caller's among them, at least 1; results have the same bits with any number.
	NewSession(threads int) Session
}

// Precise is a model whose products of matrices can be in another precision.
type Precise interface {
	Model
	// InPrecision returns the model with the operands of its products rounded to a format, in training and in predictions alike, so that what is
	// measured is what was trained. Its name and its written form say so, but for float32, where nothing is rounded. Parameters, their
	// gradients and sums stay float32. Errors: a format that the model has no products in.
	InPrecision(p param.Precision) (Model, error)
}

// Intercepted is a model that knows which of its parameters are the intercepts of its heads.
type Intercepted interface {
	Model
	// WithIntercepts returns the model with [optim.Intercept] as the rule of those that are learnt by cross entropy or squares.
	WithIntercepts() Model
}

// Ragged is a sparse feature of a batch in CSR form: row r holds Index[Offsets[r]:Offsets[r+1]], each an index into the
// batch's distinct fids of the feature's table.
type Ragged struct {
	Offsets []int32 // [rows+1]
	Index   []int32 // [nnz]
	// Values [nnz] weigh the entries, the xᵢ of a linear model's and a factorization machine's equations; nil: all are 1.
	Values []float32
	// Own reports that none of its indices is one of a feature before it, so that two features that both own theirs have none in common.
	Own bool
}

// Inputs is one batch as a model sees it. The slices belong to the caller and must not change during a call.
type Inputs struct {
	NumRows int
	// Sparse has one entry for each sparse feature, Dense one for each dense feature ([rows, Dim], row-major).
	Sparse []Ragged
	Dense  [][]float32
	// Values[t] holds the weights of the batch's distinct fids of table t, [n, Tables[t].Dim()].
	Values [][]float32
	// Labels[h] are those of head h, [rows, columns of the head], in the range that its loss accepts. Only Step reads them,
	// Mask, Groups and Weights.
	Labels [][]float32
	// Mask[h] [rows] is false in the rows that have no label for head h; nil, or nil for a head: all have one.
	Mask [][]bool
	// Groups[h] [rows] numbers the group that each row is in for head h, from 0 in the order of their first rows; nil, or nil for a head:
	// all are in one.
	Groups [][]int32
	// Weights [rows] are example weights, nil for 1.
	Weights []float32
	// Examples is how many examples the model was trained on before the batch; Step reads it where a segment's compressor goes by it.
	Examples int64
}

// Session runs one batch at a time with buffers that are reused: after warm-up a step allocates nothing. It is not for
// concurrent use.
type Session interface {
	// SetDense says where the dense parameters are, [Layout.DenseLen] values. The session reads them there in each call, so that the
	// caller may change them between calls.
	SetDense(values []float32)
	// Predict runs the model as it serves: no dropout, moving statistics. It returns one entry a head, [rows, Width] in
	// the head's own unit (a probability, a value), valid until the next call.
	Predict(in *Inputs) [][]float32
	// Step runs the model as it trains (dropout masks are a function of seed alone) and back. It returns, for each head,
	// the predictions of the training pass and the batch's loss: Σ weight·loss of the row / rows, without regularisation
	// and without the head's own weight, so that a row of weight k counts like k rows. What is differentiated is
	// Σ Head.Weight·loss over the heads. Afterwards Grads and DenseGrad are valid until the next call, as are the results.
	Step(in *Inputs, seed uint64) (predictions [][]float32, losses []float64)
	// Grads returns, for each table, the gradients of that sum with respect to Inputs.Values, summed in row order.
	Grads() [][]float32
	// DenseGrad returns the gradients of all dense tensors one after the other.
	DenseGrad() []float32
	// TakeGrads gives what Grads and DenseGrad return to the caller, who gives other slices for them, of any length, to be used by the next
	// step. Until then the session has no gradients.
	TakeGrads(tables [][]float32, dense []float32) (ofTables [][]float32, ofDense []float32)
	// PredictsAsTrained reports whether Predict and the predictions of Step agree bit for bit, because nothing in the
	// model behaves differently in training; progressive validation then needs no pass of its own.
	PredictsAsTrained() bool
	// Close ends the session's threads. It may be called more than once, and nothing else afterwards.
	Close()
}

// Limited is a [Session] whose threads may rest while others need the processors.
type Limited interface {
	// Limit makes the session do on the caller's thread alone what it begins while alone reports true, which it asks before each operator that several threads would share. Results have the same bits.
	// alone must be quick, and may be called by the thread that calls the session only.
	Limit(alone func() bool)
}

// Keeper is a [Session] that may keep what it makes of the dense parameters.
type Keeper interface {
	// KeepDense says that the values of SetDense do not change until SetDense is called again, with the same ones or others. What the session makes of them is made once then: products of few rows take
	// a third to a fifth of the time. Results have the same bits.
	KeepDense()
}

// Logits is a [Session] that gives what its heads' links were applied to.
type Logits interface {
	// Logits returns, for each head, [rows, Width]: what the predictions of the last Predict are of, before the link of the head's loss. For
	// a probability that is its logit, for a head whose link is the identity the prediction itself. It is valid until the next call
	// of another method.
	Logits() [][]float32
}
