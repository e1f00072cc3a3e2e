package pqfile

import "encoding/binary"

const maxDeltaBlock = 1 << 20 // values; writers use 128

// deltaInts decodes at least want integers of DELTA_BINARY_PACKED (Encodings.md, 5) and returns the want first ones and
// what follows the encoding. Sums wrap around at 64 bits, so they are right modulo 2^32 as well.
//
//	header := <block size> <miniblocks in a block> <number of values> <zigzag: first value>
//	block  := <zigzag: least delta> <a byte for each miniblock: its width> <miniblocks of packed deltas over the least>
func deltaInts(dst []int64, src []byte, want int) (values []int64, rest []byte, err error) {
	var head [3]uint64
	for i := range head {
		v, n := binary.Uvarint(src)
		if n <= 0 {
			return nil, nil, malformed("delta header ends early")
		}
		head[i], src = v, src[n:]
	}
	block, minis, total := head[0], head[1], head[2]
	first, n := binary.Varint(src)
	if n <= 0 {
		return nil, nil, malformed("delta header ends early")
	}
	src = src[n:]
	if block == 0 || block > maxDeltaBlock || minis == 0 || minis > block || block%minis != 0 || (block/minis)%32 != 0 {
		return nil, nil, malformed("delta blocks of %d values in %d parts", block, minis)
	}
	if total != uint64(want) {
		return nil, nil, malformed("%d delta values, want %d", total, want)
	}
	if want == 0 {
		return dst[:0], src, nil
	}
	dst = grow(dst, want)
	dst[0] = first
	size := int(block / minis)
	deltas := make([]uint64, size)
	for i, last := 1, first; i < want; {
		least, n := binary.Varint(src)
		if n <= 0 || len(src)-n < int(minis) {
			return nil, nil, malformed("delta block of value %d ends early", i)
		}
		widths := src[n : n+int(minis)]
		src = src[n+int(minis):]
		for _, width := range widths {
			if i == want {
				break
			}
			if width > 64 {
				return nil, nil, malformed("deltas of %d bits", width)
			}
			m := min(size, want-i)
			bytes := size * int(width) / 8
			if bytes > len(src) {
				if bytes = (m*int(width) + 7) / 8; bytes > len(src) { // some writers cut the last one short
					return nil, nil, malformed("delta block of value %d ends early", i)
				}
			}
			out := dst[i : i+m]
			if width <= 56 {
				last = sums(out, src, uint(width), last, least)
			} else {
				unpackWide(deltas[:m], src, uint(width)) // what follows serves to read whole words
				for k, delta := range deltas[:m] {
					last += least + int64(delta)
					out[k] = last
				}
			}
			src = src[bytes:]
			i += m
		}
	}
	return dst, src, nil
}

// sums fills dst with last plus the sums of least and of packed deltas of up to 56 bits, and returns the last one. src may
// be longer than the deltas.
func sums(dst []int64, src []byte, width uint, last, least int64) int64 {
	mask := uint64(1)<<width - 1
	bit := uint(0)
	i := 0
	for ; i < len(dst); i++ {
		at := bit >> 3
		if at+8 > uint(len(src)) {
			break
		}
		last += least + int64(binary.LittleEndian.Uint64(src[at:at+8])>>(bit&7)&mask)
		dst[i] = last
		bit += width
	}
	for ; i < len(dst); i++ {
		var window [8]byte
		copy(window[:], src[min(bit>>3, uint(len(src))):])
		last += least + int64(binary.LittleEndian.Uint64(window[:])>>(bit&7)&mask)
		dst[i] = last
		bit += width
	}
	return last
}

// deltaLengths decodes DELTA_LENGTH_BYTE_ARRAY (6): all lengths, then all bytes. The spans point into the result's data.
func (v *Values) deltaLengths(src []byte, want int) error {
	lengths, rest, err := deltaInts(v.scratch, src, want)
	if err != nil {
		return err
	}
	v.scratch = lengths
	v.Spans = grow(v.Spans, want)
	at := int64(0)
	for i, n := range lengths {
		if n < 0 || n > int64(len(rest))-at {
			return malformed("byte array %d has %d bytes, %d are left", i, n, int64(len(rest))-at)
		}
		v.Spans[i] = Span{uint32(at), uint32(n)}
		at += n
	}
	v.Data = rest
	return nil
}

// deltaArrays decodes DELTA_BYTE_ARRAY (7): lengths of prefixes shared with the value before, then the suffixes as in
// DELTA_LENGTH_BYTE_ARRAY. limit bounds the bytes of the values: a short page may stand for many.
func (v *Values) deltaArrays(src []byte, want, limit int) error {
	prefixes, rest, err := deltaInts(v.prefixes, src, want)
	if err != nil {
		return err
	}
	v.prefixes = prefixes
	if err := v.deltaLengths(rest, want); err != nil {
		return err
	}
	suffixes, out := v.Data, v.joined[:0]
	last := Span{}
	for i, s := range v.Spans {
		prefix := prefixes[i]
		if prefix < 0 || prefix > int64(last.Len) {
			return malformed("byte array %d shares %d bytes with one of %d", i, prefix, last.Len)
		}
		if len(out)+int(prefix)+int(s.Len) > limit {
			return malformed("byte arrays of a page take more than %d bytes", limit)
		}
		at := uint32(len(out))
		out = append(out, out[last.At:last.At+uint32(prefix)]...)
		out = append(out, suffixes[s.At:s.At+s.Len]...)
		last = Span{at, uint32(len(out)) - at}
		v.Spans[i] = last
	}
	v.Data, v.joined = out, out
	return nil
}
