package textsource

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/monolith-go/monolith/internal/filesplit"
)

const (
	readBytes = 256 << 10

	reasonTooLong      = "line too long"
	reasonUnterminated = "unterminated quote"
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// scanner finds the lines, or quoted records, of a stream.
type scanner struct {
	br     *bufio.Reader
	off    int64
	max    int
	quoted bool
	quotes quotes
	buf    []byte // a record that does not lie in one piece in br
}

var _ filesplit.Scanner = (*scanner)(nil)

func newScanner(r io.Reader, offset int64, opts Options) *scanner {
	return &scanner{
		br: bufio.NewReaderSize(r, readBytes), off: offset, max: opts.MaxLineBytes,
		quoted: opts.Quoted, quotes: quotes{delimiter: opts.Delimiter},
	}
}

// Offset implements [filesplit.Scanner].
func (s *scanner) Offset() int64 { return s.off }

// skipMark passes over a byte order mark; the stream is at its beginning.
func (s *scanner) skipMark() error {
	head, err := s.br.Peek(len(byteOrderMark))
	if err != nil || !bytes.Equal(head, byteOrderMark) {
		return nil //nolint:nilerr // a short or broken stream shows when its lines are read
	}
	s.off += int64(len(byteOrderMark))
	_, err = s.br.Discard(len(byteOrderMark))
	return err
}

// Scan implements [filesplit.Scanner]: it returns the next line that is not empty, without its end.
func (s *scanner) Scan() ([]byte, error) {
	for {
		record, err := s.record()
		if err != nil || len(record) > 0 {
			return record, err
		}
	}
}

// record returns the next line or quoted record, empty ones too.
func (s *scanner) record() ([]byte, error) {
	s.quotes.state = fieldStart
	s.buf = s.buf[:0]
	dropped := int64(0) // bytes of a record that is too long
	for {
		piece, err := s.br.ReadSlice('\n')
		s.off += int64(len(piece))
		ended := err == nil && (!s.quoted || !s.quotes.open(piece))
		if ended && len(s.buf) == 0 && dropped == 0 && len(piece) <= s.max {
			return trim(piece), nil // the usual case, without a copy
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return s.last(piece, dropped, err)
		}
		if err != nil && s.quoted {
			s.quotes.open(piece)
		}
		if dropped == 0 && len(s.buf)+len(piece) <= s.max+len("\r\n") {
			s.buf = append(s.buf, piece...)
		} else {
			dropped += int64(len(s.buf) + len(piece))
			s.buf = s.buf[:0]
		}
		if ended {
			line := trim(s.buf)
			if dropped > 0 || len(line) > s.max {
				return nil, s.tooLong(dropped + int64(len(line)))
			}
			return line, nil
		}
	}
}

// last handles the end of the stream, or its failure, after the beginning of a record.
func (s *scanner) last(piece []byte, dropped int64, err error) ([]byte, error) {
	size := dropped + int64(len(s.buf)+len(piece))
	if !errors.Is(err, io.EOF) || size == 0 {
		return nil, err
	}
	if s.quoted {
		s.quotes.open(piece)
		if s.quotes.state == inside {
			return nil, &filesplit.BadRecord{Reason: reasonUnterminated, Err: fmt.Errorf("a record of %d bytes", size)}
		}
	}
	line := trim(append(s.buf, piece...))
	if dropped > 0 || len(line) > s.max {
		return nil, s.tooLong(size)
	}
	return line, nil
}

func (s *scanner) tooLong(size int64) error {
	return &filesplit.BadRecord{Reason: reasonTooLong, Err: fmt.Errorf("%d bytes, the bound is %d", size, s.max)}
}

// trim takes the end off a line.
func trim(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r"))
}

type quoteState uint8

const (
	fieldStart quoteState = iota // a quote here opens a quoted field
	unquoted                     // within a field without quotes, or behind a closed one
	inside                       // between quotes
	quoteSeen                    // behind a quote within quotes: doubled, or the end of the field
)

// quotes follows the quoting of one record, piece by piece (RFC 4180, section 2, rules 5 to 7).
type quotes struct {
	delimiter byte
	state     quoteState
}

// open takes the next piece of a record and tells whether a quoted field is open behind it.
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
