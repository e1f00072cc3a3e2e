package textsource

import (
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/filesource"
)

// New describes text files without touching one. Bad records have the reasons "line too long" and "unterminated quote"
// (the line of a quote that is not closed within [Options].MaxLineBytes and 1,000 lines), after which reading continues, or
// "damaged gzip stream". What a file ends within, such as a last line without a line feed, is not there yet, unless
// [Options].Complete is set ("truncated" for a gzip stream). A header line of these kinds is an error whatever the policy, since without names
// no line means anything, and so is a file that is known to hold no lines of UTF-8: UTF-16, other compressions, archives, Parquet. A reader holds a buffer of 256 KiB. Errors: those of [Options.Validate].
func New(opts Options) (*filesource.Source, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return filesource.New(format{opts.WithDefaults()}, opts.files())
}

// format finds lines.
type format struct{ opts Options }

var _ filesource.Format = format{}

// Name implements [filesource.Format].
func (format) Name() string { return "text" }

// Lines says that records are lines.
func (format) Lines() {}

// IsGzip implements [filesource.Format]. It knows a gzip stream by its magic number, which no text begins with.
func (format) IsGzip(head []byte) bool { return len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b }

// Fingerprint implements [filesource.Format]: everything but the size of blocks and where the files lie.
func (f format) Fingerprint() string {
	return pipeline.Fingerprint("text", f.opts, "BlockRows", "BlockBytes", "Known", "Seen", "Follow", "FS")
}

// Open implements [filesource.Format]. A file that ends within its header says so where its first line is read.
func (f format) Open(stream *filesource.Stream, from int64) (filesource.Records, error) {
	s := newScanner(stream, 0, f.opts)
	if from == 0 || f.opts.Header {
		if err := s.skipMark(); err != nil {
			return nil, err
		}
	}
	var header []byte
	var first error
	if f.opts.Header {
		var line []byte
		if line, first = s.Scan(); first == nil {
			header = append(header, line...)
		}
		if bad, ok := errors.AsType[*filesource.BadRecord](first); ok && !bad.Unfinished {
			return nil, &filesource.BadRecord{Reason: bad.Reason, Err: fmt.Errorf("header: %w; has the file one (parse.header)?", bad.Err)}
		}
	}
	if from > s.Offset() && first == nil { // else the header has come since
		if err := stream.SeekTo(from); err != nil {
			return nil, err
		}
		s = newScanner(stream, from, f.opts)
	}
	return &headed{s, header, first, first != nil}, nil
}

// headed is a scanner whose first answer is the error that ended the header, if there was one.
type headed struct {
	*scanner
	header []byte
	first  error
	unread bool // what Scan last returned is the error of the header
}

// Header implements [filesource.Headed].
func (h *headed) Header() []byte { return h.header }

// Offset implements [filesource.Records].
func (h *headed) Offset() int64 {
	if h.first != nil {
		return 0
	}
	return h.scanner.Offset()
}

// Begin implements [filesource.Placed].
func (h *headed) Begin() int64 {
	if h.unread {
		return 0
	}
	return h.scanner.Begin()
}

// Scan implements [filesource.Records].
func (h *headed) Scan() ([]byte, error) {
	if err := h.first; err != nil {
		h.first = nil
		return nil, err
	}
	h.unread = false
	return h.scanner.Scan()
}
