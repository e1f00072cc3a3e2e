package parse

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/pipeline"
)

// Names that libfm records give their parts.
const (
	libfmLabel    = "label"
	libfmFeatures = "features"
)

// program is Options checked and resolved. It is shared by all processors of a stage and does not change.
type program struct {
	Options
	columns  []string // what a record is asked for, in order of first use
	features []feature
	labels   []label
	weight   int   // column number, or -1
	keys     []int // column numbers, in the order of Keys
	lineID   []int
	holdout  holdout
	joins    []join
}

// join is a checked [Join].
type join struct {
	Join
	key     int            // column number in the record
	column  map[string]int // the offered names with prefix -> field
	keyAt   int            // field of the key
	feature []int          // the features that come from here
}

// schema is the schema of what comes out.
func (p *program) schema(time bool) *arrow.Schema {
	var out []arrow.Field
	for _, f := range p.features {
		if f.kind == Dense {
			out = append(out, arrow.Field{Name: f.name, Type: denseType(f.dim)})
			if f.indicator != "" {
				out = append(out, arrow.Field{Name: f.indicator, Type: denseType(1)})
			}
			continue
		}
		out = append(out, arrow.Field{Name: f.name, Type: sparseType})
		if f.values != "" {
			out = append(out, arrow.Field{Name: f.values, Type: valuesType})
		}
	}
	for i := range p.labels {
		l := &p.labels[i]
		out = append(out, arrow.Field{Name: pipeline.LabelColumn(l.name), Type: denseType(l.width)})
		if l.optional {
			out = append(out, arrow.Field{Name: pipeline.MaskColumn(l.name), Type: arrow.FixedWidthTypes.Boolean})
		}
	}
	if p.weight >= 0 {
		out = append(out, arrow.Field{Name: pipeline.ColWeight, Type: arrow.PrimitiveTypes.Float32})
	}
	for _, k := range p.Keys {
		out = append(out, arrow.Field{Name: pipeline.KeyColumn(k.Name), Type: arrow.BinaryTypes.Binary})
	}
	if len(p.lineID) > 0 {
		out = append(out, arrow.Field{Name: pipeline.ColLineID, Type: arrow.BinaryTypes.Binary})
	}
	if time {
		out = append(out, arrow.Field{Name: pipeline.ColTime, Type: arrow.PrimitiveTypes.Int64})
	}
	return arrow.NewSchema(append(out, arrow.Field{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64}), nil)
}
