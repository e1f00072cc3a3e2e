package fid

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// HashBytes returns the signature that stands for a byte string: the low 48 bits of its CityHash64. Upstream's
// FeatureHash takes the same function but looks at the first 8 bytes only and masks 49 bits; both are mistakes.
func HashBytes(b []byte) uint64 { return cityHash64(b) & MaxSignature }

// HashString is [HashBytes] of a string's bytes.
func HashString(s string) uint64 {
	// The bytes are only read during the call, so viewing a string as bytes is safe.
	return HashBytes(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// HashInt returns the signature that stands for an integer: the low 48 bits of the CityHash64 of its 8 bytes in little
// endian order, which is upstream's extract_fid without its mask of 49 bits. HashInt(7) and HashString("7") differ.
func HashInt(v int64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(v))
	return cityHash64(b[:]) & MaxSignature
}

// Primes between 2^63 and 2^64 that CityHash multiplies by.
const (
	city0 = 0xc3a5c85c97cb3127
	city1 = 0xb492b66fbe98f273
	city2 = 0x9ae16a3b2f90404f
)

// cityHash64 is CityHash64 version 1.1 (Geoff Pike and Jyrki Alakuijala, Google, 2013): fast on the short strings that
// feature values are, without a seed, the same on every machine. It is not made to withstand chosen inputs.
func cityHash64(s []byte) uint64 {
	n := len(s)
	switch {
	case n <= 16:
		return cityUpTo16(s)
	case n <= 32:
		return cityUpTo32(s)
	case n <= 64:
		return cityUpTo64(s)
	}
	// 56 bytes of state, started from the last 64 bytes, then one round for every 64 bytes from the front; the last
	// round may read bytes that the start has already seen.
	x, y := u64(s, n-40), u64(s, n-16)+u64(s, n-56)
	z := cityMix(u64(s, n-48)+uint64(n), u64(s, n-24), city128)
	v0, v1 := cityWeak32(s[n-64:], uint64(n), z)
	w0, w1 := cityWeak32(s[n-32:], y+city1, x)
	x = x*city1 + u64(s, 0)
	for rounds := (n - 1) / 64; rounds > 0; rounds-- {
		x = ror(x+y+v0+u64(s, 8), 37) * city1
		y = ror(y+v1+u64(s, 48), 42) * city1
		x ^= w1
		y += v0 + u64(s, 40)
		z = ror(z+w0, 33) * city1
		v0, v1 = cityWeak32(s, v1*city1, x+w0)
		w0, w1 = cityWeak32(s[32:], z+w1, y+u64(s, 16))
		z, x = x, z
		s = s[64:]
	}
	return cityMix(cityMix(v0, w0, city128)+cityFold(y)*city1+z, cityMix(v1, w1, city128)+x, city128)
}

func cityUpTo16(s []byte) uint64 {
	n := len(s)
	switch {
	case n >= 8:
		mul := city2 + uint64(n)*2
		a, b := u64(s, 0)+city2, u64(s, n-8)
		return cityMix(ror(b, 37)*mul+a, (ror(a, 25)+b)*mul, mul)
	case n >= 4:
		mul := city2 + uint64(n)*2
		return cityMix(uint64(n)+u32(s, 0)<<3, u32(s, n-4), mul)
	case n > 0:
		y := uint64(s[0]) + uint64(s[n>>1])<<8
		z := uint64(n) + uint64(s[n-1])<<2
		return cityFold(y*city2^z*city0) * city2
	}
	return city2
}

func cityUpTo32(s []byte) uint64 {
	n := len(s)
	mul := city2 + uint64(n)*2
	a, b := u64(s, 0)*city1, u64(s, 8)
	c, d := u64(s, n-8)*mul, u64(s, n-16)*city2
	return cityMix(ror(a+b, 43)+ror(c, 30)+d, a+ror(b+city2, 18)+c, mul)
}

func cityUpTo64(s []byte) uint64 {
	n := len(s)
	mul := city2 + uint64(n)*2
	a, b := u64(s, 0)*city2, u64(s, 8)
	c, d := u64(s, n-24), u64(s, n-32)
	e, f := u64(s, 16)*city2, u64(s, 24)*9
	g, h := u64(s, n-8), u64(s, n-16)*mul
	u := ror(a+g, 43) + (ror(b, 30)+c)*9
	v := ((a + g) ^ d) + f + 1
	w := bits.ReverseBytes64((u+v)*mul) + h
	x := ror(e+f, 42) + c
	y := (bits.ReverseBytes64((v+w)*mul) + g) * mul
	z := e + f + c
	a = bits.ReverseBytes64((x+z)*mul+y) + b
	return cityFold((z+a)*mul+d+h)*mul + x
}

// city128 is the multiplier with which CityHash folds 128 bits into 64 (Murmur's).
const city128 = 0x9ddfea08eb382d69

func cityMix(u, v, mul uint64) uint64 {
	a := (u ^ v) * mul
	a ^= a >> 47
	b := (v ^ a) * mul
	b ^= b >> 47
	return b * mul
}

func cityWeak32(s []byte, a, b uint64) (uint64, uint64) {
	w, x, y, z := u64(s, 0), u64(s, 8), u64(s, 16), u64(s, 24)
	a += w
	b = ror(b+a+z, 21)
	c := a
	a += x + y
	return a + z, b + ror(a, 44) + c
}

func cityFold(v uint64) uint64 { return v ^ v>>47 }

func ror(v uint64, by int) uint64 { return bits.RotateLeft64(v, -by) }

func u64(s []byte, at int) uint64 { return binary.LittleEndian.Uint64(s[at:]) }

func u32(s []byte, at int) uint64 { return uint64(binary.LittleEndian.Uint32(s[at:])) }
