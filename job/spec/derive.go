package spec

import (
	"path/filepath"
	"strings"
)

// derive fills in the defaults that depend on other values. What was set stays.
func (c *Config) derive() {
	if c.Name == "" {
		file := c.File()
		c.Name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		if file == "" || c.Name == "" {
			c.Name = "job"
		}
	}
	if c.Dir == "" {
		c.Dir = filepath.Join("runs", c.Name)
	}
	if c.Parse.Format == "" {
		c.Parse.Format = c.Source.usualFormat()
	}
	if e := &c.Eval; e.Source != nil && e.Format == "" {
		if e.Format = e.Source.usualFormat(); e.Format == "" || c.Parse.Format == "jsonl" && e.Format != "columns" {
			e.Format = c.Parse.Format
		}
	}
	if b := &c.Backfill; b.Source != nil && b.Format == "" {
		if b.Format = b.Source.usualFormat(); b.Format == "" || c.Parse.Format == "jsonl" && b.Format != "columns" {
			b.Format = c.Parse.Format
		}
	}
	if e := &c.Eval; e.Source != nil {
		deriveColumns(e.Format, &e.Columns, &e.Header, &c.Parse)
	}
	if b := &c.Backfill; b.Source != nil {
		deriveColumns(b.Format, &b.Columns, &b.Header, &c.Parse)
	}
	c.Predict.derive(c)
	c.Parse.derive()
	for i := range c.Heads {
		c.Heads[i].derive(c)
	}
	if p := c.Train.Plateau; p != nil && p.Metric == "" {
		p.Metric = c.decides()
	}
	if e := c.Train.EarlyStop; e != nil && e.Metric == "" {
		e.Metric = c.decides()
	}
}

// decides is the score that says which of several evaluations is the best, where the job names none: auc, or the first metric of the first head.
func (c *Config) decides() string {
	if scores := c.Scores(); len(c.Heads) > 0 && len(scores) > 0 {
		return scores[0]
	}
	return "auc"
}

// deriveColumns takes from parse what other csv and tsv files than those of training do not say otherwise. Files whose first line names the
// columns take no names from parse: theirs may have another order.
func deriveColumns(format string, columns *[]string, header **bool, p *Parse) {
	if !delimited(format) {
		return
	}
	given := *header != nil
	if !given {
		has := p.Header && len(*columns) == 0
		*header = &has
	}
	if len(*columns) == 0 && (!given || !**header) {
		*columns = p.Columns
	}
}

// delimited reports whether a format's records are lines whose columns need names.
func delimited(format string) bool { return format == "csv" || format == "tsv" }

func (p *Parse) derive() {
	if p.Format == "libfm" && len(p.Features) == 0 {
		names := p.Fields
		if len(names) == 0 {
			names = []string{"features"}
		}
		for _, name := range names {
			p.Features = append(p.Features, Feature{Name: name, Kind: "sparse", Type: "auto", Hash: "none", Dim: 1, Combiner: "sum"})
		}
	}
	for i := range p.Joins {
		if j := &p.Joins[i]; j.KeyColumn == "" {
			j.KeyColumn = j.Key
		}
	}
	either := func(a, b *string) {
		if *a == "" {
			*a = *b
		} else if *b == "" {
			*b = *a
		}
	}
	p.Label.derive()
	if p.Weight != nil {
		either(&p.Weight.Name, &p.Weight.Column)
	}
	numbered := false
	for _, f := range p.Features {
		numbered = numbered || f.Slot != nil
	}
	for i := range p.Features {
		f := &p.Features[i]
		if f.Column == "" {
			f.Column = f.Name
		}
		if f.Max > 0 && f.Keep == "" && f.Kind == "sparse" {
			f.Keep = keepFirst
			if f.Attends != "" {
				f.Keep = keepLast
			}
		}
		if f.Kind == "sparse" && !numbered {
			slot := i + 1
			f.Slot = &slot
		}
	}
}
