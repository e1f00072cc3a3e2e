package kafkasource

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

// Compression codecs of record batches.
const (
	codecNone = iota
	codecGzip
	codecSnappy
	codecLZ4
	codecZstd
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

// unpacker takes compressed batches apart. Sizes that a batch announces are believed only up to the limit, and before
// anything is allocated for them; what it holds is a small multiple of the limit at most. It is not for concurrent use.
type unpacker struct {
	limit int // bytes of a batch, unpacked
	out   bytes.Buffer
	gzip  *gzip.Reader
	lz4   *lz4.Reader
	zstd  *zstd.Decoder
}

// errUnpacked says that a batch is larger than the limit once it is unpacked.
var errUnpacked = errors.New("too large")

// unpack returns the records of a batch as they were before compression. They are valid until the next call.
func (u *unpacker) unpack(b *batch) ([]byte, *batchError) {
	codec := int(b.attrs & attrCodec)
	if codec == codecNone {
		return b.body, nil
	}
	if codec >= len(codecNames) {
		return nil, &batchError{b.base, reasonCorrupt, fmt.Errorf("unknown compression %d", codec)}
	}
	u.out.Reset()
	err := u.run(codec, b.body)
	switch {
	case errors.Is(err, errUnpacked), errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, &batchError{b.base, reasonTooLarge, fmt.Errorf("more than %d bytes after %s decompression; raise source.kafka.max_batch_bytes", u.limit, codecNames[codec])}
	case err != nil:
		return nil, &batchError{b.base, reasonCorrupt, fmt.Errorf("%s: %w", codecNames[codec], err)}
	}
	return u.out.Bytes(), nil
}

func (u *unpacker) run(codec int, body []byte) (err error) {
	in := bytes.NewReader(body)
	switch codec {
	case codecSnappy:
		return u.snappy(body)
	case codecGzip:
		if u.gzip == nil {
			u.gzip = new(gzip.Reader)
		}
		if err := u.gzip.Reset(in); err != nil {
			return err
		}
		return u.read(u.gzip)
	case codecLZ4:
		if u.lz4 == nil {
			u.lz4 = lz4.NewReader(nil)
		}
		u.lz4.Reset(in)
		return u.read(u.lz4)
	default:
		if u.zstd == nil {
			// A window is memory, so it is bounded too; compressors choose one of 8 MiB where they do not know the size.
			most := uint64(max(u.limit, 8<<20))
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
func (u *unpacker) read(r io.Reader) error {
	n, err := u.out.ReadFrom(io.LimitReader(r, int64(u.limit)+1))
	if err == nil && n > int64(u.limit) {
		err = errUnpacked
	}
	return err
}

// xerialMagic begins the framing that the Java clients put around snappy: magic, version and compatible version, then
// chunks of {length int32, snappy block}.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16

func (u *unpacker) snappy(body []byte) error {
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
func (u *unpacker) chunk(block []byte) error {
	n, err := snappy.DecodedLen(block)
	if err != nil {
		return err
	}
	// A block says how large it gets, and one byte of it may stand for 64: what it says may be a lie either way.
	if n > u.limit-u.out.Len() {
		return errUnpacked
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

// close gives up what is held.
func (u *unpacker) close() {
	if u.zstd != nil {
		u.zstd.Close()
	}
	*u = unpacker{limit: u.limit}
}
