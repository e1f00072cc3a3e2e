package tfrecord

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	headLen   = 12 // length and its checksum
	footLen   = 4  // checksum of the data
	maskDelta = 0xa282ead8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the masked CRC-32C of b.
func Checksum(b []byte) uint32 {
	var s Sum
	s.Add(b)
	return s.Checksum()
}

// Sum is a CRC-32C in the making; the zero value is that of no bytes.
type Sum uint32

// Add adds bytes.
func (s *Sum) Add(b []byte) { *s = Sum(crc32.Update(uint32(*s), castagnoli, b)) }

// Checksum is the masked CRC-32C of all that was added.
func (s Sum) Checksum() uint32 { return (uint32(s)>>15 | uint32(s)<<17) + maskDelta }

// IsGzip reports whether the first bytes of a file are those of a gzip stream rather than of plain TFRecord framing. A
// plain file whose first record is 559,903 bytes long begins with gzip's magic number too; its length checksum distinguishes it
// apart. Twelve bytes decide; fewer are a gzip stream when they begin like one.
func IsGzip(head []byte) bool {
	if len(head) < 3 || head[0] != 0x1f || head[1] != 0x8b || head[2] != 8 {
		return false
	}
	return len(head) < headLen || binary.LittleEndian.Uint32(head[8:]) != Checksum(head[:8])
}
