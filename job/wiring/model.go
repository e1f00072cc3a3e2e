package wiring

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
)

// Model makes the job's model with its parameters' rules. Errors: [pipeline.ErrConfig]; [pipeline.ErrUnavailable] where a file of the
// model cannot be read.
func Model(c *spec.Config) (model.Model, error) {
	section := c.Model.Value()
	if section == nil {
		return nil, fmt.Errorf("job: no model is chosen: %w", pipeline.ErrConfig)
	}
	rules := zoo.Config{
		Name: c.Model.Name(), Features: features(c), BiasOptimizer: rule(&c.Optimizer.Bias), VecOptimizer: rule(&c.Optimizer.Sparse),
	}.RowRules()
	m, err := section.Build(component.ModelInputs{
		Features: features(c), Heads: modelHeads(c), Unnamed: len(c.Heads) == 0, Tables: tables(c, rules), Seed: c.Seed, Bias: rules.Bias,
		Sparse: optim.Stored(rules.Vec, storage(c.PS.Storage)), Dense: rule(&c.Optimizer.Dense),
	})
	if err != nil {
		if errors.Is(err, pipeline.ErrUnavailable) {
			return nil, fmt.Errorf("job: model.%s: %w", c.Model.Name(), err)
		}
		var faults []error
		for _, err := range failure.Flatten(err) {
			faults = append(faults, fault.Config("model.%s: %w", c.Model.Name(), err))
		}
		return nil, errors.Join(faults...)
	}
	if m, err = inPrecision(c, m); err != nil {
		return nil, err
	}
	if own, ok := section.(component.OwnRules); !ok || !own.OwnRules() {
		if i, ok := m.(model.Intercepted); ok && c.Optimizer.Intercept == spec.InterceptNewton {
			m = i.WithIntercepts()
		}
		steps(c, m.Layout())
	}
	// Which ids have rows is the job's affair, whatever the model.
	m.Layout().Retention = c.RetentionRules()
	if late := m.Layout().Delayed(); len(late) > 0 && c.PS.Precision != "float32" {
		return nil, fault.Config("ps.precision: %s would be taken for delays of %s; leave it out", c.PS.Precision, late[0])
	}
	if err := limits(c, m.Layout()); err != nil {
		return nil, err
	}
	return m, nil
}

// LeastBytes is what layers and batches take at least in the process that trains, in bytes, beside the rows of tables; 0 where nobody knows.
func LeastBytes(c *spec.Config, m model.Model) int64 {
	g, ok := m.(interface{ LeastBytes(rows int) int64 }) // a graph, or what has one
	if !ok || c.Runner != spec.RunnerLocal {
		return 0
	}
	n := int64(c.Train.Workers) * g.LeastBytes(c.Train.Batch)
	if l := m.Layout(); !c.PS.Remote() {
		n += 4 * int64(l.DenseLen()+l.DenseStateLen())
	}
	return n
}

// inPrecision is the model with the job's precision of products, whatever it was written with.
func inPrecision(c *spec.Config, m model.Model) (model.Model, error) {
	precision, _ := param.ParsePrecision(c.Train.Precision) // the schema has checked its name
	precise, ok := m.(model.Precise)
	switch {
	case ok:
		return precise.InPrecision(precision)
	case precision != param.Float32:
		return nil, fault.Config("train.precision: %s: the products of model.%s are in float32 alone; leave the key out", precision, c.Model.Name())
	}
	return m, nil
}

// steps gives parameters their L1, what makes up for delays, the bounds of gradients, the schedules and the compressors of the job.
func steps(c *spec.Config, l *param.Layout) {
	l1 := &c.Optimizer.L1
	for i := range l.Tables {
		delays := &c.Optimizer.DelayCompensation.RowDelays
		clip, schedules, compress := &c.Optimizer.Clip, &c.Optimizer.Schedules.RowSchedules, &c.Optimizer.Compress
		if at := slices.IndexFunc(c.Tables, func(t spec.Table) bool { return t.Name == l.Tables[i].Name }); at >= 0 {
			clip, schedules = cmp.Or(c.Tables[at].Clip, clip), cmp.Or(c.Tables[at].Schedules, schedules)
			compress = cmp.Or(c.Tables[at].Compress, compress)
			delays = cmp.Or(c.Tables[at].DelayCompensation, delays)
		}
		for j := range l.Tables[i].Segments {
			s := &l.Tables[i].Segments[j]
			if s.Name == zoo.BiasSegment {
				s.L1, s.Delay, s.Clip, s.Schedule = float32(l1.Bias), float32(delays.Bias), float32(clip.Bias), schedules.Bias.Factor()
				continue
			}
			s.L1, s.Delay, s.Clip, s.Schedule, s.Compressor = float32(l1.Sparse), float32(delays.Sparse), float32(clip.Sparse), schedules.Sparse.Factor(), compress.Compressor()
		}
	}
	for i := range l.Dense {
		// Statistics are observed, and an intercept has a rate of its own.
		switch l.Dense[i].Optimizer.(type) {
		case optim.EMA, optim.Intercept:
		default:
			l.Dense[i].L1, l.Dense[i].Delay, l.Dense[i].Schedule = float32(l1.Dense), float32(c.Optimizer.DelayCompensation.Dense), c.Optimizer.Schedules.Dense.Factor()
		}
	}
}

// fewRows is the number of rows from which on the limit of a table means what it says: four for each range of hashes that has its share.
const fewRows = 4 * param.LeastRows

// limits says what of the tables' limit, or of their filters' size, cannot be meant. Errors: [pipeline.ErrConfig].
func limits(c *spec.Config, l *param.Layout) error {
	var faults []error
	filters := l.Retention.FilterBytes() * int64(len(l.Tables))
	if all := int64(c.PS.Memory); all > 0 && !c.PS.Remote() && filters > all {
		faults = append(faults, fault.Config("retention.filter_capacity: makes the filters of %d tables %d bytes together, and ps.memory is %d; lower the one or raise the other", len(l.Tables), filters, all))
	}
	if l.Retention.MaxBytes == 0 {
		return errors.Join(faults...)
	}
	total := int64(0)
	for _, t := range l.Tables {
		row := t.RowBytes()
		total += l.Retention.MaxRows(t) * row
		if rows := l.Retention.MaxBytes / row; rows < fewRows {
			faults = append(faults, fault.Config("retention.table_memory: is %d rows of table %s, of %d bytes each, and shares of so few are unequal; give it %d bytes, %d rows, or more", rows, t.Name, row, fewRows*row, fewRows))
		}
	}
	if all := int64(c.PS.Memory); all > 0 && !c.PS.Remote() && total > all {
		faults = append(faults, fault.Config("retention.table_memory: lets the rows of %d tables take %d bytes together, and ps.memory is %d; lower the one or raise the other", len(l.Tables), total, all))
	}
	return errors.Join(faults...)
}

// rule is the update rule with its settings; nil where the model chooses.
func rule(o *spec.Optimizer) optim.Optimizer {
	if o.Value() == nil {
		return nil
	}
	return o.Value().Rule()
}

// storage is the format of a name that was checked.
func storage(name string) optim.ValueType {
	v, err := optim.ParseValueType(name)
	if err != nil {
		return optim.FP32
	}
	return v
}

// tables are what tables have of their own.
func tables(c *spec.Config, rules zoo.RowRules) []zoo.Table {
	var out []zoo.Table
	for _, t := range c.Tables {
		own := zoo.Table{Name: t.Name, EmbeddingL2: narrow(t.EmbeddingL2), BiasL2: narrow(t.BiasL2)}
		if t.Dim != nil {
			own.Dim = *t.Dim
		}
		if t.EmbeddingInit != nil {
			own.EmbeddingInit = t.EmbeddingInit.Init()
		}
		if t.Sparse != nil || t.Storage != nil {
			r, format := rules.Vec, c.PS.Storage
			if t.Sparse != nil {
				r = cmp.Or(rule(t.Sparse), rules.Vec)
			}
			if t.Storage != nil {
				format = *t.Storage
			}
			own.VecOptimizer = optim.Stored(r, storage(format))
		}
		if t.Bias != nil {
			own.BiasOptimizer = cmp.Or(rule(t.Bias), rules.Bias)
		}
		out = append(out, own)
	}
	return out
}

func narrow(v *float64) *float32 {
	if v == nil {
		return nil
	}
	return new(float32(*v))
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
			g.Combiner, g.Attends, g.AttentionHeads, g.Table = graph.Combiner(f.Combiner), f.Attends, f.AttentionHeads, f.Table
			if g.Combiner == zoo.First {
				g.First, g.Tail = f.Max, f.KeepsLast()
			}
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
