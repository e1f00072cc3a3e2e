package spec

import (
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/decimal"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// Validate reports everything that is wrong with the job at once, as a [*ConfigError], and changes nothing. [Load] has
// called it already; programs that change a job call it again.
func (c *Config) Validate() error { return c.validate(schema(c.set)) }

// validate is Validate with the schema of the job's components, which takes milliseconds to make.
func (c *Config) validate(s *conf.Schema) error {
	v := &validator{c: c, faults: s.Check(c, c.places)}
	if c.Version != 1 && (c.Version != 0 || v.c.places.Set("version")) {
		v.fault("version", "is %d, and this program reads version 1", c.Version)
	}
	v.source(&c.Source, "source", c.Parse.Format)
	if c.SourceName != "" && !sourceName.MatchString(c.SourceName) {
		v.fault("source_name", "is %q; names are letters, digits, dots, dashes and underscores, 64 at most, and begin with a letter or digit", c.SourceName)
	}
	if c.Eval.Source != nil {
		v.source(c.Eval.Source, "eval.source", c.Eval.Format)
		if !c.Eval.Source.Bounded() && c.Eval.MaxExamples == 0 {
			v.fault("eval.source", "never ends; set eval.max_examples or give the source an end")
		}
	}
	for i, id := range c.Snapshot.Exempt {
		if id < 1 {
			v.fault(fmt.Sprintf("snapshot.exempt[%d]", i), "is %d; snapshots are numbered from 1: 12 is snap-00000012", id)
		}
	}
	if strings.ContainsAny(c.Name, "/\\") || c.Name == "." || c.Name == ".." {
		v.fault("name", "is %q; the job's folder is runs/NAME, so a name has no / and no \\, and is not . or ..: choose another, and set dir where the folder is to be elsewhere", c.Name)
	}
	if fsx.IsURL(c.Dir) {
		v.fault("dir", "is the URL of a store, and a job writes to this machine: name a folder, and set snapshot.upload, by which snapshots are copied to a store")
	}
	if c.Snapshot.Upload != "" {
		if _, err := fsx.ParseURL(c.Snapshot.Upload); err != nil {
			v.fault("snapshot.upload", "%v", err)
		}
		if c.PS.Standby.Of(0) != "" {
			v.fault("snapshot.upload", "is not there for a job whose shard 0 has a standby: one process uploads; leave one of the two out, or copy dir/snapshots by other means")
		}
	}
	for i, s := range c.Stages {
		if s.Phases != nil && len(s.Phases) == 0 {
			v.fault(fmt.Sprintf("stages[%d].phases", i), "is empty, and the stage would never run: name train, eval or predict, or leave out the stage")
		}
	}
	v.holdout(&c.Eval)
	v.evalColumns(&c.Eval)
	v.backfill(c)
	v.heads(v.parse(&c.Parse))
	v.tables(c)
	v.retention(c)
	v.inputs(c)
	v.predict(c)
	v.rules(c)
	v.run(c)
	if len(v.faults) == 0 {
		return nil
	}
	return &ConfigError{Faults: v.faults}
}

var sourceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

type validator struct {
	c      *Config
	faults []Fault
}

func (v *validator) fault(path, format string, args ...any) {
	v.faults = append(v.faults, Fault{Where: v.c.places.At(path), Path: path, Message: fmt.Sprintf(format, args...)})
}

func (v *validator) near(path, word string, known []string, format string, args ...any) {
	f := Fault{Where: v.c.places.At(path), Path: path, Message: fmt.Sprintf(format, args...), Suggestion: nearest.Name(word, known)}
	if f.Suggestion == "" && len(known) > 0 {
		f.Message += "; known are " + strings.Join(known, ", ")
	}
	v.faults = append(v.faults, f)
}

func (v *validator) source(s *Source, path, format string) {
	formatPath := "parse.format"
	if path != "source" {
		formatPath = strings.TrimSuffix(path, "source") + "format"
		if v.c.places.At(formatPath).Line == 0 && v.c.places.At("parse.format").Line != 0 {
			formatPath = "parse.format"
		}
	}
	if s.Value() != nil {
		_, blocks := s.Value().(component.Blocks)
		_, columns := s.Value().(component.Columns)
		if !blocks && !columns {
			v.fault(path+"."+s.Name(), "cannot be opened: %T has neither the method OpenBlocks (component.Blocks) nor OpenColumns and Describe (component.Columns); add one of them", s.Value())
		}
	}
	if known := s.formats(); known != nil {
		switch {
		case format == "":
			v.fault(formatPath, "is missing; records of a %s source are one of %s", s.Name(), strings.Join(known, ", "))
		case !slices.Contains(known, format):
			v.fault(formatPath, "is %q, but records of a %s source are one of %s", format, s.Name(), strings.Join(known, ", "))
		}
	}
	v.component(s.Value(), conf.Join(path, s.Name()))
}

// holdout checks how the source is divided. The column is checked with those of metrics.
func (v *validator) holdout(e *Eval) {
	h := e.Holdout
	if h == nil {
		return
	}
	const path = "eval.holdout"
	if e.Source != nil {
		v.fault(path, "is set, and eval.source too; held-out examples come from one of them, so leave out the other")
	} else {
		for key, set := range map[string]bool{"format": e.Format != "", "columns": len(e.Columns) > 0, "header": e.Header != nil} {
			if set {
				v.fault("eval."+key, "is of eval.source; what eval.holdout holds out is read as parse says")
			}
		}
		if !v.c.Source.Bounded() && e.MaxExamples == 0 {
			v.fault(path, "is of a source that never ends; set eval.max_examples or give the source an end")
		}
	}
	switch {
	case h.From != "" && h.Share != 0:
		v.fault(path+".from", "is set, and share too; one of them decides, so leave out the other")
	case h.From != "" && h.By == "":
		v.fault(path+".by", "is missing; say which column from is a value of, such as the time")
	case h.From == "" && h.Share == 0:
		v.fault(path+".share", "is missing; say how much is held out, such as 0.1, or from which value of by on (from)")
	}
	if v.c.Parse.Format == "libfm" && len(v.c.Parse.Fields) == 0 && h.By != "" && h.By != "label" {
		v.fault(path+".by", "is %q, and libfm rows without parse.fields have no columns; leave it out", h.By)
	}
}

// evalColumns looks at where evaluation's columns get their names; a job made in Go may not have derived them.
func (v *validator) evalColumns(e *Eval) {
	header, own := e.Header != nil && *e.Header, len(e.Columns) > 0
	v.unique(e.Columns, "eval.columns")
	switch {
	case e.Source == nil, e.Format == "": // nothing is read, or what it is is asked for already
	case !delimited(e.Format):
		if own {
			v.fault("eval.columns", "is for csv and tsv, not %s", e.Format)
		}
		if header {
			v.fault("eval.header", "is for csv and tsv, not %s", e.Format)
		}
	case header && e.Source.FileList() == nil:
		v.fault("eval.header", "is for files; a %s source has no first line, so name eval.columns", e.Source.Name())
	case !header && !own:
		v.fault("eval.columns", "is missing; name the columns, or set eval.header when the first line does")
	case !slices.Equal(e.Columns, v.c.Parse.Columns): // else the faults are those of parse
		v.evalHas(e.Columns, &v.c.Parse)
	}
}

// evalHas looks for the columns that parsing reads among those that evaluation's files have by the job.
func (v *validator) evalHas(columns []string, p *Parse) {
	if len(columns) == 0 {
		return
	}
	known := slices.DeleteFunc(slices.Clone(columns), func(s string) bool { return s == "" })
	var reads []string
	for _, j := range p.Joins {
		reads = append(reads, j.Key)
		for _, col := range j.Columns {
			if col != "" && col != j.KeyColumn {
				known = append(known, j.Prefix+col)
			}
		}
	}
	for _, f := range p.Features {
		reads = append(reads, f.Column)
	}
	for _, h := range v.c.AllHeads() {
		reads = append(reads, h.Label.Column)
		if h.Mask != nil {
			reads = append(reads, h.Mask.Column)
		}
	}
	reads = append(reads, v.c.Keys()...)
	if p.Weight != nil {
		reads = append(reads, p.Weight.Column)
	}
	for i, name := range reads {
		if name != "" && !slices.Contains(known, name) && !slices.Contains(reads[:i], name) {
			v.fault("eval.columns", "has no %q, which parse reads", name)
		}
	}
}

// component has a section check itself.
func (v *validator) component(section any, path string) {
	if c, ok := section.(component.Checker); ok {
		c.Check(v.report(path))
	}
}

// report puts the path of a section before the keys of its faults.
func (v *validator) report(path string) component.Report {
	return func(key, format string, args ...any) {
		if key != "" {
			key = "." + key
		}
		v.fault(path+key, format, args...)
	}
}

func validPort(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= 0 && n <= 65535
}

var positiveForm = regexp.MustCompile(`^\s*(>=|<=|==|!=|>|<)\s*(\S|\S.*\S)\s*$`)

// Op splits the label's positive form into an operator and a number, or the operator == or != and a text that is none; ok is false when it
// is empty or malformed.
func (l Label) Op() (op string, number float64, text string, ok bool) {
	m := positiveForm.FindStringSubmatch(l.Positive)
	if m == nil {
		return "", 0, "", false
	}
	x, err := decimal.Parse(m[2], 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax) && (m[1] == "==" || m[1] == "!="):
		return m[1], 0, m[2], true
	case err != nil || math.IsNaN(x) || math.IsInf(x, 0):
		return "", 0, "", false
	}
	return m[1], x, "", true
}

// parse checks how records are parsed and returns the columns known before any data is read; nil: not known.
func (v *validator) parse(p *Parse) (known []string) {
	text := p.Format == "csv" || p.Format == "tsv"
	if text && !p.Header && len(p.Columns) == 0 {
		v.fault("parse.columns", "is missing; name the columns, or set parse.header when the first line does")
	}
	if p.Header && !text {
		v.fault("parse.header", "is for csv and tsv, not %s", p.Format)
	}
	if s := &v.c.Source; p.Header && s.Value() != nil && s.FileList() == nil {
		v.fault("parse.header", "is for files; a %s source has no first line, so name parse.columns", s.Name())
	}
	if len(p.Columns) > 0 && !text {
		v.fault("parse.columns", "is for csv and tsv, not %s", p.Format)
	}
	if len(p.Fields) > 0 && p.Format != "libfm" {
		v.fault("parse.fields", "is for libfm, not %s", p.Format)
	}
	v.unique(p.Columns, "parse.columns")
	v.unique(p.Fields, "parse.fields")
	if p.Label.Name == "" && len(v.c.Heads) == 0 && p.Format != "" && p.Format != "libfm" && !v.c.Source.selfDescribing() {
		v.fault("parse.label", "is missing; name the label's column")
	}
	known = v.joins(p)
	v.label(&p.Label, "parse.label", known)
	if p.Weight != nil {
		v.column(p.Weight.Column, nameOrColumn("parse.weight", p.Weight.Name, p.Weight.Column), known)
	}
	v.features(p, known)
	return known
}

// inputs has the model check its features and heads, where they are right by themselves.
func (v *validator) inputs(c *Config) {
	m, ok := c.Model.Value().(component.InputChecker)
	wrong := func(f Fault) bool {
		return slices.ContainsFunc([]string{"model", "parse", "heads", "tables"}, func(section string) bool { return strings.HasPrefix(f.Path, section) })
	}
	if !ok || slices.ContainsFunc(v.faults, wrong) {
		return
	}
	text := delimited(c.Parse.Format)
	var in []component.Input
	for _, f := range c.Parse.Features {
		one := f.Max == 1 || text && f.Split == "" || c.Parse.Format == "libfm" && len(c.Parse.Fields) > 0
		g := component.Input{Name: f.Name, Dense: f.Kind == "dense", Width: f.Dim, Many: f.Kind == "sparse" && !one, Table: f.Table, Attends: f.Attends}
		if i := slices.IndexFunc(c.Tables, func(t Table) bool { return t.Name == f.Table && t.Dim != nil }); i >= 0 {
			g.Dim = *c.Tables[i].Dim
		}
		if f.Combiner == "first" {
			g.First = f.Max
		}
		in = append(in, g)
		if name := f.Indicator(); name != "" {
			in = append(in, component.Input{Name: name, Dense: true, Width: 1})
		}
	}
	var heads []component.Head
	for _, h := range c.Heads {
		heads = append(heads, component.Head{Name: h.Name, Loss: h.Loss, Width: max(h.Classes, 1)})
	}
	m.CheckInputs(in, heads, v.report(conf.Join("model", c.Model.Name())))
}

// rules checks that a model with rules of its own is given no others.
func (v *validator) rules(c *Config) {
	if m, ok := c.Model.Value().(component.OwnRules); !ok || !m.OwnRules() {
		return
	}
	for _, path := range []string{"optimizer.dense", "optimizer.sparse", "optimizer.bias", "optimizer.l1", "optimizer.delay_compensation", "optimizer.clip", "optimizer.schedules", "optimizer.compress", "ps.storage"} {
		if v.c.places.Set(path) {
			v.fault(path, "is not for model %s, which brings its rules along; leave it out", c.Model.Name())
		}
	}
	if len(c.Tables) > 0 {
		v.fault("tables", "are not for model %s, which brings its tables along; leave them out", c.Model.Name())
	}
}

// tables checks that features and tables name each other, and what is for sparse features alone. The model checks the rest.
func (v *validator) tables(c *Config) {
	var names []string
	for _, t := range c.Tables {
		names = append(names, t.Name)
	}
	v.unique(names, "tables")
	v.schedule("optimizer.schedules.dense", &c.Optimizer.Schedules.Dense)
	v.compress("optimizer.compress", &c.Optimizer.Compress)
	v.rowSchedules("optimizer.schedules", &c.Optimizer.Schedules.RowSchedules)
	delays := &c.Optimizer.DelayCompensation
	v.delays("optimizer.delay_compensation", max(delays.Dense, delays.Sparse, delays.Bias))
	for i, t := range c.Tables {
		if t.DelayCompensation != nil {
			v.delays(fmt.Sprintf("tables[%d].delay_compensation", i), max(t.DelayCompensation.Sparse, t.DelayCompensation.Bias))
		}
		if t.Compress != nil {
			v.compress(fmt.Sprintf("tables[%d].compress", i), t.Compress)
		}
		if t.Schedules != nil {
			v.rowSchedules(fmt.Sprintf("tables[%d].schedules", i), t.Schedules)
		}
	}
	var sparse, used []string
	for _, f := range c.Parse.Features {
		if f.Kind != "dense" {
			sparse, used = append(sparse, f.Name), append(used, f.Table)
		}
	}
	for i, f := range c.Parse.Features {
		path := fmt.Sprintf("parse.features[%d]", i)
		switch {
		case f.Kind == "dense" && f.Table != "":
			v.fault(path+".table", "is for sparse features")
		case f.Kind == "dense" && f.Attends != "":
			v.fault(path+".attends", "is for sparse features")
		case f.Attends != "" && !slices.Contains(sparse, f.Attends):
			v.near(path+".attends", f.Attends, sparse, "%q is no sparse feature", f.Attends)
		}
	}
	for i, name := range names {
		if !slices.Contains(used, name) {
			v.near(fmt.Sprintf("tables[%d].name", i), name, used, "%q is the table of no feature", name)
		}
	}
}

// delays refuses to make up for delays that there are none of, or that would be rounding.
func (v *validator) delays(path string, largest float64) {
	switch {
	case largest <= 0:
	case v.c.Deterministic:
		v.fault(path, "makes up for updates of other workers, which deterministic mode has none of; leave it out")
	case v.c.PS.Precision != "float32":
		v.fault(path, "is by how much a row differs from what a worker was given, which is rounded by ps.precision: %s; leave out one of them", v.c.PS.Precision)
	}
}

func (v *validator) unique(names []string, path string) {
	for i, n := range names {
		if j := slices.Index(names, n); n != "" && j < i {
			v.fault(fmt.Sprintf("%s[%d]", path, i), "is %q, which is at [%d] already", n, j)
		}
	}
}

// joins checks the side tables and returns the columns known before any data is read; nil: not known.
func (v *validator) joins(p *Parse) []string {
	known := slices.DeleteFunc(slices.Clone(p.Columns), func(s string) bool { return s == "" })
	switch {
	case len(p.Fields) > 0:
		known = slices.Clone(p.Fields)
	case p.Format == "libfm":
		known = []string{"features"}
	}
	closed := len(known) > 0
	for i, j := range p.Joins {
		path := fmt.Sprintf("parse.joins[%d]", i)
		if closed && !slices.Contains(known, j.Key) {
			v.near(path+".key", j.Key, known, "is %q, which is no column of the rows", j.Key)
		}
		if len(j.Columns) > 0 && j.KeyColumn != "" && !slices.Contains(j.Columns, j.KeyColumn) {
			v.near(path+".key_column", j.KeyColumn, j.Columns, "is %q, which is no column of the side table", j.KeyColumn)
		}
		v.unique(j.Columns, path+".columns")
		if j.Delimiter == "" {
			v.fault(path+".delimiter", "is empty")
		}
		if closed {
			for _, col := range j.Columns {
				if name := j.Prefix + col; col != "" && col != j.KeyColumn {
					if slices.Contains(known, name) {
						v.fault(path+".columns", "add %q, which is a column already; set a prefix", name)
					}
					known = append(known, name)
				}
			}
		}
	}
	if !closed {
		return nil
	}
	return known
}

func (v *validator) column(name, path string, known []string) {
	if known != nil && name != "" && !slices.Contains(known, name) {
		v.near(path, name, known, "is %q, which is no column", name)
	}
}

func (v *validator) features(p *Parse, known []string) {
	if len(p.Features) == 0 && p.Format != "" && !v.c.Source.selfDescribing() {
		v.fault("parse.features", "is missing; a model needs inputs")
	}
	seen := map[string]int{}
	slots := 0
	for _, f := range p.Features {
		if f.Slot != nil {
			slots++
		}
	}
	for i, f := range p.Features {
		path := fmt.Sprintf("parse.features[%d]", i)
		if j, dup := seen[f.Name]; dup && f.Name != "" {
			v.fault(path+".name", "is %q, which is already the name of parse.features[%d]", f.Name, j)
		}
		seen[f.Name] = i
		if len(f.Name) >= 4 && strings.HasPrefix(f.Name, "__") && strings.HasSuffix(f.Name, "__") {
			v.fault(path+".name", "is %q; names between double underscores are reserved", f.Name)
		}
		v.column(f.Column, path+".column", known)
		if _, err := regexp.Compile(f.Regexp); err != nil {
			v.fault(path+".regexp", "%v", err)
		}
		switch f.Kind {
		case "sparse":
			if f.Slot == nil && slots > 0 {
				v.fault(path+".slot", "is missing; other features name theirs")
			}
			v.buckets(path, f)
			for _, k := range []struct {
				key string
				set bool
			}{{"clip", f.Clip != nil}, {"log", f.Log}, {"standardise", f.Standardise != nil}} {
				if k.set {
					v.fault(path+"."+k.key, "is for dense features; set kind: dense")
				}
			}
			if f.Type == "string" && f.Hash == "none" && v.c.places.Set(path+".hash") {
				v.fault(path+".hash", "is none, but strings are always hashed")
			}
			if f.Keep != "" && f.Max == 0 {
				v.fault(path+".keep", "is %s, but max is 0, which keeps all values; set max too", f.Keep)
			}
			if f.Combiner == "first" && f.Max == 0 {
				v.fault(path+".max", "is missing; combiner: first puts so many side by side")
			}
			if f.Combiner == "first" && f.Attends != "" {
				v.fault(path+".combiner", "is first, but its entries are pooled by attention; leave out combiner or attends")
			}
			if f.Dim != 1 {
				v.fault(path+".dim", "is for dense features; a sparse feature's vectors have the model's dim")
			}
		case "dense":
			if f.Slot != nil {
				v.fault(path+".slot", "is for sparse features")
			}
			if f.Keep != "" {
				v.fault(path+".keep", "is for sparse features")
			}
			if f.Buckets != nil {
				v.fault(path+".buckets", "make ids of numbers; set kind: sparse and a slot")
			}
			if n := len(f.Clip); f.Clip != nil && (n != 2 || f.Clip[0] >= f.Clip[1]) {
				v.fault(path+".clip", "is %v, not [lo, hi], a lower and an upper bound", f.Clip)
			}
			if name := f.Indicator(); name != "" && slices.ContainsFunc(p.Features, func(g Feature) bool { return g.Name == name }) {
				v.fault(path+".missing", "adds a feature %q, but there is one already", name)
			}
			if f.Hash == "hash" || f.Type == "string" {
				v.fault(path, "is dense, so its value is a number, not a hashed string")
			}
			if _, err := strconv.ParseFloat(deflt(f.Default), 64); f.Default != nil && err != nil {
				v.fault(path+".default", "is %q, not a number", *f.Default)
			}
		}
	}
}

// buckets checks what makes a sparse feature of a number.
func (v *validator) buckets(path string, f Feature) {
	if f.Buckets == nil {
		if f.Missing == "indicator" {
			v.fault(path+".missing", "is indicator, which is for numbers: dense features, or sparse ones with buckets; here a default such as \"none\" is an id of its own")
		}
		return
	}
	for i := 1; i < len(f.Buckets); i++ {
		if f.Buckets[i] <= f.Buckets[i-1] {
			v.fault(fmt.Sprintf("%s.buckets[%d]", path, i), "is %v, not above the boundary before it", f.Buckets[i])
		}
	}
	if f.Type == "int" || f.Type == "string" || f.Hash == "hash" {
		v.fault(path+".buckets", "are of numbers; leave type and hash out")
	}
	if f.Missing == "indicator" && f.Default != nil {
		v.fault(path+".default", "stands for missing values, which missing: indicator gives an id of their own")
	}
	if _, err := strconv.ParseFloat(deflt(f.Default), 64); f.Default != nil && err != nil {
		v.fault(path+".default", "is %q, not a number", *f.Default)
	}
}

func deflt(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// ps checks what concerns several keys of the parameter server.
func (v *validator) ps(p *PS) {
	seen := map[string]bool{}
	address := func(path, addr string) {
		if strings.Contains(addr, "|") {
			v.fault(path, "is %q; an address has no \"|\", which stands between the two of a shard with a standby", addr)
		}
		if _, port, err := net.SplitHostPort(addr); strings.HasPrefix(addr, "unix:") {
			if len(addr) == len("unix:") {
				v.fault(path, "is %q, without the path of the socket", addr)
			}
		} else if err != nil || port == "0" || !validPort(port) {
			v.fault(path, "is %q, neither host:port, such as 127.0.0.1:7000, nor unix:/path", addr)
		}
		if seen[addr] {
			v.fault(path, "%s is the address of two shards", addr)
		}
		seen[addr] = true
	}
	for i, addr := range p.Addresses {
		address(fmt.Sprintf("ps.addresses[%d]", i), addr)
	}
	for i, addr := range p.Standby.Addresses {
		path := fmt.Sprintf("ps.standby.addresses[%d]", i)
		switch {
		case addr == "":
			continue
		case i == 0 && p.Standby.Witness(len(p.Addresses)) == 0:
			v.fault(path, "is the standby of shard 0, and no shard decides which of the two is in charge; that takes a shard without a standby: add one to ps.addresses, or leave one \"\" in ps.standby.addresses")
		case i >= len(p.Addresses):
			v.fault(path, "is of a shard that is not there: ps.addresses has %d", len(p.Addresses))
		case p.Durability != "wal":
			v.fault(path, "a standby follows the log; set ps.durability: wal")
		}
		address(path, addr)
	}
	if n := len(p.Addresses); n > 0 && p.Shards != 1 && p.Shards != n {
		v.fault("ps.shards", "is %d, but there are %d addresses; leave it out", p.Shards, n)
	}
	if p.Lease <= 0 {
		v.fault("ps.lease", "is %v, not above 0", p.Lease)
	}
	if err := p.TLS.Check(); err != nil {
		v.fault("ps.tls", "%v", err)
	}
	v.allow(p)
}

// allow checks who may do what.
func (v *validator) allow(p *PS) {
	a := &p.Allow
	if a.IsZero() {
		return
	}
	for _, x := range []struct {
		key   string
		right secure.Right
		who   *Callers
	}{{"read", secure.Read, &a.Read}, {"train", secure.Train, &a.Train}, {"coordinate", secure.Coordinate, &a.Coordinate}} {
		if x.who.IsZero() {
			continue
		}
		rule := secure.Rule{Right: x.right, Names: x.who.Names}
		if !x.who.Token.IsZero() {
			rule.Token = x.who.Token.Resolve
		}
		if err := rule.Check(); err != nil {
			v.fault("ps.allow."+x.key, "%v", err)
		}
		if len(x.who.Names) > 0 && (p.TLS == nil || p.TLS.CA == "") {
			v.fault("ps.allow."+x.key+".names", "needs ps.tls.ca: nobody shows a certificate otherwise")
		}
	}
	if a.Coordinate.IsZero() {
		v.fault("ps.allow.coordinate", "is not set, so that shard 0 could not give the other shards their state")
	}
}

// run checks what depends on several sections.
func (v *validator) run(c *Config) {
	if c.Source.Name() != "" && !c.Source.Bounded() {
		if c.Epochs > 1 {
			v.fault("epochs", "is %d, but the source never ends", c.Epochs)
		}
		if c.Shuffle.Rows != 0 {
			v.fault("shuffle.rows", "is %d, but only a bounded source can be shuffled", c.Shuffle.Rows)
		}
	}
	t := &c.Train
	if c.Deterministic {
		if t.Workers > 1 {
			v.fault("train.workers", "is %d, but deterministic mode needs 1", t.Workers)
		}
		if t.MaxBatchDelay != nil && *t.MaxBatchDelay > 0 {
			v.fault("train.max_batch_delay", "makes batches depend on the clock, which deterministic mode forbids")
		}
	}
	if c.Shuffle.OneSplit && t.Workers > 1 {
		v.fault("train.workers", "is %d, but shuffle.one_split leaves one split, so one worker can read", t.Workers)
	}
	v.ps(&c.PS)
	switch {
	case t.OnBadRow == "dead_letter" && t.DeadLetter == nil:
		v.fault("train.dead_letter", "is missing; say where bad rows go")
	case t.OnBadRow != "dead_letter" && t.DeadLetter != nil:
		v.fault("train.dead_letter", "is set, but train.on_bad_row is %s; set it to dead_letter", t.OnBadRow)
	}
	if d := t.DeadLetter; d != nil && d.Value() != nil {
		path := conf.Join("train.dead_letter", d.Name())
		if ok, key, hint := d.Value().Shared(); !ok && c.PS.Remote() {
			v.report(path)(key, "%s", hint)
		}
		v.component(d.Value(), path)
	}
	v.outputs(c)
	v.beam(c)
	v.schedule("train.schedule", &t.Schedule)
	if from, _ := c.EvalSource(); from == nil {
		if t.Plateau != nil {
			v.fault("train.plateau", "needs eval.source or eval.holdout to measure on")
		}
		if t.EarlyStop != nil {
			v.fault("train.early_stop", "needs eval.source or eval.holdout to measure on")
		}
	} else {
		if t.Plateau != nil {
			v.measured("train.plateau.metric", t.Plateau.Metric)
		}
		if t.EarlyStop != nil {
			v.measured("train.early_stop.metric", t.EarlyStop.Metric)
		}
	}
	if c.Metrics.Listen != "" {
		if _, port, err := net.SplitHostPort(c.Metrics.Listen); err != nil || !validPort(port) {
			v.fault("metrics.listen", "is %q, not host:port such as 127.0.0.1:9090", c.Metrics.Listen)
		}
	}
}

// schedule checks what its kind makes of its settings; each alone has a range.
func (v *validator) schedule(path string, s *Schedule) {
	constant := s.Kind == optim.ConstantSchedule
	switch {
	case !constant && s.Over == 0:
		v.fault(path+".over", "is missing; say over how many examples %s goes", s.Kind)
	case constant && s.Over > 0:
		v.fault(path+".over", "is set, but %s.kind is constant; say how the rates change: polynomial, exponential or cosine", path)
	}
	if s.Staircase && s.Kind != optim.ExponentialSchedule {
		v.fault(path+".staircase", "is of exponential, and %s.kind is %s", path, s.Kind)
	}
	if s.Cycle && s.Kind != optim.PolynomialSchedule && s.Kind != optim.CosineSchedule {
		v.fault(path+".cycle", "is of polynomial and cosine, and %s.kind is %s", path, s.Kind)
	}
}

// compress checks that what is set is of its kind.
func (v *validator) compress(path string, c *Compress) {
	for _, of := range []struct{ key, kind string }{{"range", param.CompressFixedR8}, {"amplitude", param.CompressOneBit}, {"every", param.CompressOneBit}} {
		if key := path + "." + of.key; c.Kind != of.kind && v.c.places.Set(key) {
			v.fault(key, "is of %s, and %s.kind is %s", of.kind, path, c.Kind)
		}
	}
}

// rowSchedules checks those of rows.
func (v *validator) rowSchedules(path string, s *RowSchedules) {
	v.schedule(path+".sparse", &s.Sparse)
	v.schedule(path+".bias", &s.Bias)
}

func (v *validator) outputs(c *Config) {
	places := map[string]string{}
	v.outputList(c.Outputs, "outputs", places)
	v.outputList(c.Eval.Outputs, "eval.outputs", places)
	if p := c.Predict.To; p != nil && p.Value() != nil {
		if key, place := p.Value().Place(); place != "" && places[place] != "" {
			v.report(conf.Join("predict.to", p.Name()))(key, "is that of output %s; name another place for the predictions", places[place])
		}
	}
	v.places(c)
}

// outputList checks a list of outputs; places are those of lists before, by whose output it is.
func (v *validator) outputList(list []Output, at string, places map[string]string) {
	names := map[string]bool{}
	for i := range list {
		o := &list[i]
		path := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case names[o.Name]:
			v.fault(path+".name", "is %q, as that of another output", o.Name)
		case strings.ContainsAny(o.Name, "/ \t\n"):
			v.fault(path+".name", "is %q; a name has neither slashes nor blanks", o.Name)
		}
		names[o.Name] = true
		to := o.To.Value()
		if to == nil {
			continue
		}
		path = conf.Join(path+".to", o.To.Name())
		if key, place := to.Place(); place != "" {
			if other, ok := places[place]; ok {
				v.report(path)(key, "is that of output %s; their rows would not be distinguishable, so give each its own", other)
			}
			places[place] = o.Name
		}
		v.component(to, path)
	}
}

func (v *validator) measured(path, metric string) {
	if computed := v.c.Scores(); !slices.Contains(computed, metric) {
		where := "eval.metrics does"
		if len(v.c.Heads) > 0 {
			where = "the heads' metrics do"
		}
		v.near(path, metric, computed, "is %s, which %s not compute", metric, where)
	}
	if v.c.Eval.Every != "epoch" {
		v.fault(path, "needs eval.every: epoch, not %s", v.c.Eval.Every)
	}
}
