package parse

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/pipeline"
)

// compiler gathers faults while it builds a program.
type compiler struct {
	program
	known  []string // all columns of a record, or nil when only the records know
	faults []error
}

func (c *compiler) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf(format, args...))
}

// Validate reports every fault of the options for [New] at once, or with an empty Format for [NewColumns]; each wraps
// [pipeline.ErrConfig].
func (o Options) Validate() error {
	_, err := compile(o)
	return err
}

func compile(o Options) (*program, error) {
	c := &compiler{program: program{Options: o, weight: -1}}
	c.format()
	c.sideTables()
	c.outputs()
	c.reserved()
	if len(c.faults) > 0 {
		for i, err := range c.faults {
			c.faults[i] = fmt.Errorf("parse: %w: %w", err, pipeline.ErrConfig)
		}
		return nil, errors.Join(c.faults...)
	}
	return &c.program, nil
}

// oneOf checks an enumerated option.
func oneOf[T ~string](c *compiler, what string, v T, known ...T) {
	if slices.Contains(known, v) {
		return
	}
	var names []string
	for _, k := range known {
		if k != "" {
			names = append(names, string(k))
		}
	}
	c.fault("%s %q is not known%s", what, v, nearest.Suggest(string(v), names))
}

// format checks what belongs to the format as a whole and fills in its defaults.
func (c *compiler) format() {
	oneOf(c, "format", c.Format, "", TFExample, LibFM, CSV, TSV, JSONL)
	text := c.Format == CSV || c.Format == TSV
	if len(c.Columns) > 0 && !text {
		c.fault("columns are for csv and tsv, not for %q", c.Format)
	}
	if c.Delimiter != "" && !text {
		c.fault("a delimiter is for csv and tsv, not for %q", c.Format)
	}
	if len(c.Fields) > 0 && c.Format != LibFM {
		c.fault("fields are for libfm, not for %q", c.Format)
	}
	switch c.Format {
	case CSV:
		if c.Delimiter == "" {
			c.Delimiter = ","
		}
		if len(c.Delimiter) != 1 || strings.ContainsAny(c.Delimiter, "\"\r\n") {
			c.fault("delimiter %q of csv is not one byte other than quote and line end", c.Delimiter)
		}
	case TSV:
		if c.Delimiter == "" {
			c.Delimiter = "\t"
		}
	case LibFM:
		c.known = slices.Clone(c.Fields)
		if len(c.Fields) == 0 {
			c.known = []string{libfmFeatures}
		}
		if len(c.Features) == 0 {
			c.Features = nil
			for i, name := range c.known {
				c.Features = append(c.Features, Feature{Name: name, Slot: i + 1})
			}
		}
		if slices.Contains(c.Fields, libfmLabel) {
			c.fault("field %q has the name of libfm's label", libfmLabel)
		}
		c.duplicates("field", c.Fields)
		c.known = append(c.known, libfmLabel)
	}
	if text {
		c.known = c.Columns
		c.duplicates("column", c.Columns)
	}
}

// duplicates reports names that occurs twice; empty ones are columns to skip.
func (c *compiler) duplicates(what string, names []string) {
	seen := map[string]bool{"": true}
	for _, n := range names {
		if n != "" && seen[n] {
			c.fault("%s %q occurs twice", what, n)
		}
		seen[n] = true
	}
}

// sideTables checks the joins.
func (c *compiler) sideTables() {
	for i, j := range c.Joins {
		what := fmt.Sprintf("join %d (%s)", i+1, j.File)
		if j.File == "" {
			c.fault("join %d has no file", i+1)
		}
		if j.Delimiter == "" {
			j.Delimiter = "\t"
		}
		oneOf(c, what+": encoding", j.Encoding, "", UTF8, Latin1)
		if j.MaxBytes < 0 {
			c.fault("%s: max_bytes is %d", what, j.MaxBytes)
		}
		if j.MaxBytes == 0 {
			j.MaxBytes = 256 << 20
		}
		if j.Key == "" {
			c.fault("%s has no key", what)
		}
		if j.KeyColumn == "" {
			j.KeyColumn = j.Key
		}
		c.duplicates(what+": column", j.Columns)
		checked := join{Join: j, key: c.column(what+": key", j.Key), keyAt: slices.Index(j.Columns, j.KeyColumn), column: map[string]int{}}
		if checked.keyAt < 0 {
			c.fault("%s: there is no column %q%s", what, j.KeyColumn, nearest.Suggest(j.KeyColumn, j.Columns))
		}
		for at, name := range j.Columns {
			if name == "" || at == checked.keyAt {
				continue
			}
			name = j.Prefix + name
			if slices.Contains(c.known, name) {
				c.fault("%s: the record has a column %q too; use a prefix", what, name)
			}
			for k := range c.joins {
				if _, ok := c.joins[k].column[name]; ok {
					c.fault("%s: join %d has a column %q too; use a prefix", what, k+1, name)
				}
			}
			checked.column[name] = at
		}
		c.joins = append(c.joins, checked)
	}
}

// column returns the number of a column of the record, giving it one when it has none.
func (c *compiler) column(what, name string) int {
	if c.known != nil && !slices.Contains(c.known, name) {
		c.fault("%s: there is no column %q%s", what, name, nearest.Suggest(name, c.offered()))
	}
	if i := slices.Index(c.columns, name); i >= 0 {
		return i
	}
	c.columns = append(c.columns, name)
	return len(c.columns) - 1
}

// offered lists the names of all columns that a feature can have.
func (c *compiler) offered() []string {
	names := slices.Clone(c.known)
	for i := range c.joins {
		for name := range c.joins[i].column {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// outputs checks features, labels, weight, keys and line id.
func (c *compiler) outputs() {
	if len(c.Features) == 0 {
		c.fault("there are no features")
	}
	for i := range c.Features {
		c.feature(&c.Features[i], i)
	}
	if c.Format == LibFM && len(c.Labels) == 0 {
		c.Labels = []Label{{}}
	}
	for i := range c.Labels {
		c.addLabel(&c.Labels[i])
	}
	if c.Weight.Column != "" {
		c.weight = c.column("weight", c.Weight.Column)
	}
	c.addHoldout()
	for _, k := range c.Keys {
		column := k.Column
		if column == "" {
			column = k.Name
		}
		if k.Name == "" {
			c.fault("a key has no name")
		}
		c.keys = append(c.keys, c.column(fmt.Sprintf("key %q", k.Name), column))
	}
	for _, name := range c.LineID {
		c.lineID = append(c.lineID, c.column("line_id", name))
	}
}

// reserved checks the names of all outputs.
func (c *compiler) reserved() {
	seen := map[string]bool{}
	check := func(name string) {
		switch {
		case name == "":
			c.fault("a feature has no name")
		case pipeline.Reserved(name):
			c.fault("feature %q has a reserved name", name)
		case seen[name]:
			c.fault("feature %q occurs twice", name)
		}
		seen[name] = true
	}
	twice := func(what string, names []string) {
		for i, n := range names {
			if slices.Contains(names[:i], n) {
				c.fault("%s %q occurs twice", what, n)
			}
		}
	}
	var labels, keys []string
	for _, l := range c.Labels {
		labels = append(labels, l.Name)
	}
	for _, k := range c.Keys {
		keys = append(keys, k.Name)
	}
	twice("label", labels)
	twice("key", keys)
	for _, f := range c.Features {
		check(f.Name)
		if f.Indicator != "" {
			check(f.Indicator)
		}
		if f.Values != "" {
			check(f.Values)
		}
	}
}
