package pqfile

import (
	"errors"
	"hash/crc32"
	"io"
)

// Page types of parquet.thrift.
const (
	pageData       = 0
	pageDictionary = 2
	pageDataV2     = 3
)

// header is a PageHeader with what matters of its three kinds.
type header struct {
	kind                     int32
	uncompressed, compressed int32
	crc                      uint32
	hasCRC                   bool

	values           int32
	encoding         int32
	defEnc, repEnc   int32 // v1
	defBytes         int32 // v2
	repBytes         int32
	flat             bool // v2: values are not compressed
	nulls, rows      int32
	hasKind, hasBody bool
}

// readHeader reads the page header at off, before end, and returns its size. The guess at its size grows as needed.
func readHeader(r io.ReaderAt, off, end int64, buf *[]byte) (header, int64, error) {
	for size := int64(256); ; size *= 16 {
		size = min(size, end-off, maxHeaderBytes)
		*buf = grow(*buf, int(max(size, 0)))
		if err := readAt(r, *buf, off); err != nil {
			return header{}, 0, err
		}
		h, n, err := parseHeader(*buf)
		if errors.Is(err, errShort) {
			if size < min(end-off, maxHeaderBytes) {
				continue
			}
			if size == maxHeaderBytes && size < end-off {
				return header{}, 0, tooLarge("page header at %d has more than %d bytes", off, maxHeaderBytes)
			}
			err = malformed("page header at %d: %w", off, err)
		}
		return h, int64(n), err
	}
}

func parseHeader(b []byte) (header, int, error) {
	var h header
	d := decoder{b: b}
	body := func(field func(id int16, typ byte) bool) {
		h.hasBody = true
		d.structure(field)
	}
	d.structure(func(id int16, typ byte) bool {
		switch {
		case id == 1 && typ == typeI32:
			h.kind, h.hasKind = d.int32(), true
		case id == 2 && typ == typeI32:
			h.uncompressed = d.int32()
		case id == 3 && typ == typeI32:
			h.compressed = d.int32()
		case id == 4 && typ == typeI32:
			h.crc, h.hasCRC = uint32(d.int32()), true
		case id == 5 && typ == typeStruct && h.kind == pageData:
			body(d.ints(nil, &h.values, &h.encoding, &h.defEnc, &h.repEnc))
		case id == 7 && typ == typeStruct && h.kind == pageDictionary:
			body(d.ints(nil, &h.values, &h.encoding))
		case id == 8 && typ == typeStruct && h.kind == pageDataV2:
			ints := d.ints(nil, &h.values, &h.nulls, &h.rows, &h.encoding, &h.defBytes, &h.repBytes)
			body(func(id int16, typ byte) bool {
				if id == 7 {
					h.flat = typ == typeFalse
				}
				return ints(id, typ)
			})
		default:
			return false
		}
		return true
	})
	if d.err == nil {
		d.err = h.check()
	}
	return h, d.off, d.err
}

// ints returns a function for structure that reads 32-bit fields into the variables for ids 0, 1, 2 and so on.
func (d *decoder) ints(fields ...*int32) func(int16, byte) bool {
	return func(id int16, typ byte) bool {
		if typ != typeI32 || id <= 0 || int(id) >= len(fields) {
			return false
		}
		*fields[id] = d.int32()
		return true
	}
}

func (h *header) check() error {
	switch {
	case !h.hasKind:
		return malformed("page header without a type")
	case h.uncompressed < 0 || h.compressed < 0:
		return malformed("page of %d bytes, %d uncompressed", h.compressed, h.uncompressed)
	case h.kind == pageDataV2 && (h.defBytes < 0 || h.repBytes < 0 ||
		int64(h.defBytes)+int64(h.repBytes) > int64(min(h.compressed, h.uncompressed))):
		return malformed("levels of %d and %d bytes in a page of %d", h.repBytes, h.defBytes, h.compressed)
	case h.values < 0:
		return malformed("page of %d values", h.values)
	}
	return nil
}

// verify compares the checksum of a page, if there is one (parquet.thrift: PageHeader.crc, the CRC-32 of gzip).
func (h *header) verify(data []byte) error {
	if !h.hasCRC {
		return nil
	}
	if got := crc32.ChecksumIEEE(data); got != h.crc {
		return malformed("page checksum mismatch (want %08x, got %08x)", h.crc, got)
	}
	return nil
}
