package wiring

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/internal/peek"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/batch"
	"github.com/monolith-go/monolith/transforms/parse"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// NodePredictions is the sink of a graph of predictions.
const NodePredictions = "predictions"

// predictDelay is how long a row of a stream waits for others that are predicted with it.
const predictDelay = time.Second

// PredictReading reads what is predicted once: predict.source, or without one the job's source, in order.
func PredictReading(c *spec.Config) Reading {
	r := TrainReading(c, 0)
	r.Shuffle, r.Side = spec.Shuffle{}, ""
	if c.PredictsHeldOut() {
		r.Side = parse.Held
	}
	if p := &c.Predict; p.Source != nil {
		r = Reading{Job: c, Key: "predict.source", Source: p.Source, Name: p.Source.Name(), Format: p.Format, Columns: p.Columns, Header: p.Header != nil && *p.Header}
	}
	r.Batch = batch.Options{Rows: evalBatch}
	if !r.Source.Bounded() {
		r.Batch.MaxDelay = predictDelay
	}
	r.Phase, r.Fields = spec.PhasePredict, &Fields{}
	return r
}

// Fields are the columns of predictions, with what they make a reading read.
type Fields struct {
	// List are the columns, in order.
	List []trainstep.Field
	// Keys are the columns of the records that are passed on as text. Labels and Weight are read where they are set.
	Keys           []string
	Labels, Weight bool
}

// text adds a field of a column of the records.
func (f *Fields) text(name, column string) {
	f.List = append(f.List, trainstep.Field{Name: name, Column: pipeline.KeyColumn(column)})
	if !slices.Contains(f.Keys, column) {
		f.Keys = append(f.Keys, column)
	}
}

// label adds the label of a head.
func (f *Fields) label(heads []spec.Head, h spec.Head) {
	name := "label"
	if len(heads) > 1 {
		name += "_" + h.Name
	}
	f.List = append(f.List, trainstep.Field{Name: name, Column: pipeline.LabelColumn(h.Name), Mask: pipeline.MaskColumn(h.Name)})
	f.Labels = true
}

// maskOf is the column of a head's mask; empty: it has none.
func maskOf(h spec.Head) string {
	if h.Mask == nil {
		return ""
	}
	return h.Mask.Column
}

// FindFields finds the columns that predict.fields asks for. known are those of the records; nil: only they know. Errors:
// [pipeline.ErrConfig], all fields that are none at once.
func FindFields(c *spec.Config, m model.Model, known []string) (*Fields, error) {
	f, heads := &Fields{}, c.AllHeads()
	has := func(column string) bool { return known == nil || slices.Contains(known, column) }
	labelled := true
	for _, h := range heads { // where there is no column of one, there is none of all
		for _, column := range []string{h.Label.Column, maskOf(h)} {
			labelled = labelled && (column == "" || has(column))
		}
	}
	predictions, logits := trainstep.HeadFields(trainstep.FieldPrediction, m.Heads()), trainstep.HeadFields(trainstep.FieldLogit, m.Heads())
	if len(c.Predict.Fields) == 0 {
		for _, h := range heads {
			if labelled {
				f.label(heads, h)
			}
		}
		f.List = append(f.List, predictions...)
		return f, nil
	}
	words := map[string]func(){
		"prediction": func() { f.List = append(f.List, predictions...) },
		"logit":      func() { f.List = append(f.List, logits...) },
		"weight": func() {
			f.List, f.Weight = append(f.List, trainstep.Field{Name: "weight", Column: pipeline.ColWeight}), true
		},
		"time": func() { f.List = append(f.List, trainstep.Field{Name: pipeline.ColTime, Column: pipeline.ColTime}) },
		"position": func() {
			f.List = append(f.List, trainstep.Field{Name: pipeline.ColPosition, Column: pipeline.ColPosition})
		},
		"split": func() { f.List = append(f.List, trainstep.Field{Name: "split", Kind: trainstep.FieldSplit}) },
	}
	for _, list := range [][]trainstep.Field{predictions, logits} {
		for _, one := range list {
			if len(list) > 1 {
				words[one.Name] = func() { f.List = append(f.List, one) }
			}
		}
	}
	all := func() {
		for _, h := range heads {
			f.label(heads, h)
		}
	}
	if words["label"] = all; len(heads) > 1 {
		for _, h := range heads {
			words["label_"+h.Name] = func() { f.label(heads, h) }
		}
	}
	var faults []error
	bad := func(i int, text string, args ...any) {
		faults = append(faults, fault.Config("job: predict.fields[%d]: "+text, slices.Concat([]any{i}, args)...))
	}
	for i, name := range c.Predict.Fields {
		column := strings.TrimPrefix(name, spec.FieldColumn)
		add := words[name]
		switch feature, ok := strings.CutPrefix(name, spec.FieldFeature); {
		case ok:
			f.List = append(f.List, trainstep.Field{Name: name, Column: feature})
		case add == nil && !has(column):
			offered := slices.Clone(known)
			for word := range words {
				offered = append(offered, word)
			}
			slices.Sort(offered)
			switch {
			case column == name:
				bad(i, "the records have no column %q%s", column, nearest.Suggest(column, offered))
			case words[column] != nil:
				bad(i, "the records have no column %q; name %s alone, without %s, for what predictions call so", column, column, spec.FieldColumn)
			default:
				bad(i, "the records have no column %q%s", column, nearest.Suggest(column, known))
			}
		case add == nil:
			f.text(name, column)
		case strings.HasPrefix(name, "label") && !labelled:
			bad(i, "the records have no column of a label; they have %q", known)
		case name == "weight" && c.Parse.Weight == nil:
			bad(i, "the job has no parse.weight; column.weight is a column of the records with that name")
		default:
			add()
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(f.List, func(f trainstep.Field) bool { return f.Kind == trainstep.FieldPrediction }) {
		f.List = append(f.List, predictions...)
	}
	for i, one := range f.List {
		if j := slices.IndexFunc(f.List, func(o trainstep.Field) bool { return o.Name == one.Name }); j < i {
			return nil, fault.Config("job: predict.fields: %q would be there twice", one.Name)
		}
	}
	return f, nil
}

// RecordColumns returns the names of the columns of a reading's records, as far as they are known before they are parsed; nil: they are
// not. It looks into a file where that has the names. Errors: those of the source.
func (r Reading) RecordColumns(ctx context.Context) ([]string, error) {
	switch {
	case r.Source.Columnar():
		columns, unreadable, err := r.Source.Value().(component.Columns).Describe(ctx)
		if err != nil {
			return nil, err
		}
		for _, f := range columns.Fields() {
			unreadable = append(unreadable, f.Name)
		}
		return unreadable, nil
	case r.Format == "libfm" && len(r.Job.Parse.Fields) > 0:
		return append(slices.Clone(r.Job.Parse.Fields), "label"), nil
	case r.Format != "csv" && r.Format != "tsv":
		return nil, nil
	case !r.Header:
		return slices.DeleteFunc(slices.Clone(r.Columns), func(name string) bool { return name == "" }), nil
	}
	line, err := r.firstLine(ctx)
	if err != nil || line == "" {
		return nil, err
	}
	return peek.Names(r.Format, []byte(line), true), nil
}

// firstLine is the header of the first file that has one.
func (r Reading) firstLine(ctx context.Context) (line string, err error) {
	src, err := r.OpenBlocks()
	if err != nil {
		return "", err
	}
	splits, err := src.Splits(ctx)
	if err != nil {
		return "", err
	}
	for _, s := range splits {
		line, err := headerOf(ctx, src, s)
		if line != "" || err != nil {
			return line, err
		}
	}
	return "", nil
}

// headerOf is the header of a file; empty: it has none.
func headerOf(ctx context.Context, src pipeline.Source[*pipeline.Block], s pipeline.Split) (line string, err error) {
	reader, err := src.Open(ctx, &pipeline.Env{BadRows: &pipeline.SkipBadRows{}}, s, s.Start)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	block, err := reader.Next(ctx)
	if errors.Is(err, io.EOF) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer block.Release()
	meta := block.Record().Schema().Metadata()
	if at := meta.FindKey(pipeline.MetadataHeader); at >= 0 {
		line = meta.Values()[at]
	}
	return line, nil
}

// PredictionSink is the place that predictions go to. output tells them from others in it.
func PredictionSink(c *spec.Config, output string) (component.OutputSink, error) {
	to := c.Predict.To
	if to == nil || to.Value() == nil {
		return nil, fault.Config("job: predict.to is not set: say where predictions go")
	}
	return to.Value().Sink(component.Writing{Output: output, Keys: "predict.to." + to.Name() + "."})
}

// ExamplesGraph is source ─> parse ─> batch ─> sink.
func ExamplesGraph(r Reading, sink pipeline.Sink[*pipeline.Batch]) (*pipeline.Plan, error) {
	g := pipeline.New(r.Job.Name + "-examples")
	examples, err := r.examples(g)
	if err != nil {
		return nil, err
	}
	pipeline.Into(examples, "examples", sink)
	return g.Plan()
}

// PredictGraph is source ─> parse ─> batch ─╫─> lookup ─> predict ─> predictions. What is predicted has the fields of the reading, which
// may lack labels. Errors: [pipeline.ErrConfig]. open gives the parameters; outs gets the writers; nil in a graph that is only planned. output tells these predictions from others in the same
// place.
func PredictGraph(c *spec.Config, r Reading, m model.Model, open trainstep.OpenStore, outs *Outputs, output string) (*pipeline.Plan, *trainstep.Predict, error) {
	if outs == nil {
		outs = &Outputs{}
	}
	sink, err := PredictionSink(c, output)
	if err != nil {
		return nil, nil, err
	}
	g := pipeline.New(c.Name + "-predict")
	examples, err := r.examples(g)
	if err != nil {
		return nil, nil, err
	}
	examples = pipeline.Prefetch(examples, "prefetch", max(c.Train.Prefetch.Parse, 1))
	looked := pipeline.Via(examples, NodeLookup, trainstep.NewLookup(m, open).Unlabelled())
	stage := trainstep.NewPredict(m, open, c.StepThreads(), r.Fields.List)
	predicted := pipeline.Via(looked, "predict", stage)
	pipeline.Into(predicted, NodePredictions, outputSink{sink, NodePredictions, outs})
	plan, err := g.Plan()
	if lacks, ok := errors.AsType[*trainstep.NoColumnError](err); ok && lacks.Column == pipeline.ColTime {
		err = fault.Config("job: predict.fields: %q is when an example happened, which records of a %s source do not say", lacks.Field, r.Source.Name())
	}
	return plan, stage, err
}
