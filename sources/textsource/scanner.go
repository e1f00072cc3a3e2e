package textsource

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/monolith-go/monolith/internal/foreign"
	"github.com/monolith-go/monolith/sources/filesource"
)

const (
	readBytes = 256 << 10

	reasonTooLong      = "line too long"
	reasonUnterminated = "unterminated quote"
	reasonForeign      = "no lines of text"
	reasonUnfinished   = "unfinished line"
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// maxQuotedLines bounds the lines of one quoted record. Where a quote is never closed, each line after it is looked at
// again so many times at most.
const maxQuotedLines = 1000

// scanner finds the lines, or quoted records, of a stream.
type scanner struct {
	br     *bufio.Reader
	off    int64
	begin  int64 // of the last record
	lines  int64 // that have ended
	first  int64 // lines that had ended where the last record begins
	max    int
	quoted bool
	// complete counts a last line without a line feed, json one that is a whole JSON object.
	complete, json bool
	quotes         quotes
	buf            []byte // a record that does not lie in one piece in br
	back           []byte // read and given back: the lines after a quote that is not closed
}

var (
	_ filesource.Records = (*scanner)(nil)
	_ filesource.Placed  = (*scanner)(nil)
	_ filesource.Lined   = (*scanner)(nil)
)

func newScanner(r io.Reader, offset int64, opts Options) *scanner {
	return &scanner{
		br: bufio.NewReaderSize(r, readBytes), off: offset, max: opts.MaxLineBytes,
		quoted: opts.Quoted, complete: opts.Complete, json: opts.JSON, quotes: quotes{delimiter: opts.Delimiter},
	}
}

// Offset implements [filesource.Records].
func (s *scanner) Offset() int64 { return s.off }

// Begin implements [filesource.Placed].
func (s *scanner) Begin() int64 { return s.begin }

// Line implements [filesource.Lined].
func (s *scanner) Line() int64 { return s.first + 1 }

// skipMark passes over a byte order mark; the stream is at its beginning. Errors: a [filesource.BadRecord] for what holds no lines of UTF-8.
func (s *scanner) skipMark() error {
	beginning, _ := s.br.Peek(foreign.HeadBytes) // a short or broken stream shows when its lines are read
	if what := foreign.Source(beginning); what != "" {
		return &filesource.BadRecord{Reason: reasonForeign, Err: fmt.Errorf("the file is %s", what)}
	}
	head, err := s.br.Peek(len(byteOrderMark))
	if err != nil || !bytes.Equal(head, byteOrderMark) {
		return nil //nolint:nilerr // a short or broken stream shows when its lines are read
	}
	s.off += int64(len(byteOrderMark))
	_, err = s.br.Discard(len(byteOrderMark))
	return err
}

// Scan implements [filesource.Records]: it returns the next line that is not empty, without its end.
func (s *scanner) Scan() ([]byte, error) {
	for {
		record, err := s.record()
		if err != nil || len(record) > 0 {
			return record, err
		}
	}
}

// record returns the next line or quoted record, empty ones too. A quoted record that is not closed within the bound on
// bytes and within maxQuotedLines is dropped: its first line is a bad record, and the next one begins after it. What the
// stream ends within is unfinished.
func (s *scanner) record() ([]byte, error) {
	s.quotes.state = fieldStart
	s.begin, s.first = s.off, s.lines
	s.buf = s.buf[:0]
	var size, first, lines int // of the record so far: bytes, bytes of its first line once that has ended, lines
	long := false              // the first line is too long, and not kept
	for {
		piece, err := s.piece()
		s.off += int64(len(piece))
		size += len(piece)
		ended := err == nil
		if ended {
			s.lines++
		}
		last := !ended && !errors.Is(err, bufio.ErrBufferFull)
		if last && (size == 0 || !errors.Is(err, io.EOF)) {
			return nil, err
		}
		open := s.quoted && !long && (s.quotes.open(piece) || last && s.quotes.state == inside)
		if (ended || last) && !open {
			if size > len(piece) && !long {
				s.buf = append(s.buf, piece...)
				piece = s.buf
			}
			line := trim(piece)
			if last && !s.complete && (!s.json || long || !isObject(line)) {
				return nil, s.unfinished("the last line has no line feed")
			}
			if !long && len(line) <= s.max {
				return line, nil // usually without a copy
			}
			return nil, &filesource.BadRecord{Reason: reasonTooLong, Err: fmt.Errorf("%d bytes, the bound is %d: raise max_line_bytes of the source if this is a line", size, s.max)}
		}
		if long {
			continue
		}
		s.buf = append(s.buf, piece...)
		over := size > s.max+len("\r\n")
		if ended || last {
			lines++
			if first == 0 {
				first = size
			}
		} else if first == 0 && over {
			long, s.buf = true, s.buf[:0]
		}
		if last && !s.complete && (!over || lines == 1) {
			return nil, s.unfinished("no quote closes the field that begins in this line")
		}
		if first > 0 && (over || last || lines == maxQuotedLines) {
			s.back = slices.Concat(s.buf[first:], s.back)
			s.off -= int64(size - first)
			s.lines = s.first + 1
			return trim(s.buf[:first]), &filesource.BadRecord{
				Reason: reasonUnterminated, Err: fmt.Errorf("no closing quote in %d bytes and %d lines from here", size, lines),
			}
		}
	}
}

// unfinished says that the stream ends within the record.
func (s *scanner) unfinished(how string) error {
	s.off, s.lines = s.begin, s.first
	return &filesource.BadRecord{Reason: reasonUnfinished, Err: errors.New(how), Last: true, Unfinished: true}
}

// isObject reports whether a line is a JSON object, which no further byte could belong to.
func isObject(line []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("{")) && json.Valid(line)
}

// piece returns what comes next up to a line feed, or as much of it as is buffered with [bufio.ErrBufferFull].
func (s *scanner) piece() ([]byte, error) {
	if len(s.back) == 0 {
		return s.br.ReadSlice('\n')
	}
	if i := bytes.IndexByte(s.back, '\n'); i >= 0 {
		piece := s.back[:i+1]
		s.back = s.back[i+1:]
		return piece, nil
	}
	piece := s.back
	s.back = nil
	return piece, bufio.ErrBufferFull
}

// trim takes the end off a line.
func trim(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r"))
}

type quoteState uint8

const (
	fieldStart quoteState = iota // a quote here opens a quoted field
	unquoted                     // within a field without quotes, or after a closed one
	inside                       // between quotes
	quoteSeen                    // after a quote within quotes: doubled, or the end of the field
)

// quotes follows the quoting of one record, piece by piece (RFC 4180, section 2, rules 5 to 7).
type quotes struct {
	delimiter byte
	state     quoteState
}

// open takes the next piece of a record and reports whether a quoted field is open after it.
func (q *quotes) open(piece []byte) bool {
	for len(piece) > 0 {
		switch q.state {
		case inside:
			i := bytes.IndexByte(piece, '"')
			if i < 0 {
				return true
			}
			piece, q.state = piece[i+1:], quoteSeen
			continue
		case unquoted:
			i := bytes.IndexByte(piece, q.delimiter)
			if i < 0 {
				return false
			}
			piece, q.state = piece[i+1:], fieldStart
			continue
		case quoteSeen:
			q.state = unquoted
			if piece[0] == '"' {
				q.state = inside
				piece = piece[1:]
			}
			continue
		case fieldStart:
			if piece[0] == '"' {
				q.state = inside
				piece = piece[1:]
				continue
			}
			if bytes.IndexByte(piece, '"') < 0 { // nothing in the rest can open a quoted field
				q.state = unquoted
				if piece[len(piece)-1] == q.delimiter {
					q.state = fieldStart
				}
				return false
			}
			q.state = unquoted
		}
	}
	return q.state == inside
}
