package spec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/peek"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/pipeline"
)

// ForTarget makes a job that only has a source, for looking into data without a job file: a file or pattern, whose content tells
// what it is, kafka://host:port[,host:port]/topic, or synthetic. Options put keys over it as they do with [Load], such as source.kafka.tls={} or
// parse.format=tsv. Errors: a [*ConfigError] for those, one that wraps [pipeline.ErrConfig] when there is no such source,
// [pipeline.ErrUnavailable] when a file cannot be read.
func ForTarget(target string, opts LoadOptions) (*Config, error) {
	var keys [][2]string
	set := func(path, value string) { keys = append(keys, [2]string{path, value}) }
	if rest, ok := strings.CutPrefix(target, "kafka://"); ok {
		brokers, topic, _ := strings.Cut(rest, "/")
		topic, err := url.PathUnescape(topic)
		if err != nil || brokers == "" || topic == "" {
			return nil, fmt.Errorf("job: %q is not kafka://host:port/topic: %w", target, pipeline.ErrConfig)
		}
		set("source.kafka.brokers", brokers)
		set("source.kafka.topic", topic)
	} else if _, err := os.Stat(target); target == "synthetic" && errors.Is(err, os.ErrNotExist) {
		set("source.synthetic", "{}")
		set("source.synthetic.examples", "0")
	} else {
		f, err := recognise(target)
		if err != nil {
			return nil, err
		}
		set("source."+f.kind+".files", "["+Quoted(target)+"]")
		if f.kind == "text" && f.format != peek.Text && f.format != peek.Binary {
			set("parse.format", f.format)
		}
		if f.header {
			set("parse.header", "true")
		}
		if f.columns != nil {
			set("parse.columns", "["+strings.Join(f.columns, ", ")+"]")
		}
	}
	c := &Config{Version: 1, Name: target}
	places, faults := schema().Assign(keys, opts, c)
	if c.places = places; len(faults) > 0 {
		return nil, &ConfigError{Faults: faults}
	}
	features := c.Parse.Features
	c.derive()
	c.Parse.Features = features // of libfm they are one that says nothing
	if c.Source.TFRecord != nil && !places.Set("parse.format") {
		c.Parse.Format = "" // what the records are like is seen when they are read
	}
	return c, nil
}

// recognised is what the beginning of a file says about it.
type recognised struct {
	kind, format string
	header       bool
	columns      []string
}

// headBytes is how much of a file is looked at to know what it is.
const headBytes = 256 << 10

// recognise looks into the first file of a pattern that holds something.
func recognise(pattern string) (*recognised, error) {
	files, err := filesplit.Expand(context.Background(), fsx.Local{}, []string{pattern})
	if none, ok := errors.AsType[*filesplit.NoMatchError](err); ok {
		if info, err := os.Stat(pattern); err == nil && info.IsDir() {
			return nil, fmt.Errorf("job: %q is a folder without snapshots; to look at data in it name files, as in %s: %w", pattern, filepath.ToSlash(filepath.Join(pattern, "*")), pipeline.ErrConfig)
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
		r := recogniseHead(f.Name, head, whole)
		if len(r.columns) > 0 && !whole && !bytes.ContainsRune(head, '\n') {
			return nil, fmt.Errorf("job: %s: its first line has no end within %d bytes, so that its columns cannot be told; is it %s? %w", f.Path, len(head), r.format, pipeline.ErrConfig)
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

func recogniseHead(name string, head []byte, whole bool) *recognised {
	if bytes.HasPrefix(head, []byte("PAR1")) {
		return &recognised{kind: "parquet"}
	}
	if len(head) >= 12 {
		_, err := tfrecord.NewReader(bytes.NewReader(head), nil).Next()
		if corrupt, ok := errors.AsType[*tfrecord.CorruptError](err); err == nil || ok && corrupt.Reason != tfrecord.ReasonLength {
			return &recognised{kind: "tfrecord"}
		}
	}
	switch ext := extension(name); ext { // a damaged file, which the source can say more about
	case ".parquet":
		return &recognised{kind: "parquet"}
	case ".tfrecord", ".tfrecords":
		return &recognised{kind: "tfrecord"}
	}
	lines := bytes.Split(bytes.TrimPrefix(head, []byte("\ufeff")), []byte{'\n'})
	if !whole {
		lines = lines[:max(1, len(lines)-1)] // the last one is cut
	}
	lines = slices.DeleteFunc(lines, func(l []byte) bool { return len(bytes.TrimSpace(l)) == 0 })
	lines = lines[:min(len(lines), 100)]
	r := &recognised{kind: "text", format: peek.Sniff(lines)}
	if ext := extension(name); ext == ".csv" || ext == ".tsv" { // also when its quotes hold line ends
		r.format = ext[1:]
	}
	if (r.format == peek.CSV || r.format == peek.TSV) && len(lines) > 0 {
		if r.header = peek.Header(r.format, lines[0], lines[1:]); !r.header {
			r.columns = peek.Names(r.format, lines[0], false)
		}
	}
	return r
}

// extension is that of a file's name, without .gz and in lower case.
func extension(name string) string {
	return filepath.Ext(strings.TrimSuffix(strings.ToLower(name), ".gz"))
}

// Quoted writes a word as YAML.
func Quoted(s string) string { return fmt.Sprintf("%q", s) }
