package filesplit

import (
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
	zr    *gzip.Reader // of a gzip file, once something was read
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
// those of the file system by [Damaged].
func (s *Stream) Read(p []byte) (int, error) {
	if !s.gz {
		return s.bytes.Read(p)
	}
	if s.zr == nil {
		zr, err := gzip.NewReader(s.bytes)
		if err != nil {
			if errors.Is(err, io.EOF) && s.size > 0 {
				err = io.ErrUnexpectedEOF
			}
			if errors.Is(err, gzip.ErrHeader) {
				err = fmt.Errorf("%w: it is not compressed so; leave compression out, or make it auto", err)
			}
			return 0, err // io.EOF: an empty file is an empty stream
		}
		s.zr = zr
	}
	return s.zr.Read(p)
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
