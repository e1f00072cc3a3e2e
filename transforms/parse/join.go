package parse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"unicode/utf8"

	"github.com/monolith-go/monolith/internal/foreign"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/pipeline"
)

// side is a side table in memory: not its lines but what the features that come from it are made of, worked out once
// for each line. It is read-only after [loadSides] and shared by the processors of a worker.
type side struct {
	rows   map[string]int32 // key -> row
	output []output         // by the order of join.feature
	filled [][]bool         // of each output: the rows with a value
	cut    [][]bool         // of each output: the rows with more values than the maximum
	errs   []map[int32]error
}

// sides are the side tables of a program, in the order of its joins.
type sides []*side

// Close implements io.Closer for [pipeline.Resource]; there is nothing to close.
func (sides) Close() error { return nil }

func loadSides(ctx context.Context, from fsx.FS, p *program) (sides, error) {
	var out sides
	for i := range p.joins {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		s, err := loadSide(ctx, from, p, &p.joins[i])
		if err != nil {
			return nil, fmt.Errorf("parse: join: %w", err)
		}
		out = append(out, s)
	}
	return out, nil
}

func loadSide(ctx context.Context, from fsx.FS, p *program, j *join) (*side, error) {
	text, err := readBounded(ctx, from, j.File, j.MaxBytes)
	if err != nil {
		return nil, err
	}
	if what := foreign.Table(text[:min(len(text), foreign.HeadBytes)]); what != "" {
		return nil, fmt.Errorf("%s is %s: %w", j.File, what, pipeline.ErrConfig)
	}
	s := &side{rows: map[string]int32{}, output: make([]output, len(j.feature)), filled: make([][]bool, len(j.feature)), cut: make([][]bool, len(j.feature)), errs: make([]map[int32]error, len(j.feature))}
	for k := range s.errs {
		s.errs[k] = map[int32]error{}
		s.output[k].dense.dim, s.output[k].missing.dim = p.features[j.feature[k]].dim, 1
	}
	split := splitter{delimiter: []byte(j.Delimiter), quoted: j.Delimiter == ","}
	var fields [][]byte
	for number := 1; len(text) > 0; number++ {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte{'\n'})
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if len(line) == 0 || number == 1 && j.Header {
			continue
		}
		if j.Encoding == Latin1 {
			line = latin1ToUTF8(line)
		} else if !utf8.Valid(line) {
			return nil, fmt.Errorf("%s:%d: not UTF-8, is it latin1? %w", j.File, number, pipeline.ErrConfig)
		}
		if fields, err = split.fields(fields[:0], line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w: %w", j.File, number, err, pipeline.ErrConfig)
		}
		if len(fields) != len(j.Columns) {
			return nil, fmt.Errorf("%s:%d: %d fields instead of %d: %w", j.File, number, len(fields), len(j.Columns), pipeline.ErrConfig)
		}
		key := string(fields[j.keyAt])
		if _, ok := s.rows[key]; ok {
			return nil, fmt.Errorf("%s:%d: key %q occurs twice: %w", j.File, number, key, pipeline.ErrConfig)
		}
		if err := s.add(p, j, fields); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", j.File, number, err)
		}
		s.rows[key] = int32(len(s.rows))
	}
	return s, nil
}

// add works out the features of one line. A value that makes no feature is kept as an error for the records that join
// it: lines that no record joins do no harm.
func (s *side) add(p *program, j *join, fields [][]byte) error {
	row := len(s.rows)
	var v values
	for k, at := range j.feature {
		f := &p.features[at]
		v.reset()
		if t := fields[f.col]; len(t) > 0 {
			v.kind, v.texts = texts, append(v.texts, t)
		}
		err := f.add(&s.output[k], &v)
		s.filled[k] = append(s.filled[k], err == nil && s.output[k].filled)
		s.cut[k] = append(s.cut[k], err == nil && s.output[k].cut)
		if err == nil {
			continue
		}
		s.errs[k][int32(row)] = bad(reasonJoinedIn, "%s, key %q: %w", j.File, fields[j.keyAt], err)
		s.output[k].truncate(row)
		if err := f.missing(&s.output[k]); err != nil {
			return err
		}
	}
	return nil
}

// readBounded reads a whole file of at most so many bytes.
func readBounded(ctx context.Context, from fsx.FS, name string, limit int64) ([]byte, error) {
	b, err := fsx.ReadFile(ctx, from, name, limit)
	switch {
	case err == nil:
		return b, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", err, pipeline.ErrConfig)
	case errors.Is(err, fsx.ErrTooLarge):
		return nil, fmt.Errorf("%s is larger than max_bytes, %d: %w", name, limit, pipeline.ErrConfig)
	}
	return nil, fmt.Errorf("%w: %w", err, pipeline.ErrUnavailable)
}

// latin1ToUTF8 returns the UTF-8 form: in ISO 8859-1 a byte is its code point.
func latin1ToUTF8(b []byte) []byte {
	out := make([]byte, 0, len(b)+8)
	for _, c := range b {
		out = utf8.AppendRune(out, rune(c))
	}
	return out
}
