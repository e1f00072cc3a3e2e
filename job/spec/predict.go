package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/conf"
)

// Predict is what `monolith predict` scores, and where it writes that: docs/predict.md describes it.
type Predict struct {
	// Source is where the examples come from. They need neither labels nor weights. Default: the job's source, read once and in order.
	Source *Source `yaml:"source"`
	// Format overrides parse.format for these examples.
	Format string `yaml:"format" enum:"tf_example|libfm|csv|tsv|jsonl|columns"`
	// Columns names the columns of these examples' csv and tsv files. Default: parse.columns, unless header says that the files name
	// them.
	Columns []string `yaml:"columns" blank:"true"`
	// Header is true when the first line of each of these csv or tsv files names the columns. Default: parse.header, or false when
	// columns names them here.
	Header *bool `yaml:"header"`
	// Fields are the columns that are written, in this order: columns of the records, as the text that is there, and the words
	// prediction and logit (of all heads, or with _HEAD after it of one), label (null where a record has none), weight, time (of the
	// event), position (after the record, in its split), split, feature.NAME (a feature as it was parsed: fids, or numbers) and
	// column.NAME (a column that has the name of such a word). The predictions come after all others where they are not named.
	// Default: the label, where records may have one, and the predictions.
	Fields []string `yaml:"fields"`
	// To is where predictions are written.
	To *OutputTo `yaml:"to"`
}

// Prefixes of [Predict].Fields.
const (
	FieldFeature = "feature."
	FieldColumn  = "column."
)

// derive takes from the job what the section does not say.
func (p *Predict) derive(c *Config) {
	if p.Source == nil {
		return
	}
	if p.Format == "" {
		if p.Format = p.Source.usualFormat(); p.Format == "" || c.Parse.Format == "jsonl" && p.Format != "columns" {
			p.Format = c.Parse.Format
		}
	}
	deriveColumns(p.Format, &p.Columns, &p.Header, &c.Parse)
}

// predict checks the section.
func (v *validator) predict(c *Config) {
	p := &c.Predict
	if s := p.Source; s != nil {
		v.source(s, "predict.source", p.Format)
		v.linesOf("predict", s, p.Format, p.Columns, p.Header)
	}
	for i, f := range p.Fields {
		path := fmt.Sprintf("predict.fields[%d]", i)
		switch {
		case f == "" || f == FieldFeature || f == FieldColumn:
			v.fault(path, "is %q, which names no column", f)
		case slices.Index(p.Fields, f) < i:
			v.fault(path, "is %q, which is there already", f)
		case strings.HasPrefix(f, FieldFeature):
			var names []string
			for _, g := range c.Parse.Features {
				names = append(names, g.Name)
				if g.Indicator() != "" {
					names = append(names, g.Indicator())
				}
			}
			if name := strings.TrimPrefix(f, FieldFeature); len(names) > 0 && !slices.Contains(names, name) {
				v.near(path, name, names, "is %q, and there is no such feature", f)
			}
		}
	}
	if p.To == nil || p.To.Value() == nil {
		return
	}
	to := p.To.Value()
	path := conf.Join("predict.to", p.To.Name())
	v.component(to, path)
}

// linesOf checks what a section with files of its own says of their lines: columns and header are keys of it.
func (v *validator) linesOf(section string, s *Source, format string, columns []string, header *bool) {
	named, own := header != nil && *header, len(columns) > 0
	v.unique(columns, section+".columns")
	switch {
	case format == "":
	case !delimited(format):
		if own {
			v.fault(section+".columns", "is for csv and tsv, not %s", format)
		}
		if named {
			v.fault(section+".header", "is for csv and tsv, not %s", format)
		}
	case named && s.Value() != nil && s.FileList() == nil:
		v.fault(section+".header", "is for files; a %s source has no first line, so name %s.columns", s.Name(), section)
	case !named && !own:
		v.fault(section+".columns", "is missing; name the columns, or set %s.header when the first line does", section)
	}
}
