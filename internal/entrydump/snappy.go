package entrydump

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/snappy"
)

const (
	// blockBytes is how much a block holds that this package writes. Upstream's reader takes 256 KiB at most, compressed and not
	// (tensorflow/core/lib/io/snappy/snappy_inputbuffer.cc); what cannot be compressed grows a little.
	blockBytes = 128 << 10
	// maxBlock is the largest block that is read, compressed or not.
	maxBlock = 8 << 20
)

// blocks reads TensorFlow's snappy files: blocks of a length of 4 bytes, most significant first, and so many bytes of raw snappy.
type blocks struct {
	r      *bufio.Reader
	off    int64 // of the next block
	packed []byte
	plain  []byte
	left   []byte // of plain
	err    error
}

func newBlocks(r io.Reader) *blocks { return &blocks{r: bufio.NewReaderSize(r, 64<<10)} }

// Read implements io.Reader. Errors name the place in the compressed file.
func (s *blocks) Read(p []byte) (int, error) {
	for len(s.left) == 0 {
		if s.err == nil {
			s.err = s.next()
		}
		if s.err != nil {
			return 0, s.err
		}
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (s *blocks) next() error {
	var head [4]byte
	n, err := io.ReadFull(s.r, head[:])
	if errors.Is(err, io.EOF) && n == 0 {
		return io.EOF
	}
	if err != nil {
		return s.broken(fmt.Sprintf("%d of the 4 bytes of a length", n), err)
	}
	length := int64(binary.BigEndian.Uint32(head[:]))
	if length > maxBlock {
		return s.corrupt(fmt.Sprintf("a block of %d bytes; they have %d at most", length, maxBlock))
	}
	s.packed = grown(s.packed, int(length))
	if n, err := io.ReadFull(s.r, s.packed); err != nil {
		return s.broken(fmt.Sprintf("%d of the %d bytes of a block", n, length), err)
	}
	size, err := snappy.DecodedLen(s.packed)
	if err != nil || size > maxBlock {
		return s.corrupt(fmt.Sprintf("a block that is not snappy, or of more than %d bytes", maxBlock))
	}
	if s.plain, err = snappy.Decode(grown(s.plain, size), s.packed); err != nil {
		return s.corrupt("a block that is not snappy")
	}
	s.left = s.plain
	s.off += 4 + length
	return nil
}

func (s *blocks) corrupt(text string) error {
	return fmt.Errorf("compressed block at byte %d: %s: %w", s.off, text, ErrDamaged)
}

func (s *blocks) broken(text string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return s.corrupt("the file ends after " + text)
	}
	return fmt.Errorf("compressed block at byte %d: %w", s.off, err)
}

func grown(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// blockWriter writes what blocks reads. What is left is written by Close.
type blockWriter struct {
	w      io.Writer
	plain  []byte
	packed []byte
}

func (s *blockWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k := min(len(p), blockBytes-len(s.plain))
		s.plain = append(s.plain, p[:k]...)
		p = p[k:]
		if len(s.plain) == blockBytes {
			if err := s.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (s *blockWriter) flush() error {
	if len(s.plain) == 0 {
		return nil
	}
	s.packed = grown(s.packed, 4+snappy.MaxEncodedLen(blockBytes))
	b := snappy.Encode(s.packed[4:], s.plain)
	binary.BigEndian.PutUint32(s.packed, uint32(len(b)))
	_, err := s.w.Write(s.packed[:4+len(b)])
	s.plain = s.plain[:0]
	return err
}

// Close writes the last block.
func (s *blockWriter) Close() error { return s.flush() }
