package pqfile

import "encoding/binary"

// hybrid decodes exactly len(dst) values of width bits from the RLE/bit-packed hybrid (Encodings.md, RLE = 3):
//
//	run := <varint: length << 1> <value in whole bytes>  |  <varint: groups << 1 | 1> <groups of 8 packed values>
//
// Values after the last wanted one are padding.
func hybrid[T uint8 | uint32](dst []T, src []byte, width uint) error {
	if width > 32 {
		return malformed("values of %d bits", width)
	}
	wide := int(width+7) / 8
	for len(dst) > 0 {
		head, n := binary.Uvarint(src)
		if n <= 0 {
			return malformed("%d values are missing after the last run", len(dst))
		}
		src = src[n:]
		if head&1 == 0 {
			if len(src) < wide {
				return malformed("run of %d values without its value", head>>1)
			}
			value := uint32(0)
			for i := range wide {
				value |= uint32(src[i]) << (8 * i)
			}
			src = src[wide:]
			run := dst[:min(uint64(len(dst)), head>>1)]
			for i := range run {
				run[i] = T(value)
			}
			dst = dst[len(run):]
			continue
		}
		groups := min(head>>1, uint64(len(dst)+7)/8) // no more than is wanted
		values := min(int(groups)*8, len(dst))
		have := src
		if size := int(groups) * int(width); size <= len(src) {
			src = src[size:] // have holds more than the run: whole words can be read to its end
		} else if need := (values*int(width) + 7) / 8; need <= len(src) {
			src = nil // some writers leave the last group's padding out
		} else {
			return malformed("%d packed values of %d bits in %d bytes", values, width, len(src))
		}
		unpack(dst[:values], have, width)
		dst = dst[values:]
	}
	return nil
}

// unpack reads len(dst) values of up to 56 bits, packed from the least significant bit on; src holds them all.
func unpack[T uint8 | uint32 | uint64](dst []T, src []byte, width uint) {
	mask := uint64(1)<<width - 1
	bit := uint(0)
	i := 0
	for ; i < len(dst) && bit>>3+8 <= uint(len(src)); i++ {
		dst[i] = T(binary.LittleEndian.Uint64(src[bit>>3:]) >> (bit & 7) & mask)
		bit += width
	}
	for ; i < len(dst); i++ {
		var window [8]byte
		copy(window[:], src[min(bit>>3, uint(len(src))):])
		dst[i] = T(binary.LittleEndian.Uint64(window[:]) >> (bit & 7) & mask)
		bit += width
	}
}

// unpackWide is unpack for any width up to 64 bits.
func unpackWide(dst []uint64, src []byte, width uint) {
	if width <= 56 {
		unpack(dst, src, width)
		return
	}
	bit := uint(0)
	if width == 64 && len(src) >= 8*len(dst) {
		for i := range dst {
			dst[i] = binary.LittleEndian.Uint64(src[8*i:])
		}
		return
	}
	for i := range dst {
		if at := bit >> 3; at+9 <= uint(len(src)) {
			low := binary.LittleEndian.Uint64(src[at:]) >> (bit & 7)
			dst[i] = (low | uint64(src[at+8])<<(64-bit&7)) & (1<<(width-1)<<1 - 1) // a shift by 64 is 0
			bit += width
			continue
		}
		var window [9]byte
		copy(window[:], src[min(bit>>3, uint(len(src))):])
		v := binary.LittleEndian.Uint64(window[:]) >> (bit & 7)
		if bit&7 != 0 {
			v |= uint64(window[8]) << (64 - bit&7)
		}
		dst[i] = v & (1<<(width-1)<<1 - 1)
		bit += width
	}
}

// packed decodes levels in the deprecated BIT_PACKED encoding, from the most significant bit on, and returns its size.
func packed(dst []uint8, src []byte, width uint) (int, error) {
	size := (len(dst)*int(width) + 7) / 8
	if size > len(src) {
		return 0, malformed("%d levels of %d bits in %d bytes", len(dst), width, len(src))
	}
	bit := 0
	for i := range dst {
		v := uint8(0)
		for range width {
			v = v<<1 | src[bit>>3]>>(7-bit&7)&1
			bit++
		}
		dst[i] = v
	}
	return size, nil
}
