package parse

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/pipeline"
)

// textRecord reads csv and tsv.
type textRecord struct {
	split  splitter
	format Format
	want   []string // the program's columns
	named  bool     // the options name the columns, not a header
	header string   // the header line that at belongs to
	at     []int    // field of each wanted column
	width  int      // fields of a record; 0: no names yet
	fields [][]byte
	file   string // the split that is read
}

func newTextRecord(p *program) (*textRecord, error) {
	r := &textRecord{
		split:  splitter{delimiter: []byte(p.Delimiter), quoted: p.Format == CSV},
		format: p.Format,
		want:   p.columns,
		named:  len(p.Columns) > 0,
	}
	if r.named {
		return r, r.resolve(p.Columns)
	}
	return r, nil
}

// useHeader takes the names of the columns from a header line, unless the options name them. Errors:
// [pipeline.ErrSchema].
func (r *textRecord) useHeader(line string, present bool) error {
	if r.named || r.width > 0 && line == r.header {
		return nil
	}
	if !present {
		if r.width > 0 {
			return nil
		}
		return fmt.Errorf("%s without columns in the options or a header line in the file: %w", r.format, pipeline.ErrSchema)
	}
	// Some programs begin a file with a byte order mark.
	fields, err := r.split.fields(nil, []byte(strings.TrimPrefix(line, "\ufeff")))
	if err != nil {
		return fmt.Errorf("header %q: %w%s: %w", line[:min(len(line), 80)], err, otherFormat(r.format, line), pipeline.ErrSchema)
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = string(f)
	}
	if err := r.resolve(names); err != nil {
		return err
	}
	r.header = line
	return nil
}

// otherFormat says which format a header seems to be of that is one field, or none, in this one.
func otherFormat(have Format, header string) string {
	is := have
	switch {
	case strings.HasPrefix(strings.TrimLeft(header, " \t\ufeff"), "{"):
		is = JSONL
	case strings.Contains(header, "\t"):
		is = TSV
	case strings.Contains(header, ","):
		is = CSV
	case strings.Contains(header, ";"):
		return fmt.Sprintf("; the line has semicolons, and %s has other delimiters: convert the file", have)
	}
	if is == have {
		return ""
	}
	return fmt.Sprintf("; the line looks like %s: is that the format?", is)
}

// resolve finds the wanted columns among the names of all fields.
func (r *textRecord) resolve(names []string) error {
	at := make([]int, len(r.want))
	for i, name := range r.want {
		if at[i] = slices.Index(names, name); at[i] < 0 {
			other := ""
			if len(names) == 1 {
				other = otherFormat(r.format, names[0])
			}
			if folder, ok := filesplit.Partition(r.file, name); ok {
				other = fmt.Sprintf("; it is in the path (%s), which is not read: write it into the files, or leave it out", folder)
			}
			return fmt.Errorf("%s has no column %q%s%s: %w", r.format, name, nearest.Suggest(name, names), other, pipeline.ErrSchema)
		}
		if again := slices.Index(names[at[i]+1:], name); again >= 0 {
			return fmt.Errorf("the header of the %s names column %q twice, fields %d and %d: %w", r.format, name, at[i]+1, at[i]+2+again, pipeline.ErrSchema)
		}
	}
	r.at, r.width = at, len(names)
	return nil
}

func (r *textRecord) read(payload []byte) error {
	// Files come without line ends, messages may have one.
	payload = bytes.TrimSuffix(bytes.TrimSuffix(payload, []byte{'\n'}), []byte{'\r'})
	var err error
	if r.fields, err = r.split.fields(r.fields[:0], payload); err != nil {
		return &rowError{reasonCSV, err}
	}
	if len(r.fields) != r.width {
		return bad(reasonFields, "%d instead of %d", len(r.fields), r.width)
	}
	return nil
}

func (r *textRecord) get(col int, v *values) error {
	v.reset()
	if t := r.fields[r.at[col]]; len(t) > 0 {
		v.kind, v.texts = texts, append(v.texts, t)
	}
	return nil
}

// splitter cuts a record into fields.
type splitter struct {
	delimiter []byte
	quoted    bool   // RFC 4180
	unquoted  []byte // fields in which a doubled quote became one
}

// fields appends the fields of one record. They alias the record or s and are valid until the next call.
func (s *splitter) fields(dst [][]byte, record []byte) ([][]byte, error) {
	if s.quoted && bytes.ContainsAny(record, "\"\r\n") {
		return s.quotedFields(dst, record)
	}
	if len(s.delimiter) == 1 {
		delimiter := s.delimiter[0]
		for {
			i := bytes.IndexByte(record, delimiter)
			if i < 0 {
				return append(dst, record), nil
			}
			dst = append(dst, record[:i])
			record = record[i+1:]
		}
	}
	for {
		field, rest, more := bytes.Cut(record, s.delimiter)
		dst = append(dst, field)
		if !more {
			return dst, nil
		}
		record = rest
	}
}

// quotedFields is fields by RFC 4180, section 2: fields with quotes, delimiters or line ends are in quotes.
func (s *splitter) quotedFields(dst [][]byte, record []byte) ([][]byte, error) {
	s.unquoted = s.unquoted[:0]
	for n := 1; ; n++ {
		if len(record) == 0 || record[0] != '"' {
			i := bytes.IndexByte(record, s.delimiter[0])
			field := record
			if i >= 0 {
				field = record[:i]
			}
			if bytes.ContainsAny(field, "\"\r\n") {
				return dst, fmt.Errorf("field %d has a quote or a line end outside of quotes", n)
			}
			dst = append(dst, field)
			if i < 0 {
				return dst, nil
			}
			record = record[i+1:]
			continue
		}
		// Everything up to a quote that is not doubled.
		field, start := record[1:], len(s.unquoted)
		for {
			i := bytes.IndexByte(field, '"')
			if i < 0 {
				return dst, fmt.Errorf("field %d has no closing quote", n)
			}
			s.unquoted = append(s.unquoted, field[:i]...)
			field = field[i+1:]
			if len(field) == 0 || field[0] != '"' {
				break
			}
			s.unquoted = append(s.unquoted, '"')
			field = field[1:]
		}
		dst = append(dst, s.unquoted[start:len(s.unquoted):len(s.unquoted)])
		if len(field) == 0 {
			return dst, nil
		}
		if field[0] != s.delimiter[0] {
			return dst, fmt.Errorf("field %d continues after its closing quote", n)
		}
		record = field[1:]
	}
}
