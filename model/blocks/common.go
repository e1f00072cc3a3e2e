package blocks

import (
	"cmp"
	"slices"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
)

// activation is the function of a name, of those of package layer. An unknown name is a fault.
func (s *Site) activation(name string) layer.Activation {
	f := layer.ActivationNamed(name)
	if f == nil {
		s.Fault("activation %q is unknown%s", name, nearest.Suggest(name, layer.Activations()))
		f = layer.ActivationNamed("linear")
	}
	return f
}

// Layers are the settings of a multi-layer perceptron.
type Layers struct {
	// Hidden are the widths of the layers, from the input on.
	Hidden []int `yaml:"hidden" required:"true" min:"1" max:"65536"`
	// Activation is behind each layer; docs/models.md has the formulas.
	Activation string `yaml:"activation" default:"relu" enum:"@activations"`
	// Activations are those of the layers one by one, in place of activation: as many as hidden, such as [relu, linear].
	Activations []string `yaml:"activations" enum:"@activations"`
	// BatchNorm normalises each layer by its batch's mean and variance, before the activation.
	BatchNorm bool `yaml:"batch_norm" default:"false"`
	// NormDecay is what a batch leaves of the moving statistics of batch_norm, which predictions are normalised by.
	NormDecay float64 `yaml:"norm_decay" default:"0.9" above:"0" max:"0.999999"`
	// NormMaxScale is the max_scale of kind: batch_norm, for batch_norm; 0: there is no renormalisation.
	NormMaxScale float64 `yaml:"norm_max_scale" default:"0" min:"0" max:"1000000"`
	// NormMaxShift is its max_shift.
	NormMaxShift float64 `yaml:"norm_max_shift" default:"0" min:"0" max:"1000000"`
	// NoBias leaves the bias of each layer out.
	NoBias bool `yaml:"no_bias" default:"false"`
	// KernelNorm learns the length of each column of a layer's weights for itself, apart from its direction; not over entries.
	KernelNorm bool `yaml:"kernel_norm" default:"false"`
	// KernelNormFixed has the lengths of kernel_norm be 1 and not learned.
	KernelNormFixed bool `yaml:"kernel_norm_fixed" default:"false"`
	// Dropout is the share of each layer's outputs that is set to 0 while training.
	Dropout float64 `yaml:"dropout" default:"0" min:"0" max:"0.99"`
}

func (l *Layers) config(s *Site) layer.MLPConfig {
	norm := graph.BatchNorm{
		Decay:    float32(cmp.Or(l.NormDecay, graph.DefaultBatchNormDecay)),
		Training: graph.BatchNormTraining{MaxScale: float32(l.NormMaxScale), MaxShift: float32(l.NormMaxShift)},
	}
	if !l.BatchNorm && norm != (graph.BatchNorm{Decay: graph.DefaultBatchNormDecay}) {
		s.Fault("norm_decay, norm_max_scale and norm_max_shift are settings of batch_norm, which is false")
	}
	s.fixedLengths(l.KernelNorm, l.KernelNormFixed)
	if n := len(l.Activations); n > 0 && n != len(l.Hidden) {
		s.Fault("activations are %d, and hidden has %d layers", n, len(l.Hidden))
		l = &Layers{Hidden: l.Hidden}
	}
	var ofLayers []layer.Activation
	for _, name := range l.Activations {
		ofLayers = append(ofLayers, s.activation(name))
	}
	return layer.MLPConfig{
		Hidden: l.Hidden, Activation: s.activation(cmp.Or(l.Activation, "relu")), Activations: ofLayers, KernelNorm: l.KernelNorm, FixedLengths: l.KernelNormFixed, BatchNorm: l.BatchNorm, Norm: norm, NoBias: l.NoBias, Dropout: l.Dropout, Rule: s.Rule,
	}
}

// Dense is [layer.MLPLayer] over all inputs side by side: [rows, n] -> [rows, units], or over entries.
type Dense struct {
	// Units is how many numbers it gives.
	Units int `yaml:"units" short:"true" required:"true" min:"1" max:"65536"`
	// Activation is behind it; linear: none.
	Activation string `yaml:"activation" default:"linear" enum:"@activations"`
	// NoBias leaves the bias out.
	NoBias bool `yaml:"no_bias" default:"false"`
	// KernelNorm learns the length of each column of the weights for itself, apart from its direction; not over entries.
	KernelNorm bool `yaml:"kernel_norm" default:"false"`
	// KernelNormFixed has the lengths of kernel_norm be 1 and not learned.
	KernelNormFixed bool `yaml:"kernel_norm_fixed" default:"false"`
}

// Wants implements [Kind].
func (*Dense) Wants() []Input { return anyValues() }

// Build implements [Kind].
func (k *Dense) Build(s *Site) []Value {
	s.fixedLengths(k.KernelNorm, k.KernelNormFixed)
	cfg := layer.MLPConfig{Activation: s.activation(cmp.Or(k.Activation, "linear")), NoBias: k.NoBias, KernelNorm: k.KernelNorm, FixedLengths: k.KernelNormFixed, Rule: s.Rule}
	return row(layer.MLPLayer(s.Builder, s.Name, s.Join().Node, k.Units, cfg))
}

// fixedLengths wants kernel_norm where its lengths are fixed.
func (s *Site) fixedLengths(norm, fixed bool) {
	if fixed && !norm {
		s.Fault("kernel_norm_fixed is a setting of kernel_norm, which is false")
	}
}

// Bias adds a number to each column: [rows, n] -> the same, or over entries. Its tensor is "NAME.bias" [n].
type Bias struct {
	// Value is what each begins as.
	Value float64 `yaml:"value" short:"true" default:"0"`
}

// Wants implements [Kind].
func (*Bias) Wants() []Input { return []Input{{Name: "value", Form: Any}} }

// Build implements [Kind].
func (k *Bias) Build(s *Site) []Value {
	x := s.Inputs[0].Node
	bias := s.Tensor(param.Tensor{Name: s.Name + ".bias", Shape: []int{x.Dim()}, Init: param.Constant(float32(k.Value)), Optimizer: s.Rule.Optimizer})
	return s.like(s.AddBias(x, bias))
}

// MLP is [layer.MLP] over all inputs side by side: [rows, n] -> [rows, last of hidden], or over entries.
type MLP struct {
	Layers `yaml:",inline"`
	// Out is the width of a last layer without an activation, whose tensors are called "NAME.out"; 0: there is none.
	Out int `yaml:"out" default:"0" min:"0" max:"65536"`
}

// Wants implements [Kind].
func (*MLP) Wants() []Input { return anyValues() }

// Build implements [Kind].
func (k *MLP) Build(s *Site) []Value {
	x := layer.MLP(s.Builder, s.Name, s.Join().Node, k.config(s))
	if k.Out > 0 {
		x = layer.Dense(s.Builder, s.Name+".out", x, k.Out, s.Rule)
	}
	return row(x)
}

// Residual is [layer.Residual] over all inputs side by side: [rows, n] -> the same, or over entries.
type Residual struct {
	Layers `yaml:",inline"`
	// Units is how many units follow each other, each with such a perceptron.
	Units int `yaml:"units" default:"1" min:"1" max:"256"`
}

// Wants implements [Kind].
func (*Residual) Wants() []Input { return anyValues() }

// Build implements [Kind].
func (k *Residual) Build(s *Site) []Value {
	x := s.Join()
	x.Node = layer.Residual(s.Builder, s.Name, x.Node, k.Units, k.config(s))
	return []Value{x}
}

// Columns are some of the numbers of a row, or of each entry: [rows, n] -> [rows, to-from].
type Columns struct {
	// From is the first.
	From int `yaml:"from" default:"0" min:"0" max:"65536"`
	// To is the one behind the last.
	To int `yaml:"to" required:"true" min:"1" max:"65536"`
}

// Wants implements [Kind].
func (*Columns) Wants() []Input { return []Input{{Name: "value", Form: Any}} }

// Build implements [Kind].
func (k *Columns) Build(s *Site) []Value {
	x := s.Inputs[0].Node
	if k.From >= k.To || k.To > x.Dim() {
		s.Fault("columns %d to %d are none of the %s of its input", k.From, k.To, numbers(x.Dim()))
		return nil
	}
	return row(s.Columns(x, k.From, k.To))
}

// Activation is a function of each number.
type Activation struct {
	// Function is the function. sigmoid gives numbers from 0 to 1, softmax shares of 1 among the numbers of each row, or in each column among the entries of a row.
	Function string `yaml:"function" short:"true" required:"true" enum:"@activations"`
}

// Wants implements [Kind].
func (*Activation) Wants() []Input { return []Input{{Name: "value", Form: Any}} }

// Build implements [Kind].
func (k *Activation) Build(s *Site) []Value {
	return s.like(s.activation(k.Function)(s.Builder, s.Name, s.Inputs[0].Node, s.Rule))
}

// like is a value that is made of such vectors as the first input.
func (s *Site) like(n graph.Node) []Value { return []Value{{Node: n, Width: s.Inputs[0].Width}} }

// LayerNorm is [graph.Builder.LayerNorm]: [rows, n] -> the same. Its tensors are "NAME.gamma" and "NAME.beta" [n].
type LayerNorm struct {
	// Each is what is normalised: a row, or each vector that a row is made of.
	Each string `yaml:"each" short:"true" default:"row" enum:"row|vector"`
}

// Wants implements [Kind].
func (k *LayerNorm) Wants() []Input {
	if k.Each == "vector" {
		return []Input{{Name: "vectors", Form: Vectors}}
	}
	return []Input{{Name: "value", Form: Rows}}
}

// Build implements [Kind].
func (k *LayerNorm) Build(s *Site) []Value {
	return s.like(s.LayerNorm(s.Inputs[0].Node, graph.LayerNorm{Name: s.Name, Dim: s.Dim, Optimizer: s.Rule.Optimizer}))
}

// BatchNorm is [graph.Builder.BatchNorm]: [rows, n] -> the same.
type BatchNorm struct {
	// Decay is what a batch leaves of the moving statistics, which predictions are normalised by.
	Decay float64 `yaml:"decay" default:"0.9" above:"0" max:"0.999999"`
	// Epsilon is added to variances.
	Epsilon float64 `yaml:"epsilon" default:"0.00001" above:"0"`
	// Scale learns a factor for each column, behind.
	Scale bool `yaml:"scale" default:"true"`
	// Center learns a number to add to each column, behind.
	Center bool `yaml:"center" default:"true"`
	// Moving is the share of the moving statistics in what training normalises by; 1: as predictions do, 0: the batch's alone. It suits batches that are small, or of one user each.
	Moving float64 `yaml:"moving" default:"0" min:"0" max:"1"`
	// Constant takes the statistics for constants on the way back.
	Constant bool `yaml:"constant" default:"false"`
	// MaxScale and max_shift correct what is normalised by the batch to what the moving statistics would have made of it, by so much at most (batch renormalisation, Ioffe, 2017: up to 3 and 5);
	// 0: not at all.
	MaxScale float64 `yaml:"max_scale" default:"0" min:"0" max:"1000000"`
	// MaxShift is the furthest step, in deviations.
	MaxShift float64 `yaml:"max_shift" default:"0" min:"0" max:"1000000"`
}

// Wants implements [Kind].
func (*BatchNorm) Wants() []Input { return []Input{{Name: "value", Form: Rows}} }

// Build implements [Kind].
func (k *BatchNorm) Build(s *Site) []Value {
	return s.like(s.BatchNorm(s.Inputs[0].Node, graph.BatchNorm{
		Name: s.Name, Optimizer: s.Rule.Optimizer, Decay: float32(k.Decay), Epsilon: float32(k.Epsilon), NoScale: !k.Scale, NoCenter: !k.Center,
		Training: graph.BatchNormTraining{Moving: float32(k.Moving), Constant: k.Constant, MaxScale: float32(k.MaxScale), MaxShift: float32(k.MaxShift)},
	}))
}

// Dropout is [graph.Builder.Dropout]: [rows, n] -> the same.
type Dropout struct {
	// Rate is the share that is set to 0.
	Rate float64 `yaml:"rate" short:"true" required:"true" min:"0" max:"0.99"`
}

// Wants implements [Kind].
func (*Dropout) Wants() []Input { return []Input{{Name: "value", Form: Any}} }

// Build implements [Kind].
func (k *Dropout) Build(s *Site) []Value { return s.like(s.Dropout(s.Inputs[0].Node, k.Rate)) }

// Concat puts values side by side: [rows, a], [rows, b] ... -> [rows, a+b+...], or over entries. Vectors of one width stay vectors.
type Concat struct{}

// Wants implements [Kind].
func (*Concat) Wants() []Input { return anyValues() }

// Build implements [Kind].
func (*Concat) Build(s *Site) []Value { return []Value{s.Join()} }

// Sum adds up values of equal width.
type Sum struct{}

// Wants implements [Kind].
func (*Sum) Wants() []Input { return anyValues() }

// Build implements [Kind].
func (*Sum) Build(s *Site) []Value { return s.like(s.Add(s.nodes()...)) }

// Mean is the mean of values of equal width, number by number.
type Mean struct{}

// Wants implements [Kind].
func (*Mean) Wants() []Input { return anyValues() }

// Build implements [Kind].
func (*Mean) Build(s *Site) []Value {
	return s.like(s.Affine(s.Add(s.nodes()...), 1/float32(len(s.Inputs)), 0))
}

// Max is [graph.Builder.Max]: the largest of values of equal width, number by number.
type Max struct{}

// Wants implements [Kind].
func (*Max) Wants() []Input { return anyValues() }

// Build implements [Kind].
func (*Max) Build(s *Site) []Value { return s.like(s.Max(s.nodes()...)) }

// Product multiplies values of equal width, number by number.
type Product struct{}

// Wants implements [Kind].
func (*Product) Wants() []Input { return anyValues() }

// Build implements [Kind].
func (*Product) Build(s *Site) []Value {
	x := s.Inputs[0].Node
	for _, y := range s.Inputs[1:] {
		x = s.Mul(x, y.Node)
	}
	return s.like(x)
}

// Scale is [layer.Scaled]: [rows, 1] -> the same.
type Scale struct {
	// Factor is what the factor begins as.
	Factor float64 `yaml:"factor" short:"true" default:"1"`
}

// Wants implements [Kind].
func (*Scale) Wants() []Input { return []Input{{Name: "number", Form: Rows}} }

// Build implements [Kind].
func (k *Scale) Build(s *Site) []Value {
	return row(layer.Scaled(s.Builder, s.Name, s.Inputs[0].Node, float32(k.Factor), s.Rule))
}

// StopGradient is [graph.Builder.StopGradient].
type StopGradient struct{}

// Wants implements [Kind].
func (*StopGradient) Wants() []Input { return []Input{{Name: "value", Form: Any}} }

// Build implements [Kind].
func (*StopGradient) Build(s *Site) []Value {
	return s.like(s.StopGradient(s.Inputs[0].Node))
}

// Gate is [layer.Gate]: x [rows, n] and by [rows, m] -> [rows, n].
type Gate struct {
	// Hidden are the widths of the gate's hidden layers; empty: there are none.
	Hidden []int `yaml:"hidden" default:"[32]" min:"1" max:"65536"`
}

func gated() []Input {
	return []Input{{Name: "value", Form: Rows}, {Name: "by", Form: Rows, Many: true}}
}

// Wants implements [Kind].
func (*Gate) Wants() []Input { return gated() }

// Build implements [Kind].
func (k *Gate) Build(s *Site) []Value {
	return s.like(layer.Gate(s.Builder, s.Name, s.Inputs[0].Node, s.Join(s.Inputs[1:]...).Node, k.Hidden, s.Rule))
}

// LHUC is [layer.LHUC]: x [rows, n] and by [rows, m] -> [rows, last of hidden].
type LHUC struct {
	Layers `yaml:",inline"`
	// Gate are the widths of the hidden layers of each gate; empty: there are none.
	Gate []int `yaml:"gate" default:"[32]" min:"1" max:"65536"`
}

// Wants implements [Kind].
func (*LHUC) Wants() []Input { return gated() }

// Build implements [Kind].
func (k *LHUC) Build(s *Site) []Value {
	return row(layer.LHUC(s.Builder, s.Name, s.Inputs[0].Node, s.Join(s.Inputs[1:]...).Node, k.Gate, k.config(s)))
}

// Cosine is the cosine of two values, [layer.Scaled]: [rows, n] and [rows, n] -> [rows, 1].
type Cosine struct {
	// Factor is what the cosine is multiplied by at first: with 5, probabilities from 1/150 to 149/150 are within reach.
	Factor float64 `yaml:"factor" default:"5"`
}

// Wants implements [Kind].
func (*Cosine) Wants() []Input { return []Input{{Name: "x", Form: Rows}, {Name: "y", Form: Rows}} }

// Build implements [Kind].
func (k *Cosine) Build(s *Site) []Value {
	x, y := s.Inputs[0].Node, s.Inputs[1].Node
	cosine := s.RowSum(s.Mul(s.Unit(x, x.Dim()), s.Unit(y, y.Dim())))
	return row(layer.Scaled(s.Builder, s.Name, cosine, float32(k.Factor), s.Rule))
}

// BatchSoftmax is [graph.Builder.BatchSoftmax] of the cosine of two values: [rows, n] and [rows, n] -> [rows, 1], for a head with the loss batch_softmax, which learns through it alone.
type BatchSoftmax struct {
	// Item is the feature that has the item's id. Its table counts how often items occur, and is for it alone.
	Item string `yaml:"item" short:"true" required:"true"`
	// Temperature is what the cosine is divided by: the lower, the more the items that are nearest to the user's count.
	Temperature float64 `yaml:"temperature" default:"0.1" above:"0"`
}

// Wants implements [Kind].
func (*BatchSoftmax) Wants() []Input {
	return []Input{{Name: "user", Form: Rows}, {Name: "item", Form: Rows}}
}

// Reads implements [Reader].
func (k *BatchSoftmax) Reads([]zoo.Feature) ([]string, Sort) { return []string{k.Item}, Intervals }

// Build implements [Kind].
func (k *BatchSoftmax) Build(s *Site) []Value {
	if other := s.sharing(k.Item); other != "" {
		s.Fault("features %q and %q share a table: that of the item's id counts how often items occur, and is for it alone; give it a table of its own", k.Item, other)
		return nil
	}
	user, item := s.Inputs[0].Node, s.Inputs[1].Node
	interval := s.Pool(graph.Pooled{X: s.Lookup(s.feature(k.Item), zoo.IntervalSegment), By: graph.Max})
	return row(s.BatchSoftmax(s.Unit(user, user.Dim()), s.Unit(item, item.Dim()), interval, k.Temperature))
}

// Tasks are the names of what several values are for.
type Tasks struct {
	// Tasks name the values, one for each task, such as the heads: the block NAME has NAME.TASK.
	Tasks []string `yaml:"tasks" required:"true"`
}

// Outputs implements [Several].
func (t *Tasks) Outputs() []string { return t.Tasks }

// check reports whether there are as many tasks, experts and levels as there must be.
func (t *Tasks) check(s *Site, counts ...int) bool {
	if len(t.Tasks) == 0 || slices.Min(append(counts, 1)) < 1 {
		s.Fault("tasks, experts and levels are at least one each")
		return false
	}
	return true
}

// each makes a value of each node.
func each(nodes []graph.Node) (values []Value) {
	for _, n := range nodes {
		values = append(values, Value{Node: n})
	}
	return values
}

// MMoE is [layer.MMoE] over all inputs side by side: [rows, n] -> for each task [rows, last of hidden].
type MMoE struct {
	Tasks `yaml:",inline"`
	// Experts is the number of perceptrons that all tasks share; each has the layers of hidden.
	Experts int `yaml:"experts" default:"4" min:"1" max:"1024"`
	// TopExperts is how many experts a task takes for an example, those that its gate gives most; 0: all.
	TopExperts int `yaml:"top_experts" default:"0" min:"0" max:"1024"`
	// GateNoise adds noise to the gates in training, of a deviation that is learned; with top_experts.
	GateNoise bool `yaml:"gate_noise" default:"false"`
	// Balance is what it costs that some experts get more than others, as a share of the loss; with top_experts. 0: nothing.
	Balance float64 `yaml:"balance" default:"0" min:"0"`
	Layers  `yaml:",inline"`
}

// Wants implements [Kind].
func (*MMoE) Wants() []Input { return rowValues() }

// Build implements [Kind].
func (k *MMoE) Build(s *Site) []Value {
	if !k.check(s, k.Experts) {
		return nil
	}
	if k.TopExperts < 0 || k.TopExperts > k.Experts {
		s.Fault("top_experts %d is not between 1 and experts, %d, or 0 for all", k.TopExperts, k.Experts)
		return nil
	}
	if k.TopExperts == 0 && (k.GateNoise || k.Balance != 0) {
		s.Fault("gate_noise and balance are of gates that choose among experts: set top_experts, or leave them out")
		return nil
	}
	gate := layer.GateConfig{Top: k.TopExperts, Noise: k.GateNoise, Balance: float32(k.Balance)}
	return each(layer.MMoE(s.Builder, s.Name, s.Join().Node, k.Tasks.Tasks, layer.ExpertsConfig{Experts: k.Experts, Expert: k.config(s), Gate: gate}))
}

// PLE is [layer.PLE] over all inputs side by side: [rows, n] -> for each task [rows, last of hidden].
type PLE struct {
	Tasks `yaml:",inline"`
	// Experts is the number of perceptrons of a level that all tasks share; each has the layers of hidden.
	Experts int `yaml:"experts" default:"4" min:"1" max:"1024"`
	// OwnExperts is the number of those that each task has for itself in each level.
	OwnExperts int `yaml:"own_experts" default:"2" min:"1" max:"1024"`
	// Levels is the number of levels.
	Levels int `yaml:"levels" default:"2" min:"1" max:"32"`
	Layers `yaml:",inline"`
}

// Wants implements [Kind].
func (*PLE) Wants() []Input { return rowValues() }

// Build implements [Kind].
func (k *PLE) Build(s *Site) []Value {
	if !k.check(s, k.Experts, k.OwnExperts, k.Levels) {
		return nil
	}
	return each(layer.PLE(s.Builder, s.Name, s.Join().Node, k.Tasks.Tasks, layer.ExpertsConfig{Experts: k.Experts, Own: k.OwnExperts, Levels: k.Levels, Expert: k.config(s)}))
}

// SNR is [layer.SNR] over all inputs side by side: [rows, n] -> for each task [rows, last of hidden].
type SNR struct {
	Tasks `yaml:",inline"`
	// Experts is the number of perceptrons of a level; each has the layers of hidden.
	Experts int `yaml:"experts" default:"4" min:"1" max:"1024"`
	// Levels is the number of levels.
	Levels int `yaml:"levels" default:"2" min:"1" max:"32"`
	// L0 is what each open gate of a connection costs, as a share of the loss.
	L0 float64 `yaml:"l0" default:"0" min:"0"`
	// GateHigh is what gates are stretched to before they are cut off at 1: the further above 1, the more connections are wholly open (bytedance/monolith: zeta).
	GateHigh float64 `yaml:"gate_high" default:"1.1" min:"1.001"`
	// GateLow is what gates are stretched to before they are cut off at 0, -0.001 or less: the further below 0, the more connections are closed (bytedance/monolith: gamma).
	GateLow float64 `yaml:"gate_low" default:"-0.1" max:"-0.001"`
	// GateTemperature is that of the gates that are drawn in training: the lower, the fewer are between open and closed.
	GateTemperature float64 `yaml:"gate_temperature" default:"0.5" above:"0"`
	// StraightThrough has gates that are cut off learn as if they were not, in every batch; else they learn in those that draw them in between.
	StraightThrough bool `yaml:"straight_through" default:"false"`
	// Average leaves out the matrices of connections: what a gate lets through is what the perceptron before it says (SNR-Aver).
	Average bool `yaml:"average" default:"false"`
	Layers  `yaml:",inline"`
}

// Wants implements [Kind].
func (*SNR) Wants() []Input { return rowValues() }

// Build implements [Kind].
func (k *SNR) Build(s *Site) []Value {
	if !k.check(s, k.Experts, k.Levels) {
		return nil
	}
	routes := graph.HardConcrete{L0: float32(k.L0), High: k.GateHigh, Low: k.GateLow, Temperature: k.GateTemperature, StraightThrough: k.StraightThrough}
	if err := routes.Validate(); err != nil {
		s.Fault("%v", err)
		return nil
	}
	cfg := layer.ExpertsConfig{Experts: k.Experts, Levels: k.Levels, Average: k.Average, Expert: k.config(s), Routes: routes}
	return each(layer.SNR(s.Builder, s.Name, s.Join().Node, k.Tasks.Tasks, cfg))
}

// GradNorm is [graph.Builder.GradNorm] over all inputs side by side: [rows, n] -> for each head the same.
type GradNorm struct {
	// Heads name the heads, two or more, and the values: the block NAME has NAME.HEAD, and what lies between that and the head is for the head alone.
	Heads []string `yaml:"heads" required:"true"`
	// Scale times how far the lengths are apart is minimised by the weights.
	Scale float64 `yaml:"scale" default:"1" above:"0"`
	// Power is the exponent of how far they are apart; 1 in the paper, 2 in bytedance/monolith.
	Power float64 `yaml:"power" default:"2" min:"1"`
	// Relative divides it by the mean length.
	Relative bool `yaml:"relative" default:"false"`
	// Alpha is how much longer the gradients of heads are that learn slowly, 0 or a number like the paper's 1.5.
	Alpha float64 `yaml:"alpha" default:"0" min:"0"`
}

// Outputs implements [Several].
func (k *GradNorm) Outputs() []string { return k.Heads }

// Wants implements [Kind].
func (*GradNorm) Wants() []Input { return rowValues() }

// Build implements [Kind].
func (k *GradNorm) Build(s *Site) []Value {
	if len(k.Heads) < 2 {
		s.Fault("heads are two or more")
		return nil
	}
	return each(s.GradNorm(s.Join().Node, graph.GradNorm{
		Name: s.Name, Heads: k.Heads, Scale: float32(k.Scale), Power: float32(k.Power), Relative: k.Relative, Alpha: float32(k.Alpha), Optimizer: s.Rule.Optimizer,
	}))
}

// Mixture is [layer.Mixture]: by [rows, m] and experts [rows, n] each -> [rows, n].
type Mixture struct{}

// Wants implements [Kind].
func (*Mixture) Wants() []Input {
	return []Input{{Name: "by", Form: Rows}, {Name: "expert", Form: Rows, Many: true}}
}

// Build implements [Kind].
func (*Mixture) Build(s *Site) []Value {
	experts := s.nodes()[1:]
	for _, e := range s.Inputs[2:] {
		if e.Dim() != experts[0].Dim() {
			s.Fault("experts are of one width, and they have %s and %s", s.Inputs[1], e)
			return nil
		}
	}
	return row(layer.Mixture(s.Builder, s.Name, s.Inputs[0].Node, experts, s.Rule))
}

// Relations is [layer.Relations]: a value of each task -> for each [rows, last of hidden].
type Relations struct {
	Tasks  `yaml:",inline"`
	Layers `yaml:",inline"`
}

// Wants implements [Kind].
func (k *Relations) Wants() []Input {
	var inputs []Input
	for _, task := range k.Tasks.Tasks {
		inputs = append(inputs, Input{Name: task, Form: Rows})
	}
	return inputs
}

// Build implements [Kind].
func (k *Relations) Build(s *Site) []Value {
	if !k.check(s) {
		return nil
	}
	return each(layer.Relations(s.Builder, s.Name, s.nodes(), k.Tasks.Tasks, k.config(s)))
}

// Both is [graph.Builder.Both]: [rows, n] and [rows, n] -> the same.
type Both struct{}

// Wants implements [Kind].
func (*Both) Wants() []Input {
	return []Input{{Name: "first", Form: Rows}, {Name: "second", Form: Rows}}
}

// Build implements [Kind].
func (*Both) Build(s *Site) []Value { return row(s.Both(s.Inputs[0].Node, s.Inputs[1].Node)) }
