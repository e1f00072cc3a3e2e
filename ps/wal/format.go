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

// formatVersion is the format that this package writes. It reads those from oldestVersion on: before 5 no segment had a file that was there
// before, and the field that says so was 0.
const (
	formatVersion = 5
	oldestVersion = 4
)

const (
	magic = "MONOWAL\n"
	// headerFixed is a header without its identity, the checksum after it included.
	headerFixed = 8 + 4 + 4 + 8 + 8 + 8 + 8 + 4 + 4
	// recordHead is a record without its payload.
	recordHead = 4 + 4 + 8 + 8 + 4 + 1 + 1
	// sectorBytes is the least that a disk writes whole.
	sectorBytes = 512
)

// The types of records.
const (
	typeData byte = iota
	// typeBorder separates what lies before the cut of a snapshot from what follows it.
	typeBorder
	// typeReset is a border before which nothing of the shard counts.
	typeReset
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// header is what a segment begins with.
type header struct {
	seq      uint64
	first    uint64
	salt     uint64
	identity string
	// reused: the file was another segment's, so that what was never written is what that one has left, and not zeros.
	reused bool
}

func (h *header) len() int { return headerFixed + len(h.identity) }

func (h *header) encode() []byte {
	b := make([]byte, 0, h.len())
	b = append(b, magic...)
	b = le.AppendUint32(b, formatVersion)
	reused := uint32(0)
	if h.reused {
		reused = 1
	}
	b = le.AppendUint32(b, reused)
	b = le.AppendUint64(b, h.seq)
	b = le.AppendUint64(b, 0)
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
	if v := le.Uint32(b[8:]); v < oldestVersion || v > formatVersion {
		return header{}, fmt.Errorf("version %d, this program has version %d; put the folder aside, and what it holds after the last snapshot is read from the source again: %w", v, formatVersion, ErrVersion)
	}
	h := header{seq: le.Uint64(b[16:]), first: le.Uint64(b[32:]), salt: le.Uint64(b[40:]), identity: string(b[52:end]), reused: le.Uint32(b[12:]) != 0}
	if h.first == 0 {
		return header{}, fmt.Errorf("first lsn is 0")
	}
	return h, nil
}

// appendRecord adds a record whose checksum and durable field [seal] fills in.
func appendRecord(b []byte, lsn uint64, shard uint32, typ, kind byte, size int, parts [][]byte) []byte {
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, uint32(size))
	b = le.AppendUint64(b, lsn)
	b = le.AppendUint64(b, 0)
	b = le.AppendUint32(b, shard)
	b = append(b, typ, kind)
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
	shard        uint32
	typ, kind    byte
	payload      []byte
}

func (r *record) len() int { return recordHead + len(r.payload) }

// base is the snapshot of a border or reset; ok is false for what cannot be one.
func (r *record) base() (base uint64, ok bool) {
	if len(r.payload) != 8 {
		return 0, false
	}
	return le.Uint64(r.payload), true
}

// shape reads a record without looking at its checksum; ok is set if it lies within b.
func shape(b []byte) (r record, ok bool) {
	if len(b) < recordHead {
		return record{}, false
	}
	n := int64(le.Uint32(b[4:]))
	if n > MaxRecord || n > int64(len(b)-recordHead) {
		return record{}, false
	}
	return record{
		lsn: le.Uint64(b[8:]), durable: le.Uint64(b[16:]), shard: le.Uint32(b[24:]), typ: b[28], kind: b[29],
		payload: b[recordHead : recordHead+int(n)],
	}, true
}

// parseRecord reads the record at the beginning of b, which must be number lsn.
func parseRecord(b []byte, seed uint32, lsn uint64) (record, bool) {
	r, ok := shape(b)
	if !ok || r.lsn != lsn || crc32.Update(seed, castagnoli, b[4:r.len()]) != le.Uint32(b) {
		return record{}, false
	}
	return r, true
}
