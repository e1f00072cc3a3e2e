package kafkawire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Numbers of the compressions of record batches.
const (
	CodecNone = iota
	CodecGzip
	CodecSnappy
	CodecLZ4
	CodecZstd
)

// CodecNames are their names, as settings call them.
var CodecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

// Unpacker takes compressed batches apart. Sizes that a batch announces are believed only up to the limit, and before
// anything is allocated for them; what it holds is a small multiple of the limit at most. It is not for concurrent use.
type Unpacker struct {
	// Limit is how many bytes a batch may have, unpacked.
	Limit int

	out  bytes.Buffer
	gzip *gzip.Reader
	lz4  *lz4.Reader
	zstd *zstd.Decoder
}

// Errors of [Unpacker.Unpack].
var (
	// ErrUnpacked says that a batch is larger than the limit once it is unpacked.
	ErrUnpacked = errors.New("too large")
	// ErrCodec says that there is no such compression.
	ErrCodec = errors.New("unknown compression")
)

// Unpack returns the records of a batch as they were before compression by the codec of the given number. They are valid
// until the next call; body is returned where it is not compressed. Errors: [ErrUnpacked], [ErrCodec]; others for what is
// malformed.
func (u *Unpacker) Unpack(codec int, body []byte) ([]byte, error) {
	switch {
	case codec == CodecNone:
		return body, nil
	case codec < 0 || codec >= len(CodecNames):
		return nil, fmt.Errorf("%w %d", ErrCodec, codec)
	}
	u.out.Reset()
	err := u.run(codec, body)
	switch {
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, fmt.Errorf("%w: %w", ErrUnpacked, err)
	case err != nil:
		return nil, err
	}
	return u.out.Bytes(), nil
}

func (u *Unpacker) run(codec int, body []byte) (err error) {
	in := bytes.NewReader(body)
	switch codec {
	case CodecSnappy:
		return u.snappy(body)
	case CodecGzip:
		if u.gzip == nil {
			u.gzip = new(gzip.Reader)
		}
		if err := u.gzip.Reset(in); err != nil {
			return err
		}
		return u.read(u.gzip)
	case CodecLZ4:
		if u.lz4 == nil {
			u.lz4 = lz4.NewReader(nil)
		}
		u.lz4.Reset(in)
		return u.read(u.lz4)
	default:
		if u.zstd == nil {
			// A window is memory, so it is bounded too; compressors choose one of 8 MiB where they do not know the size.
			most := uint64(max(u.Limit, 8<<20))
			u.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(most),
				zstd.WithDecoderMaxWindow(min(most, zstd.MaxWindowSize)))
			if err != nil {
				return err
			}
		}
		if err := u.zstd.Reset(in); err != nil {
			return err
		}
		return u.read(u.zstd)
	}
}

// read takes what a decompressor gives, up to the limit.
func (u *Unpacker) read(r io.Reader) error {
	n, err := u.out.ReadFrom(io.LimitReader(r, int64(u.Limit)+1))
	if err == nil && n > int64(u.Limit) {
		err = ErrUnpacked
	}
	return err
}

// xerialMagic begins the framing that the Java clients put around snappy: magic, version and compatible version, then
// chunks of {length int32, snappy block}.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16

func (u *Unpacker) snappy(body []byte) error {
	if !bytes.HasPrefix(body, xerialMagic) {
		return u.chunk(body)
	}
	if len(body) < xerialHeader {
		return io.ErrUnexpectedEOF
	}
	for body = body[xerialHeader:]; len(body) > 0; {
		if len(body) < 4 {
			return io.ErrUnexpectedEOF
		}
		size := binary.BigEndian.Uint32(body)
		if body = body[4:]; uint64(size) > uint64(len(body)) {
			return io.ErrUnexpectedEOF
		}
		if err := u.chunk(body[:size]); err != nil {
			return err
		}
		body = body[size:]
	}
	return nil
}

// chunk unpacks one snappy block.
func (u *Unpacker) chunk(block []byte) error {
	n, err := snappy.DecodedLen(block)
	if err != nil {
		return err
	}
	// A block says how large it gets, and one byte of it may stand for 64: its claim may be false either way.
	if n > u.Limit-u.out.Len() {
		return ErrUnpacked
	}
	if n > 64*len(block) {
		return snappy.ErrCorrupt
	}
	u.out.Grow(n)
	room := u.out.AvailableBuffer()
	got, err := snappy.Decode(room[:n], block)
	if err != nil {
		return err
	}
	u.out.Write(got) // which lies in the buffer already
	return nil
}

// Close releases the memory that is held; the unpacker may be used again.
func (u *Unpacker) Close() {
	if u.zstd != nil {
		u.zstd.Close()
	}
	*u = Unpacker{Limit: u.Limit}
}
