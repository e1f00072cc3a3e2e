package filesplit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/klauspost/compress/gzip"

	"github.com/monolith-go/monolith/internal/fsx"
)

// Compression describes how the bytes of a file are stored.
type Compression string

// The ways to store a file; the empty string means [Auto].
const (
	Auto Compression = "auto" // decided for each file by its first bytes, not by its name
	None Compression = "none"
	Gzip Compression = "gzip"
)

// Check returns an error for a value that is none of the constants.
func (c Compression) Check() error {
	switch c {
	case "", Auto, None, Gzip:
		return nil
	}
	return fmt.Errorf("compression %q is none of %q, %q and %q", string(c), Auto, None, Gzip)
}

// Stream is an open file read from its beginning (gzip) or from any byte (plain). It is not for concurrent use.
type Stream struct {
	file  fsx.File
	bytes *fsx.Reader
	size  int64
	gz    bool

	// Of a gzip file, once something was read:
	zr      *gzip.Reader
	packed  *bufio.Reader // of bytes
	members int64         // that were read whole
	begin   int64         // the byte where the member that is being read begins
	err     error         // for ever
}

// sniffBytes is how much of a file a sniffer gets to see.
const sniffBytes = 16

// Open opens a file of a file system. With [Auto], isGzip decides by the file's first bytes. Errors are those of the file system; what is
// wrong with the content shows when it is read.
func Open(ctx context.Context, in fsx.FS, path string, c Compression, isGzip func(head []byte) bool) (*Stream, error) {
	f, err := in.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	return NewStream(f, c, isGzip)
}

// NewStream is [Open] of a file that is open, which it closes where it fails.
func NewStream(f fsx.File, c Compression, isGzip func(head []byte) bool) (*Stream, error) {
	s, err := newStream(f, c, isGzip)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

func newStream(f fsx.File, c Compression, isGzip func([]byte) bool) (*Stream, error) {
	s := &Stream{file: f, bytes: fsx.NewReader(f), size: f.Info().Size, gz: c == Gzip}
	if c == Auto || c == "" {
		head := make([]byte, sniffBytes)
		n, err := f.ReadAt(head, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		s.gz = isGzip(head[:n])
	}
	return s, nil
}

// IsGzip reports whether the file is compressed.
func (s *Stream) IsGzip() bool { return s.gz }

// Size is the size of the file in bytes when it was opened.
func (s *Stream) Size() int64 { return s.size }

// SeekTo moves a plain file to a byte; what has read ahead must be thrown away.
func (s *Stream) SeekTo(offset int64) error {
	if s.gz {
		return errors.New("a gzip stream cannot be entered in its midst")
	}
	s.bytes.SeekTo(offset)
	return nil
}

// Read reads the content, uncompressed. Concatenated gzip members are read as one. Errors of the content are distinguished from
// those of the file system by [Damaged]; io.ErrUnexpectedEOF says that the file ends within a member.
func (s *Stream) Read(p []byte) (int, error) {
	if !s.gz {
		return s.bytes.Read(p)
	}
	for s.err == nil {
		if s.zr == nil {
			s.packed = bufio.NewReader(s.bytes)
			s.err = s.member()
			continue
		}
		n, err := s.zr.Read(p)
		if errors.Is(err, io.EOF) {
			s.members++
			s.err = s.member()
			err = nil
		}
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
	return 0, s.err
}

// member begins the next member. io.EOF: there is none.
func (s *Stream) member() error {
	s.begin = s.bytes.Offset() - int64(s.packed.Buffered())
	magic := []byte{0x1f, 0x8b}
	head, err := s.packed.Peek(len(magic))
	switch {
	case len(head) == 0 && err != nil:
		return err
	case !bytes.HasPrefix(magic, head) && s.members == 0:
		return fmt.Errorf("%w: it is not compressed so; leave compression out, or make it auto", gzip.ErrHeader)
	case !bytes.HasPrefix(magic, head):
		return gzip.ErrHeader
	}
	if s.zr == nil {
		s.zr, err = gzip.NewReader(s.packed)
	} else {
		err = s.zr.Reset(s.packed)
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	s.zr.Multistream(false)
	return nil
}

// where says of an error of a gzip stream in which part of the file it is.
func (s *Stream) where(err error) error {
	switch {
	case !s.gz || s.packed == nil:
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the file ends within the gzip member that begins at byte %d, after %d whole ones: %w", s.begin, s.members, err)
	case errors.Is(err, gzip.ErrHeader) && s.members > 0:
		return fmt.Errorf("something other than gzip follows %d whole gzip members, at byte %d: %w", s.members, s.begin, err)
	case errors.Is(err, gzip.ErrHeader):
		return err
	}
	return fmt.Errorf("in the gzip member that begins at byte %d, after %d whole ones: %w", s.begin, s.members, err)
}

// Close closes the file; it may be called more than once.
func (s *Stream) Close() error {
	err := s.file.Close()
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}

// Damaged reports whether an error of [Stream.Read] means that the content is not what it should be, such as a truncated or
// altered gzip stream, rather than that the file could not be read.
func Damaged(err error) bool {
	return err != nil && !errors.Is(err, io.EOF) && !Unreadable(err)
}

// Unreadable reports whether an error comes from the file system.
func Unreadable(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path)
}
