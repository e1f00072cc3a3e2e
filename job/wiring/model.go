package wiring

import (
	"slices"

	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
)

// Model makes the job's model with its parameters' rules.
func Model(c *spec.Config) (model.Model, error) {
	o := c.Model.Options()
	interactions := zoo.EntryInteractions
	if o.Interactions == "fields" {
		interactions = zoo.FieldInteractions
	}
	return zoo.New(zoo.Config{
		Interactions: interactions,
		Name:         c.Model.Name(), Features: features(c), Seed: c.Seed,
		Dim: o.Dim, Hidden: o.Hidden, BatchNorm: o.BatchNorm, Dropout: o.Dropout, CrossLayers: o.CrossLayers,
		EmbeddingInit: initial(o.EmbeddingInit), EmbeddingL2: float32(o.EmbeddingL2), BiasL2: float32(o.BiasL2), DenseL2: float32(o.DenseL2),
		BiasOptimizer: rule(&c.Optimizer.Bias), VecOptimizer: rule(&c.Optimizer.Sparse), DenseOptimizer: rule(&c.Optimizer.Dense),
		ClipNorm: o.ClipNorm,
	})
}

// features are the model's inputs: those of the job, and behind those that have one, the indicator of missing values.
func features(c *spec.Config) []zoo.Feature {
	var out []zoo.Feature
	for _, f := range c.Parse.Features {
		g := zoo.Feature{Name: f.Name, Dim: f.Dim, Values: valuesOf(&c.Parse, &f, c.Parse.Format)}
		if f.Kind == "dense" {
			g.Kind = model.Dense
		}
		if g.Kind == model.Sparse {
			g.Combiner = graph.Combiner(f.Combiner)
		}
		if f.Standardise != nil && f.Standardise.Running != nil {
			g.Decay = float32(f.Standardise.Running.Decay)
		}
		out = append(out, g)
		if name := f.Indicator(); name != "" {
			out = append(out, zoo.Feature{Name: name, Kind: model.Dense, Dim: 1})
		}
	}
	return out
}

// valuesOf names the column for the values of a feature's entries, which libfm's records have; empty: there are none.
func valuesOf(p *spec.Parse, f *spec.Feature, format string) string {
	column := f.Column
	if column == "" {
		column = f.Name
	}
	fields := p.Fields
	if len(fields) == 0 {
		fields = []string{"features"}
	}
	if format != "libfm" || f.Kind == "dense" || !slices.Contains(fields, column) {
		return ""
	}
	return f.Name + ".values"
}

func initial(e spec.EmbeddingInit) param.Init {
	switch {
	case e.Normal != nil:
		return param.Normal(0, float32(*e.Normal))
	case e.Uniform != nil:
		return param.Uniform(-float32(*e.Uniform), float32(*e.Uniform))
	}
	return param.Zeros()
}

// rule is the update rule with its settings; nil when none is chosen.
func rule(o *spec.Optimizer) optim.Optimizer {
	switch {
	case o.Adam != nil:
		a := o.Adam
		return optim.Adam{
			LR: float32(a.LR), Beta1: float32(a.Beta1), Beta2: float32(a.Beta2), Epsilon: float32(a.Epsilon),
			WeightDecay: float32(a.WeightDecay), Nesterov: a.Nesterov,
		}
	case o.Adagrad != nil:
		a := o.Adagrad
		return optim.Adagrad{LR: float32(a.LR), InitialAccumulator: float32(a.InitialAccumulator), WeightDecay: float32(a.WeightDecay)}
	case o.SGD != nil:
		return optim.SGD{LR: float32(o.SGD.LR)}
	case o.FTRL != nil:
		f := o.FTRL
		return optim.FTRL{LR: float32(f.LR), Beta: float32(f.Beta), L1: float32(f.L1), L2: float32(f.L2), InitialAccumulator: float32(f.InitialAccumulator)}
	}
	return nil
}
