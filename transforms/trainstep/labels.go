package trainstep

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
)

// labels are where the labels of one head lie in a batch: in one column of n numbers a row, or in n columns.
type labels struct {
	head  string
	names []string
	n     int
	mask  string // empty: none
	group string // the key column of lists; empty: none
}

func labelsOf(m model.Model) []labels {
	var out []labels
	for _, h := range m.Heads() {
		l := labels{head: h.Name, names: h.Labels, n: numLabels(h), mask: h.Mask, group: h.Group}
		if len(l.names) == 0 {
			l.names = []string{pipeline.ColLabel}
		}
		out = append(out, l)
	}
	return out
}

// numLabels is how many labels a row has for a head.
func numLabels(h model.Head) int {
	if l, err := h.FindLoss(); err == nil {
		return l.NumLabels(h.Width)
	}
	return h.Width // the model is not one of package graph, which would have refused the loss
}

// schemaOf is what the scores of a model hold.
func schemaOf(m model.Model, keys []string) score.Schema {
	s := score.Schema{Keys: keys}
	for _, h := range m.Heads() {
		s.Heads = append(s.Heads, score.HeadSchema{Name: h.Name, Width: h.Width, NumLabels: numLabels(h)})
	}
	return s
}

// columns are those that a batch must have.
func (l *labels) columns() (want []arrow.Field) {
	for _, name := range l.names {
		want = append(want, arrow.Field{Name: name, Type: columnType(model.Feature{Kind: model.Dense, Dim: l.n / len(l.names)})})
	}
	if l.mask != "" {
		want = append(want, arrow.Field{Name: l.mask, Type: arrow.FixedWidthTypes.Boolean})
	}
	if l.group != "" {
		want = append(want, arrow.Field{Name: l.group, Type: arrow.BinaryTypes.Binary})
	}
	return want
}

// labels points the inputs at the labels, groups and masks of the batch. They are in the range that the losses accept: parsing sees to
// that ([pipeline.ColLabel]).
func (l *lookup) labels(p *Prepared) error {
	heads := l.stage.heads
	p.in.Labels, p.in.Mask, p.in.Groups = resize(p.in.Labels, len(heads)), nil, nil
	if p.in.NumRows == 0 { // such a batch may have no columns
		clear(p.in.Labels)
		return nil
	}
	for i := range heads {
		h := &heads[i]
		if len(h.names) == 1 {
			y, err := h.column(p.batch, h.names[0], h.n)
			if err != nil {
				return err
			}
			p.in.Labels[i] = y
		} else if err := l.interleave(p, i); err != nil {
			return err
		}
		if h.group != "" {
			if err := l.number(p, i); err != nil {
				return err
			}
		}
		if h.mask == "" {
			continue
		}
		c, ok := p.batch.Column(h.mask).(*array.Boolean)
		if !ok {
			return fmt.Errorf("head %q: the batch has no boolean column %s: %w", h.head, h.mask, pipeline.ErrSchema)
		}
		if p.in.Mask == nil {
			p.masks = resize(p.masks, len(heads))
			p.in.Mask = resize(p.maskOf, len(heads))
			p.maskOf = p.in.Mask
			clear(p.in.Mask)
		}
		p.masks[i] = resize(p.masks[i], c.Len())
		for r := range p.masks[i] {
			p.masks[i][r] = c.Value(r)
		}
		p.in.Mask[i] = p.masks[i]
	}
	return nil
}

// number numbers the groups of head i in the order of their first rows. Values are distinguished by their hashes, as in traces.
func (l *lookup) number(p *Prepared, i int) error {
	h := &l.stage.heads[i]
	c, ok := p.batch.Column(h.group).(*array.Binary)
	if !ok {
		return fmt.Errorf("head %q: the batch has no binary column %s: %w", h.head, h.group, pipeline.ErrSchema)
	}
	if p.in.Groups == nil {
		p.groups = resize(p.groups, len(l.stage.heads))
		p.groupOf = resize(p.groupOf, len(l.stage.heads))
		p.in.Groups = p.groupOf
		clear(p.in.Groups)
	}
	if l.numbers == nil {
		l.numbers = map[uint64]int32{}
	}
	clear(l.numbers)
	p.groups[i] = resize(p.groups[i], c.Len())
	for r := range p.groups[i] {
		value := fid.HashBytes(c.Value(r))
		n, ok := l.numbers[value]
		if !ok {
			n = int32(len(l.numbers))
			l.numbers[value] = n
		}
		p.groups[i][r] = n
	}
	p.in.Groups[i] = p.groups[i]
	return nil
}

// interleave puts the numbers of several columns side by side.
func (l *lookup) interleave(p *Prepared, i int) error {
	h := &l.stage.heads[i]
	p.labels = resize(p.labels, len(l.stage.heads))
	p.labels[i] = resize(p.labels[i], p.in.NumRows*h.n)
	for at, name := range h.names {
		y, err := h.column(p.batch, name, 1)
		if err != nil {
			return err
		}
		for r, v := range y {
			p.labels[i][r*h.n+at] = v
		}
	}
	p.in.Labels[i] = p.labels[i]
	return nil
}

// column returns the numbers of a column, n a row.
func (l *labels) column(b *pipeline.Batch, name string, n int) ([]float32, error) {
	switch c := b.Column(name).(type) {
	case *array.Float32:
		if n == 1 {
			return c.Float32Values(), nil
		}
	case *array.FixedSizeList:
		if values, ok := c.ListValues().(*array.Float32); ok && int(c.DataType().(*arrow.FixedSizeListType).Len()) == n {
			from := c.Data().Offset() * n
			return values.Float32Values()[from : from+c.Len()*n], nil
		}
	}
	return nil, fmt.Errorf("head %q: the batch has no column %s of %d float32 a row: %w", l.head, name, n, pipeline.ErrSchema)
}

// scores fills in what is known of the batch but the predictions, and returns it. It belongs to p.
func (p *Prepared) scores(stage *scoring) (*score.Batch, error) {
	b := &p.scored
	b.Rows, b.Weights = p.in.NumRows, p.in.Weights
	b.Heads, b.Keys = resize(b.Heads, len(stage.schema.Heads)), resize(b.Keys, len(stage.schema.Keys))
	for i, h := range stage.schema.Heads {
		b.Heads[i] = score.Head{Width: h.Width, NumLabels: h.NumLabels, Labels: p.in.Labels[i]}
		if p.in.Mask != nil {
			b.Heads[i].Mask = p.in.Mask[i]
		}
	}
	if b.Rows == 0 {
		b.Keys = b.Keys[:0]
		return b, nil
	}
	for i, column := range stage.columns {
		c, ok := p.batch.Column(column).(*array.Binary)
		if !ok {
			return nil, fmt.Errorf("key %q: the batch has no binary column %s: %w", stage.schema.Keys[i], column, pipeline.ErrSchema)
		}
		b.Keys[i] = score.Key{Offsets: c.ValueOffsets()}
		if values := c.Data().Buffers()[2]; values != nil { // offsets count from its beginning, whatever part of it is a slice's
			b.Keys[i].Bytes = values.Bytes()
		}
	}
	return b, nil
}

// scoring is what the stages downstream of a lookup need of scores.
type scoring struct {
	schema  score.Schema
	columns []string // of the keys
	encoder *score.Encoder
	err     error
}

func newScoring(m model.Model, keys []string) scoring {
	s := scoring{schema: schemaOf(m, keys)}
	for _, k := range keys {
		s.columns = append(s.columns, pipeline.KeyColumn(k))
	}
	s.encoder, s.err = score.NewEncoder(s.schema)
	return s
}

// check looks for the key columns.
func (s *scoring) check(in *arrow.Schema) error {
	if s.err != nil {
		return fmt.Errorf("%w: %w", s.err, pipeline.ErrConfig)
	}
	want := make([]arrow.Field, 0, len(s.columns))
	for _, c := range s.columns {
		want = append(want, arrow.Field{Name: c, Type: arrow.BinaryTypes.Binary})
	}
	return pipeline.CheckColumns(in, want...)
}
