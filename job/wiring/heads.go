package wiring

import (
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/parse"
)

// heads are those of the model; none for a job without, whose model then has its usual one.
func heads(c *spec.Config) []model.Head {
	var out []model.Head
	for _, h := range c.Heads {
		g := model.Head{
			Name: h.Name, Loss: h.Loss, Labels: []string{pipeline.LabelColumn(h.Name)}, Width: h.Classes, Weight: float32(h.Weight), SampleRate: float32(h.SampleRate), LogitClip: float32(h.LogitClip), Settings: h.Settings(),
		}
		if _, err := loss.Find(h.Loss); err != nil {
			g.Own, _ = c.FindLoss(h.Loss) // the program's
		}
		if h.Mask != nil {
			g.Mask = pipeline.MaskColumn(h.Name)
		}
		if h.Group != "" {
			g.Group = pipeline.KeyColumn(h.Group)
		}
		g.Metrics = h.Metrics
		out = append(out, g)
	}
	return out
}

// modelHeads are those of the model: the job's, or the usual one of a job with a label alone.
func modelHeads(c *spec.Config) []model.Head {
	if len(c.Heads) > 0 {
		return heads(c)
	}
	return zoo.Config{}.WithDefaults().Heads
}

// labels are what parsing makes for the heads. What a label may be is what the head's loss accepts.
func labels(c *spec.Config, format string) []parse.Label {
	var out []parse.Label
	for _, h := range c.AllHeads() {
		if h.Label.Column == "" && format != string(parse.LibFM) {
			continue // a job that only has a source
		}
		l := parse.Label{Name: h.Name, Column: c.Parse.LabelColumn(&h.Label, format), Positive: h.Label.Positive}
		if found, ok := c.FindLoss(h.Loss); ok {
			l.Accepts = found.LabelsOf(h.Classes)
		}
		if h.Mask != nil {
			l.Optional, l.Mask, l.MaskPositive = true, h.Mask.Column, h.Mask.Positive
		}
		out = append(out, l)
	}
	return out
}

// traceKeys are the keys whose values go with the predictions that training stores.
func traceKeys(c *spec.Config) []string {
	if c.Eval.Group == "" {
		return nil
	}
	return []string{c.Eval.Group}
}
