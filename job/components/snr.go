package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/zoo"
)

// SNR are the options of sub-network routing.
type SNR struct {
	Embedding `yaml:",inline"`
	// Attention is the width of the hidden layer that weighs the entries of a sequence, for features that attend.
	Attention int `yaml:"attention" min:"1" max:"65536"`
	// Experts is the number of perceptrons of each level; each has the layers of hidden.
	Experts int `yaml:"experts" min:"1" max:"1024"`
	// Levels is how many levels of them there are.
	Levels int `yaml:"levels" min:"1" max:"32"`
	// L0 is what each connection costs that is open, as a share of the loss; 0: connections are closed where that makes predictions better.
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
	// Tower are the widths of the layers of each head's own perceptron behind the levels; empty: none.
	Tower          []int `yaml:"tower" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*SNR) Defaults() map[string]string {
	c := zoo.Config{}.WithDefaults()
	return map[string]string{"attention": written(c.Attention), "experts": written(c.Experts), "levels": written(c.Levels), "tower": written(c.Tower)}
}

// Build implements [component.ModelConfig].
func (m *SNR) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.SNR, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) {
		c.Attention, c.Experts, c.Levels, c.Average, c.Tower = m.Attention, m.Experts, m.Levels, m.Average, m.Tower
		c.Routes = graph.HardConcrete{L0: float32(m.L0), High: m.GateHigh, Low: m.GateLow, Temperature: m.GateTemperature, StraightThrough: m.StraightThrough}
	}))
}
