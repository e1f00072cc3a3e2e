package pqfile

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codecs of parquet.thrift.
const (
	codecNone   = 0
	codecSnappy = 1
	codecGzip   = 2
	codecBrotli = 4
	codecLZ4    = 5
	codecZstd   = 6
	codecLZ4Raw = 7
)

// codecs decompresses pages; it keeps decoders that are dear to make.
type codecs struct {
	zstd *zstd.Decoder
	gzip *gzip.Reader
}

// decompress fills dst, whose length the page header has, with the content of src, and nothing more.
func (c *codecs) decompress(codec int32, dst, src []byte) (err error) {
	defer func() { // other people's decoders meet hostile bytes here
		if p := recover(); p != nil {
			err = malformed("decoder of codec %d: %v", codec, p)
		}
	}()
	if len(dst) == 0 {
		return nil
	}
	switch codec {
	case codecSnappy:
		n, err := snappy.DecodedLen(src)
		if err != nil {
			return malformed("%w", err)
		}
		if n != len(dst) {
			return malformed("snappy stream of %d bytes, want %d", n, len(dst))
		}
		if _, err := snappy.Decode(dst, src); err != nil {
			return malformed("%w", err)
		}
		return nil
	case codecGzip:
		if c.gzip == nil {
			c.gzip = new(gzip.Reader)
		}
		if err := c.gzip.Reset(bytes.NewReader(src)); err != nil {
			return malformed("%w", err)
		}
		return fill(dst, c.gzip)
	case codecBrotli:
		return fill(dst, brotli.NewReader(bytes.NewReader(src)))
	case codecZstd:
		return c.zstandard(dst, src)
	case codecLZ4Raw:
		return lz4Block(dst, src)
	case codecLZ4:
		if err := lz4Frames(dst, src); err == nil {
			return nil
		}
		return lz4Block(dst, src) // what some writers meant by LZ4
	}
	return unsupported("compression codec %d", codec)
}

// slack is how many bytes the decoder of zstd wants after its output: with fewer it takes a path that checks each copy
// and is a third slower (klauspost/compress: zstd/seqdec_amd64.go, maxCompressedBlockSizeAlloc).
const slack = 128<<10 + 64

// zstandard decodes into dst alone: the decoder refuses to write beyond its capacity.
func (c *codecs) zstandard(dst, src []byte) error {
	if c.zstd == nil {
		r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return err
		}
		c.zstd = r
	}
	out, err := c.zstd.DecodeAll(src, dst[:0])
	if err != nil {
		return malformed("%w", err)
	}
	if len(out) != len(dst) {
		return malformed("zstd stream of %d bytes, want %d", len(out), len(dst))
	}
	return nil
}

func fill(dst []byte, r io.Reader) error {
	if n, err := io.ReadFull(r, dst); err != nil {
		return malformed("compressed page ends after %d of %d bytes: %w", n, len(dst), err)
	}
	if n, _ := r.Read(make([]byte, 1)); n > 0 {
		return malformed("compressed page is longer than %d bytes", len(dst))
	}
	return nil
}

func lz4Block(dst, src []byte) error {
	n, err := lz4.UncompressBlock(src, dst)
	if err != nil {
		return malformed("%w", err)
	}
	if n != len(dst) {
		return malformed("lz4 block of %d bytes, want %d", n, len(dst))
	}
	return nil
}

// lz4Frames reads Hadoop's framing: blocks after their uncompressed and compressed length, big-endian.
func lz4Frames(dst, src []byte) error {
	for len(dst) > 0 {
		if len(src) < 8 {
			return malformed("lz4 frame ends early")
		}
		out, in := uint64(binary.BigEndian.Uint32(src)), uint64(binary.BigEndian.Uint32(src[4:]))
		src = src[8:]
		if out == 0 || out > uint64(len(dst)) || in > uint64(len(src)) {
			return malformed("lz4 frame of %d bytes in %d", out, in)
		}
		if err := lz4Block(dst[:out], src[:in]); err != nil {
			return err
		}
		dst, src = dst[out:], src[in:]
	}
	return nil
}
