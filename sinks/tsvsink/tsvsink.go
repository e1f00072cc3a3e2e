// Package tsvsink writes batches to gzip files of lines with fields between delimiters in a folder, each row exactly once ([filesink]).
//
// Fields are the columns in their order; reserved ones are called label, weight, time, position, line_id and key
// ([pipeline.PlainName]). Unless Options say otherwise the first line of each file names them. How a value is written:
//
//   - Text that has the delimiter, a double quote, a carriage return or a line feed is put between double quotes, within which a
//     double quote is written twice (RFC 4180, section 2). All else is written as it is, and so are names.
//   - Numbers are in the shortest form that reads back the same bits: 0.25, 1e-09, NaN, +Inf. Booleans are true and false.
//   - A list has its numbers one after the other with the list delimiter between them.
//   - What is null, and empty text, is an empty field; a line of nothing else would be no row, so its one field is "".
//
// With the delimiter "," files are read back as csv. With a tab they are read back as tsv where no text was quoted; readers that
// know the quotes of RFC 4180 read them all.
package tsvsink

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/filesink"
	"github.com/monolith-go/monolith/sinks/gzipfile"
)

// Options are the choices of a sink. Dir is required; the zero value of everything else works.
type Options struct {
	filesink.Options
	// Delimiter is the one byte between fields: none of letters, digits, ".", "+", "-", quotes and line ends. Default a tab.
	Delimiter string
	// ListDelimiter is the one byte between the numbers of a list: as Delimiter, and another. Default "|".
	ListDelimiter string
	// NoHeader leaves out the line with the names.
	NoHeader bool
}

// WithDefaults returns the options with defaults in place of zero values.
func (o Options) WithDefaults() Options {
	o.Options = o.Options.WithDefaults()
	o.Delimiter, o.ListDelimiter = cmp.Or(o.Delimiter, "\t"), cmp.Or(o.ListDelimiter, "|")
	return o
}

// Check calls fault for every mistake of the delimiters. Empty ones mean defaults.
func (o Options) Check(fault func(key, format string, args ...any)) {
	o = o.WithDefaults()
	for _, d := range []struct{ key, value string }{{"delimiter", o.Delimiter}, {"list_delimiter", o.ListDelimiter}} {
		if len(d.value) != 1 || partOfNumbers(d.value[0]) || strings.Contains("\"\r\n", d.value) {
			fault(d.key, "is %q, not one byte that no number has and that is neither a double quote nor a line end", d.value)
		}
	}
	if o.Delimiter == o.ListDelimiter {
		fault("list_delimiter", "is %q, the delimiter of fields; name another", o.ListDelimiter)
	}
}

// partOfNumbers reports whether numbers, truth values included, may have a byte.
func partOfNumbers(c byte) bool {
	return c >= 0x80 || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '+' || c == '-'
}

// New describes a sink. It opens nothing. Errors: [pipeline.ErrConfig], all faults of the options at once.
func New(opts Options) (*filesink.Sink, error) {
	var faults []string
	opts.Check(func(key, text string, args ...any) { faults = append(faults, key+" "+fmt.Sprintf(text, args...)) })
	if len(faults) > 0 {
		return nil, fmt.Errorf("tsvsink: %s: %w", strings.Join(faults, "; "), pipeline.ErrConfig)
	}
	return filesink.New(format{opts.WithDefaults()}, opts.Options)
}

// format is lines in gzip.
type format struct{ opts Options }

var _ filesink.Format = format{}

// Name implements [filesink.Format].
func (format) Name() string { return "tsv" }

// Extension implements [filesink.Format].
func (f format) Extension() string {
	if f.opts.Delimiter == "," {
		return ".csv.gz"
	}
	return ".tsv.gz"
}

// Fingerprint implements [filesink.Format]: the folder and the form of lines; not how rows are cut into files.
func (f format) Fingerprint() string {
	return pipeline.Fingerprint("tsv", f.opts, "Options.RowsPerFile", "Options.BytesPerFile", "Options.FileEvery", "Options.Keys")
}

// Begin implements [filesink.Format].
func (f format) Begin(w io.Writer, columns *arrow.Schema) (filesink.Encoder, error) {
	r := &rows{delimiter: f.opts.Delimiter[0], list: f.opts.ListDelimiter[0], special: f.opts.Delimiter + "\"\r\n"}
	if !f.opts.NoHeader {
		for c, field := range columns.Fields() {
			if c > 0 {
				r.lines = append(r.lines, r.delimiter)
			}
			r.lines = r.appendText(r.lines, []byte(pipeline.PlainName(columns, field.Name)))
		}
		r.lines = append(r.lines, '\n')
	}
	return gzipfile.Begin(w, func(zip io.Writer) gzipfile.Rows {
		r.zip = zip
		return r
	})
}

// Metadata implements [filesink.Format].
func (format) Metadata(r io.ReaderAt, size int64) (map[string]string, error) {
	return gzipfile.Metadata(r, size)
}

// rows writes lines.
type rows struct {
	zip             io.Writer
	delimiter, list byte
	special         string // what is quoted
	lines           []byte // begins with the header, before the first batch
	values          []func(dst []byte, row int) []byte
}

// Write implements [gzipfile.Rows].
func (r *rows) Write(b *pipeline.Batch) error {
	rec := b.Record()
	r.values = r.values[:0]
	for c, f := range rec.Schema().Fields() {
		value, err := r.valuesOf(rec.Column(c))
		if err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
		r.values = append(r.values, value)
	}
	for row := range b.NumRows() {
		from := len(r.lines)
		for c, value := range r.values {
			if c > 0 {
				r.lines = append(r.lines, r.delimiter)
			}
			r.lines = value(r.lines, row)
		}
		if len(r.lines) == from {
			r.lines = append(r.lines, '"', '"')
		}
		r.lines = append(r.lines, '\n')
	}
	return r.Flush()
}

// Flush implements [gzipfile.Rows].
func (r *rows) Flush() error {
	_, err := r.zip.Write(r.lines)
	r.lines = r.lines[:0]
	return err
}

// valuesOf returns what appends the values of a column. Errors: [pipeline.ErrSchema].
func (r *rows) valuesOf(col arrow.Array) (func(dst []byte, row int) []byte, error) {
	var value func(dst []byte, i int) []byte
	switch c := col.(type) {
	case *array.Boolean:
		value = func(dst []byte, i int) []byte { return strconv.AppendBool(dst, c.Value(i)) }
	case *array.Int32:
		value = func(dst []byte, i int) []byte { return strconv.AppendInt(dst, int64(c.Value(i)), 10) }
	case *array.Int64:
		value = func(dst []byte, i int) []byte { return strconv.AppendInt(dst, c.Value(i), 10) }
	case *array.Float32:
		value = func(dst []byte, i int) []byte { return strconv.AppendFloat(dst, float64(c.Value(i)), 'g', -1, 32) }
	case *array.Float64:
		value = func(dst []byte, i int) []byte { return strconv.AppendFloat(dst, c.Value(i), 'g', -1, 64) }
	case *array.String:
		value = func(dst []byte, i int) []byte { return r.appendText(dst, []byte(c.Value(i))) }
	case *array.Binary:
		value = func(dst []byte, i int) []byte { return r.appendText(dst, c.Value(i)) }
	case array.ListLike:
		switch elem := c.ListValues().(type) {
		case *array.String, *array.Binary, array.ListLike:
			return nil, fmt.Errorf("%s has no form in lines: lists are of numbers: %w", col.DataType(), pipeline.ErrSchema)
		default:
			number, err := r.valuesOf(elem)
			if err != nil {
				return nil, err
			}
			value = func(dst []byte, i int) []byte {
				from, to := c.ValueOffsets(i)
				for at := from; at < to; at++ {
					if at > from {
						dst = append(dst, r.list)
					}
					dst = number(dst, int(at))
				}
				return dst
			}
		}
	default:
		return nil, fmt.Errorf("%s has no form in lines: %w", col.DataType(), pipeline.ErrSchema)
	}
	if col.NullN() == 0 {
		return value, nil
	}
	return func(dst []byte, i int) []byte {
		if col.IsNull(i) {
			return dst
		}
		return value(dst, i)
	}, nil
}

// appendText appends text, quoted where it must be.
func (r *rows) appendText(dst, text []byte) []byte {
	if !bytes.ContainsAny(text, r.special) {
		return append(dst, text...)
	}
	dst = append(dst, '"')
	for _, c := range text {
		if c == '"' {
			dst = append(dst, '"')
		}
		dst = append(dst, c)
	}
	return append(dst, '"')
}
