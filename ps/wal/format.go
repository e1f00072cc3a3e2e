package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// MaxRecord is the largest payload of a record in bytes.
const MaxRecord = 1 << 30

// MaxIdentity is the largest [Options].Identity in bytes.
const MaxIdentity = 4096

// formatVersion is the format that this package writes, and the only one it reads.
const formatVersion = 1

const (
	magic = "MONOWAL\n"
	// headerFixed is a header without its identity, the checksum after it included.
	headerFixed = 8 + 4 + 4 + 8 + 8 + 8 + 8 + 4 + 4
	// recordHead is a record without its payload.
	recordHead = 4 + 4 + 8 + 8 + 1
	// sectorBytes is the least that a disk writes whole.
	sectorBytes = 512
)

const (
	flagBorder = 1 << iota
	flagReset
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// header is what a segment begins with.
type header struct {
	flags    uint32
	seq      uint64
	base     uint64
	first    uint64
	salt     uint64
	identity string
}

func (h *header) len() int { return headerFixed + len(h.identity) }

// from is the lsn with which the segment begins: its border's if it has one.
func (h *header) from() uint64 {
	if h.flags&flagBorder != 0 {
		return h.first - 1
	}
	return h.first
}

func (h *header) encode() []byte {
	b := make([]byte, 0, h.len())
	b = append(b, magic...)
	b = le.AppendUint32(b, formatVersion)
	b = le.AppendUint32(b, h.flags)
	b = le.AppendUint64(b, h.seq)
	b = le.AppendUint64(b, h.base)
	b = le.AppendUint64(b, h.first)
	b = le.AppendUint64(b, h.salt)
	b = le.AppendUint32(b, uint32(len(h.identity)))
	b = append(b, h.identity...)
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseHeader reads the header at the beginning of a segment. The error of a version it does not know wraps [ErrVersion].
func parseHeader(b []byte) (header, error) {
	if len(b) < headerFixed {
		return header{}, fmt.Errorf("header is cut short: %d bytes", len(b))
	}
	if string(b[:8]) != magic {
		return header{}, fmt.Errorf("magic is %q", b[:8])
	}
	n := int64(le.Uint32(b[48:]))
	if n > MaxIdentity || n > int64(len(b)-headerFixed) {
		return header{}, fmt.Errorf("identity of %d bytes", n)
	}
	end := 52 + int(n)
	if got, want := crc32.Checksum(b[:end], castagnoli), le.Uint32(b[end:]); got != want {
		return header{}, fmt.Errorf("header checksum mismatch (want %08x, got %08x)", want, got)
	}
	// Every version has its version, the length and the checksum in these places, so that damage is not taken for one.
	if v := le.Uint32(b[8:]); v != formatVersion {
		return header{}, fmt.Errorf("version %d: %w", v, ErrVersion)
	}
	h := header{
		flags: le.Uint32(b[12:]), seq: le.Uint64(b[16:]), base: le.Uint64(b[24:]), first: le.Uint64(b[32:]), salt: le.Uint64(b[40:]),
		identity: string(b[52:end]),
	}
	if h.first == 0 {
		return header{}, fmt.Errorf("first lsn is 0")
	}
	return h, nil
}

// appendRecord adds a record whose checksum and durable field [seal] fills in.
func appendRecord(b []byte, lsn uint64, kind byte, size int, parts [][]byte) []byte {
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, uint32(size))
	b = le.AppendUint64(b, lsn)
	b = le.AppendUint64(b, 0)
	b = append(b, kind)
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// seal completes records that appendRecord wrote.
func seal(b []byte, salt, durable uint64) {
	seed := saltSum(salt)
	for len(b) > 0 {
		n := recordHead + int(le.Uint32(b[4:]))
		le.PutUint64(b[16:], durable)
		le.PutUint32(b, crc32.Update(seed, castagnoli, b[4:n]))
		b = b[n:]
	}
}

func saltSum(salt uint64) uint32 {
	// Byte by byte through the table: a slice of a local array would go to the heap.
	sum := ^uint32(0)
	for range 8 {
		sum = castagnoli[byte(sum)^byte(salt)] ^ sum>>8
		salt >>= 8
	}
	return ^sum
}

// record is one entry; payload is part of the bytes it was read from.
type record struct {
	lsn, durable uint64
	kind         byte
	payload      []byte
}

func (r *record) len() int { return recordHead + len(r.payload) }

// shape reads a record without looking at its checksum; ok is set if it lies within b.
func shape(b []byte) (r record, ok bool) {
	if len(b) < recordHead {
		return record{}, false
	}
	n := int64(le.Uint32(b[4:]))
	if n > MaxRecord || n > int64(len(b)-recordHead) {
		return record{}, false
	}
	return record{lsn: le.Uint64(b[8:]), durable: le.Uint64(b[16:]), kind: b[24], payload: b[recordHead : recordHead+int(n)]}, true
}

// parseRecord reads the record at the beginning of b, which must be number lsn.
func parseRecord(b []byte, seed uint32, lsn uint64) (record, bool) {
	r, ok := shape(b)
	if !ok || r.lsn != lsn || crc32.Update(seed, castagnoli, b[4:r.len()]) != le.Uint32(b) {
		return record{}, false
	}
	return r, true
}
