package parse

import (
	"bytes"
	"fmt"

	"github.com/monolith-go/monolith/model/loss"
)

// label is a checked [Label].
type label struct {
	name  string
	what  string // for messages: `label "price"`
	col   int
	width int
	split []byte
	// signs makes -1 a 0, and says so when it is neither: libfm's label of a click.
	signs    bool
	positive condition
	accepts  loss.Range
	optional bool
	mask     int // column number, or -1
	masked   condition
}

// addLabel checks one label and resolves its columns.
func (c *compiler) addLabel(o *Label) {
	l := label{name: o.Name, what: "label", width: max(1, o.Width), split: []byte(o.Split), accepts: o.Accepts, optional: o.Optional || o.Mask != "", mask: -1}
	if o.Name != "" {
		l.what = fmt.Sprintf("label %q", o.Name)
	}
	column := o.Column
	if column == "" && c.Format == LibFM {
		column = libfmLabel
	}
	if l.accepts == (loss.Range{}) {
		l.accepts = loss.Range{Max: 1}
	}
	if l.accepts.Min > l.accepts.Max {
		c.fault("%s: nothing is between %g and %g", l.what, l.accepts.Min, l.accepts.Max)
	}
	var err error
	if l.positive, err = parseCondition(o.Positive); err != nil {
		c.fault("%s: positive: %w", l.what, err)
	}
	if l.masked, err = parseCondition(o.MaskPositive); err != nil {
		c.fault("%s: mask: positive: %w", l.what, err)
	}
	switch {
	case column != "":
		l.col = c.column(l.what, column)
	case o.Positive != "":
		c.fault("%s: positive is %q, but there is no column", l.what, o.Positive)
	default:
		c.fault("%s has no column", l.what)
	}
	if c.Format == LibFM && l.positive.text != nil {
		c.fault("%s: positive compares text, but libfm has numbers", l.what)
	}
	l.signs = c.Format == LibFM && column == libfmLabel && o.Positive == "" && l.unit()
	switch {
	case o.Width < 0:
		c.fault("%s: width is %d", l.what, o.Width)
	case l.width == 1 && o.Split != "":
		c.fault("%s: split cuts several numbers, but the width is 1", l.what)
	case l.width > 1 && o.Split == "" && (c.Format == CSV || c.Format == TSV):
		c.fault("%s: width is %d, but without split text is one number", l.what, l.width)
	case l.width > 1 && c.Format == LibFM:
		c.fault("%s: width is %d, but libfm has one number", l.what, l.width)
	}
	if o.Mask != "" {
		l.mask = c.column(l.what+": mask", o.Mask)
	} else if o.MaskPositive != "" {
		c.fault("%s: what a mask must be is %q, but there is no mask", l.what, o.MaskPositive)
	}
	c.labels = append(c.labels, l)
}

// unit reports whether the label is that of a click, or a share.
func (l *label) unit() bool { return l.accepts.Min == 0 && l.accepts.Max == 1 }

// addLabel appends label i of the record.
func (x *extractor) addLabel(r record, i int) error {
	l, c := &x.p.labels[i], &x.labels[i]
	has, err := x.hasLabel(r, l)
	if err != nil {
		return err
	}
	if has {
		if l.width == 1 {
			has, err = x.oneLabel(r, l, c)
		} else {
			has, err = x.manyLabels(r, l, c)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case has:
	case !l.optional:
		return bad(reasonNoLabel, "column %q", x.p.columns[l.col])
	default:
		for range l.width {
			c.values = append(c.values, 0)
		}
	}
	if l.optional {
		x.masks[i].values = append(x.masks[i].values, has)
	}
	return nil
}

// hasLabel asks the mask.
func (x *extractor) hasLabel(r record, l *label) (bool, error) {
	if l.mask < 0 {
		return true, nil
	}
	v, ok, err := x.number(r, l.mask, l.masked, reasonMask)
	if l.masked.text == nil {
		v = l.masked.apply(v)
	}
	return ok && v != 0, err
}

// oneLabel appends the number of a label; has is false when it is missing.
func (x *extractor) oneLabel(r record, l *label, c *denseColumn) (has bool, err error) {
	y, has, err := x.number(r, l.col, l.positive, reasonLabel)
	if err != nil || !has {
		return false, err
	}
	if y, err = x.accepted(l, y); err != nil {
		return false, err
	}
	c.values = append(c.values, y)
	return true, nil
}

// manyLabels appends the numbers of a label.
func (x *extractor) manyLabels(r record, l *label, c *denseColumn) (has bool, err error) {
	if err := r.get(l.col, &x.v); err != nil {
		return false, err
	}
	if len(l.split) > 0 && x.v.kind == texts && len(x.v.texts) == 1 && len(x.v.texts[0]) > 0 {
		text := x.v.texts[0]
		x.v.texts = x.v.texts[:0]
		for more := true; more; {
			var piece []byte
			piece, text, more = bytes.Cut(text, l.split)
			x.v.texts = append(x.v.texts, piece)
		}
	}
	n := x.v.len()
	if n == 0 || n == 1 && x.v.kind == texts && len(x.v.texts[0]) == 0 {
		return false, nil
	}
	if n != l.width {
		return false, bad(reasonLabel, "column %q has %d values, not %d", x.p.columns[l.col], n, l.width)
	}
	for at := range n {
		y, err := x.numberAt(l.col, at, l.positive, reasonLabel)
		if err == nil {
			y, err = x.accepted(l, y)
		}
		if err != nil {
			return false, err
		}
		c.values = append(c.values, y)
	}
	return true, nil
}

// of makes a label of a number; false: it takes none such.
func (l *label) of(v float32) (y float32, ok bool) {
	if l.signs && (v == -1 || v == 0) { // -0 too
		v = 0
	}
	if l.positive.op != "" && l.positive.text == nil {
		if !finite(v) { // a condition would make a label of it
			return v, false
		}
		v = l.positive.apply(v)
	}
	return v, l.accepts.Contains(v) && v <= maxDense && v >= -maxDense
}

// accepted makes a label of a finite number.
func (x *extractor) accepted(l *label, v float32) (float32, error) {
	y, ok := l.of(v)
	switch {
	case ok:
		return y, nil
	case l.signs:
		return 0, bad(reasonLabel, "label %g is not 1, 0 or -1; say from where it is positive", y)
	case l.accepts.Contains(y):
		return 0, bad(reasonLabel, "%s: column %q is %g, a label is %g at most", l.what, x.p.columns[l.col], y, float64(maxDense))
	case l.unit() && l.name == "":
		return 0, bad(reasonLabel, "column %q is %g, not in 0 to 1; say what a positive example is (label.positive)", x.p.columns[l.col], y)
	case l.unit():
		return 0, bad(reasonLabel, "%s: column %q is %g, not in 0 to 1; say what a positive example is (label.positive)", l.what, x.p.columns[l.col], y)
	}
	return 0, bad(reasonLabel, "%s: column %q is %g; its loss takes %s", l.what, x.p.columns[l.col], y, l.accepts)
}
