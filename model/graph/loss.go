package graph

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/loss"
)

// Output is a head and the value that it learns through: [rows, Width], before the loss's link.
type Output struct {
	model.Head
	Node Node
}

// output is a head in a graph.
type output struct {
	head model.Head
	loss *loss.Loss
	node int
	// shift is -ln SampleRate, bound ln((1-LogitClip)/LogitClip) or 0.
	shift, bound float64
	// share is where its loss is weighed.
	share headShare
}

// addOutput checks a head and keeps its value alive.
func (b *Builder) addOutput(o Output) output {
	h := o.WithDefaults()
	out := output{head: h, node: o.Node.id, shift: -math.Log(float64(h.SampleRate)), share: b.shareOf(h.Name)}
	if h.LogitClip > 0 && h.LogitClip < 0.5 {
		clip := float64(h.LogitClip)
		out.bound = math.Log((1 - clip) / clip)
	} else if h.LogitClip != 0 {
		b.fault("head %q: logit clip %v is not in [0, 1/2)", h.Name, h.LogitClip)
	}
	if h.Name == "" {
		b.fault("a head has no name")
	}
	if b.owns(fmt.Sprintf("head %q", h.Name), o.Node) {
		if o.Node.shape.Kind != PerRow {
			b.fault("head %q: the output is [%s], want rows", h.Name, o.Node.shape)
		} else if o.Node.Dim() != h.Width {
			b.fault("head %q: the output has %d columns, want %d", h.Name, o.Node.Dim(), h.Width)
		}
		if !b.nodes[o.Node.id].needsGrad {
			b.fault("head %q: the output depends on no parameter", h.Name)
		}
	}
	if !(h.Weight > 0) || math.IsInf(float64(h.Weight), 0) {
		b.fault("head %q: weight %v is not a number above 0", h.Name, h.Weight)
	}
	if !(h.SampleRate > 0 && h.SampleRate <= 1) {
		b.fault("head %q: sample rate %v is not in (0, 1]", h.Name, h.SampleRate)
	}
	l, err := h.FindLoss()
	if err != nil {
		b.fault("head %q: %w", h.Name, err)
		return out
	}
	out.loss = l
	if o.Node.b == b {
		if _, ok := b.nodes[o.Node.id].op.(*batchSoftmax); l.InBatch && !ok {
			b.fault("head %q: %s learns from the operator batch_softmax alone, the output is another's", h.Name, l.Name)
		} else if ok && !l.InBatch {
			b.fault("head %q: the output is batch_softmax, which only the loss of that name learns from, not %s", h.Name, l.Name)
		}
	}
	if l.Classes && (h.Width < 2 || h.Width > loss.MaxClasses) {
		b.fault("head %q: %s is of 2 to %d classes, the output has %d columns", h.Name, l.Name, loss.MaxClasses, h.Width)
	}
	if n := l.NumLabels(h.Width); len(h.Labels) > 1 && len(h.Labels) != n {
		b.fault("head %q: %d label columns, %s of %d outputs reads %d", h.Name, len(h.Labels), l.Name, h.Width, n)
	}
	if h.Group != "" && !l.Ranks {
		b.fault("head %q: %s does not compare the rows of a group, its group is %q", h.Name, l.Name, h.Group)
	}
	if h.LogitClip != 0 && !l.Clipped {
		b.fault("head %q: %s has no logit to clip, its logit clip is %v", h.Name, l.Name, h.LogitClip)
	}
	for _, f := range l.FaultsOf(h.Settings) {
		if f.Want == "" {
			b.fault("head %q: %s is %v, and the loss %s has no such setting", h.Name, f.Setting, f.Value, l.Name)
		} else {
			b.fault("head %q: %s %v is not %s", h.Name, f.Setting, f.Value, f.Want)
		}
	}
	if h.SampleRate != 1 && !l.Sampled {
		b.fault("head %q: %s does not support sampled negatives, its sample rate is %v", h.Name, l.Name, h.SampleRate)
	}
	return out
}

// probabilities writes σ(logit).
func probabilities(probs, logits []float32) { loss.Sigmoid.Apply(probs, logits, 1) }
