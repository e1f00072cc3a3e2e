package spec

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/peek"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/pipeline"
)

// ForTarget makes a job that only has a source, for looking into data without a job file: a file or pattern, whose content shows
// what it is, kafka://host:port[,host:port]/topic, or synthetic. Options put keys over it as they do with [Load], such as source.kafka.tls={} or
// parse.format=tsv. Errors: a [*ConfigError] for those, one that wraps [pipeline.ErrConfig] when there is no such source,
// [pipeline.ErrUnavailable] when a file cannot be read.
func ForTarget(target string, opts LoadOptions) (*Config, error) {
	t, err := probe(target, opts.Components.Sources)
	if err != nil {
		return nil, err
	}
	c := &Config{Version: 1, Name: target, set: opts.Components}
	places, faults := schema(opts.Components).Assign(t.sourceKeys(), opts.layers(), c)
	if c.places = places; len(faults) > 0 {
		return nil, &ConfigError{Faults: faults}
	}
	features := c.Parse.Features
	c.derive()
	c.Parse.Features = features // of libfm they are one that says nothing
	if c.Source.usualFormat() != "" && len(c.Source.formats()) > 1 && !places.Set("parse.format") {
		c.Parse.Format = "" // what the records are like is seen when they are read
	}
	return c, nil
}

// sourceKeys are those that make the target the source of a job.
func (r *recognised) sourceKeys() [][2]string {
	keys := [][2]string{{"source." + r.kind.Name, "{}"}}
	for _, k := range r.keys {
		keys = append(keys, [2]string{"source." + r.kind.Name + "." + k[0], k[1]})
	}
	if r.format != "" {
		keys = append(keys, [2]string{"parse.format", r.format})
	}
	if r.header {
		keys = append(keys, [2]string{"parse.header", "true"})
	}
	if r.columns != nil {
		keys = append(keys, [2]string{"parse.columns", "[" + strings.Join(r.columns, ", ") + "]"})
	}
	return keys
}

// SetTarget returns the keys, as [LoadOptions].Set has them, that make predict.source of a job one of a target as of
// [ForTarget]. What csv and tsv files are like, the job's parse.header and parse.columns say, unless the first line has names
// of these columns alone. A nil job says nothing: the first line is then judged by those below it.
func SetTarget(target string, c *Config, set component.Set) (out []string, err error) {
	t, err := probe(target, set.Sources)
	if err != nil {
		return nil, err
	}
	out = append(out, fmt.Sprintf("predict.source={%s: {}}", t.kind.Name)) // in place of what the job says
	for _, k := range t.keys {
		out = append(out, fmt.Sprintf("predict.source.%s.%s=%s", t.kind.Name, k[0], k[1]))
	}
	if t.format != "" {
		out = append(out, "predict.format="+t.format)
	}
	if !delimited(t.format) {
		return out, nil
	}
	header := t.header
	if c != nil && delimited(c.Parse.Format) && (c.Parse.Header || len(c.Parse.Columns) > 0) {
		header = c.Parse.Header || areNames(t.first, c.Parse.Columns)
	}
	return append(out, fmt.Sprintf("predict.header=%v", header)), nil
}

// areNames reports whether all fields of a line are names of columns, each once.
func areNames(fields, columns []string) bool {
	for i, f := range fields {
		if f == "" || !slices.Contains(columns, f) || slices.Contains(fields[:i], f) {
			return false
		}
	}
	return len(fields) > 0
}

// probe finds the source that reads a target, with the keys of its section, and what its records are like.
func probe(target string, kinds []component.Source) (*recognised, error) {
	for _, kind := range kinds {
		if kind.FromTarget == nil {
			continue
		}
		if keys, ok, err := kind.FromTarget(target); ok || err != nil {
			return &recognised{kind: kind, keys: keys}, err
		}
	}
	r, err := recognise(target, kinds)
	if err != nil {
		return nil, err
	}
	if r.kind.Name == "" {
		return nil, fmt.Errorf("job: no source reads %q: %w", target, pipeline.ErrConfig)
	}
	r.keys = [][2]string{{"files", "[" + Quoted(target) + "]"}}
	if !r.kind.Lines || r.format == peek.Text || r.format == peek.Binary {
		r.format = ""
	}
	return r, nil
}

// recognised is what a target, or the beginning of a file, says about itself.
type recognised struct {
	kind    component.Source
	keys    [][2]string // of the source's section
	format  string
	header  bool
	columns []string
	first   []string // the fields of the first line of csv and tsv
}

// headBytes is how much of a file is looked at to know what it is.
const headBytes = 256 << 10

// recognise looks into the first file of a pattern that holds something.
func recognise(pattern string, kinds []component.Source) (*recognised, error) {
	files, err := filesplit.Expand(context.Background(), fsx.Local{}, []string{pattern})
	if none, ok := errors.AsType[*filesplit.NoMatchError](err); ok {
		if info, err := os.Stat(pattern); err == nil && info.IsDir() {
			like := cmp.Or(filesplit.DataIn(pattern), filepath.ToSlash(filepath.Join(pattern, "*")))
			return nil, fmt.Errorf("job: %q is a folder without snapshots; to look at data in it name files, as in %s: %w", pattern, like, pipeline.ErrConfig)
		}
		if filesplit.IsURL(pattern) {
			return nil, fmt.Errorf("job: %w: %w", none, pipeline.ErrConfig)
		}
		return nil, fmt.Errorf("job: %w; a source is a job file, data files, kafka://host:port/topic or synthetic: %w", none, pipeline.ErrConfig)
	}
	if filesplit.Unreadable(err) {
		return nil, fmt.Errorf("job: %w: %w", err, pipeline.ErrUnavailable)
	}
	if err != nil {
		return nil, fmt.Errorf("job: %w: %w", err, pipeline.ErrConfig)
	}
	for _, f := range files {
		head, whole, err := head(f.Path)
		if err != nil {
			return nil, fmt.Errorf("job: %s: %w: %w", f.Path, err, pipeline.ErrUnavailable)
		}
		if len(head) == 0 {
			continue
		}
		r := recogniseHead(f.Name, head, whole, kinds)
		if len(r.columns) > 0 && !whole && !bytes.ContainsRune(head, '\n') {
			return nil, fmt.Errorf("job: %s: its first line has no end within %d bytes, so that its columns are unknown; is it %s? %w", f.Path, len(head), r.format, pipeline.ErrConfig)
		}
		return r, nil
	}
	return nil, fmt.Errorf("job: %q: there is nothing in it to look at: %w", pattern, pipeline.ErrConfig)
}

// head reads the beginning of a file, uncompressed, and says whether that is all of it.
func head(path string) (_ []byte, whole bool, err error) {
	s, err := filesplit.Open(context.Background(), fsx.Local{}, path, filesplit.Auto, tfrecord.IsGzip)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	b, err := io.ReadAll(io.LimitReader(s, headBytes))
	if err != nil && (filesplit.Unreadable(err) || len(b) == 0) {
		return nil, false, err
	}
	return b, len(b) < headBytes, nil // what is damaged further on is for the source to report
}

func recogniseHead(name string, head []byte, whole bool, kinds []component.Source) *recognised {
	var likely, lines *component.Source
	for i, kind := range kinds {
		if kind.Lines {
			lines = &kinds[i]
		}
		if kind.Recognise == nil {
			continue
		}
		switch ok, sure := kind.Recognise(head, extension(name)); {
		case ok && sure:
			return &recognised{kind: kind}
		case ok && likely == nil:
			likely = &kinds[i]
		}
	}
	if likely != nil { // a damaged file, which the source can say more about
		return &recognised{kind: *likely}
	}
	r := &recognised{}
	if lines != nil {
		r.kind = *lines
	}
	r.read(name, head, whole)
	return r
}

// read finds out what lines of text are.
func (r *recognised) read(name string, head []byte, whole bool) {
	lines := peek.Lines(head, whole)
	if records := peek.Records(lines); len(records) < len(lines) && peek.Sniff(lines[:min(len(lines), peek.SniffRecords)], extension(name)) != peek.JSONL {
		lines = records
	}
	lines = lines[:min(len(lines), peek.SniffRecords)]
	ext := extension(name)
	r.format = peek.Sniff(lines, ext)
	// Quotes of csv may hold line ends, so few lines may look like csv.
	if named := peek.FormatOf(ext); r.format == peek.Text && (named == peek.CSV || named == peek.TSV) {
		r.format = named
	}
	if (r.format == peek.CSV || r.format == peek.TSV) && len(lines) > 0 {
		r.first = peek.Names(r.format, lines[0], true)
		if r.header = peek.Header(r.format, lines[0], lines[1:]); !r.header {
			r.columns = peek.Names(r.format, peek.Usual(r.format, lines), false)
		}
	}
}

// extension is that of a file's name, without .gz and in lower case.
func extension(name string) string {
	return filepath.Ext(strings.TrimSuffix(strings.ToLower(name), ".gz"))
}

// Quoted writes a word as YAML.
func Quoted(s string) string { return fmt.Sprintf("%q", s) }
