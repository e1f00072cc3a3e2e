package wal

import (
	"bytes"
	"hash/crc32"
)

// tornAt decides about the bad record number lsn at the beginning of b, the rest of the last segment, of which off bytes lie
// before b: torn off by the end of the process or machine, or damaged. Of a damaged one it says why, and else how many bytes are torn: of a file
// that was another segment's, those that are known to be of this one.
func tornAt(b []byte, off int64, seed uint32, lsn uint64, reused bool) (torn int, why string) {
	at, end, durable := behind(b, seed, lsn)
	switch {
	case at >= 0 && durable >= lsn:
		return 0, "bad record that later ones say was durable"
	case reused:
		if len(b) >= recordHead && le.Uint64(b[8:]) == lsn {
			end = max(end, int(min(recordHead+int64(le.Uint32(b[4:])), int64(len(b)))))
		}
		return end, ""
	case at < 0 || hole(b[:at], off):
		return len(bytes.TrimRight(b, "\x00")), ""
	}
	return 0, "bad record with good ones after it"
}

// behind looks for good records after a bad one, number lsn, at the beginning of b. It returns where the first of them is,
// or -1, where the last of them ends, and the largest durable field of them all.
func behind(b []byte, seed uint32, lsn uint64) (at, end int, durable uint64) {
	at = -1
	// More checksums than these only an adversary asks for, and what he wrote is not torn.
	budget := 4*len(b) + 1<<20
	last := lsn + uint64(len(b)/recordHead)
	for p := 1; p+recordHead <= len(b); {
		n := le.Uint64(b[p+8:])
		if n < lsn || n > last {
			p++
			continue
		}
		r, ok := shape(b[p:])
		if !ok || r.durable >= n {
			p++
			continue
		}
		if budget -= r.len(); budget < 0 {
			return p, p, lsn
		}
		if crc32.Update(seed, castagnoli, b[p+4:p+r.len()]) != le.Uint32(b[p:]) {
			p++
			continue
		}
		if at < 0 {
			at = p
		}
		durable = max(durable, r.durable)
		p += r.len()
		end = p
	}
	return at, end, durable
}

// hole reports whether a sector of b was never written. off is the offset of b in its file. In the first sector, whose
// beginning belongs to earlier records, at least the checksum of the record must be missing.
func hole(b []byte, off int64) bool {
	n := int(sectorBytes - off%sectorBytes)
	least := 4
	for len(b) > 0 {
		n = min(n, len(b))
		if n >= least && zero(b[:n]) {
			return true
		}
		b, n, least = b[n:], sectorBytes, sectorBytes
	}
	return false
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
