package snapshot

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/monolith-go/monolith/ps/table"
)

// lanes is how many records of a length are digested at once.
const lanes = 16

// inLanes adds as many rows as there are in whole lanes and returns how many. A record is head, what a row has in rows, and the padding of SHA-256 behind it,
// which like the lengths of the lists stays from row to row.
func (d *Digest) inLanes(head []byte, dim, stateDim int, rows *table.Rows) (done int) {
	n := len(rows.Keys) / lanes * lanes
	if n == 0 || !hasLanes() {
		return 0
	}
	weights := len(head) + 24
	state := weights + 8 + 4*dim
	size := state + 8 + 4*stateDim
	stride := (size + 9 + 63) / 64 * 64
	if cap(d.padded) < lanes*stride {
		d.padded = make([]byte, lanes*stride)
	}
	padded := d.padded[:lanes*stride]
	clear(padded)
	for l := range lanes {
		b := padded[l*stride:][:stride]
		copy(b, head)
		binary.LittleEndian.PutUint64(b[weights:], uint64(dim))
		binary.LittleEndian.PutUint64(b[state:], uint64(stateDim))
		b[size] = 0x80
		binary.BigEndian.PutUint64(b[stride-8:], 8*uint64(size))
	}
	var sums [8][8]uint64
	for i := 0; i < n; i += lanes {
		for l := range lanes {
			b, at := padded[l*stride:][:size], i+l
			fields := b[len(head):weights]
			binary.LittleEndian.PutUint64(fields, uint64(rows.Keys[at]))
			binary.LittleEndian.PutUint64(fields[8:], uint64(rows.Times[at]))
			binary.LittleEndian.PutUint64(fields[16:], rows.Counts[at])
			copyFloats(b[weights+8:state], rows.Weights[at*dim:(at+1)*dim])
			copyFloats(b[state+8:], rows.State[at*stateDim:(at+1)*stateDim])
		}
		sumLanes(unsafe.SliceData(padded), stride, stride/64, &sums)
	}
	d.addSums(&sums)
	return n
}

// copyFloats copies the bits of floats, on processors whose order of bytes is that of records.
func copyFloats(to []byte, f []float32) {
	copy(to, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), 4*len(f)))
}

// addSums adds numbers of 256 bits, of which sums has the sums of their words of 32 bits, the most significant first, each below 2^61 in all.
func (d *Digest) addSums(sums *[8][8]uint64) {
	var add [4]uint64
	var over uint64
	for j := 7; j >= 0; j-- {
		for _, s := range sums[j] {
			over += s
		}
		add[(7-j)/2] |= over & (1<<32 - 1) << (32 * uint((7-j)%2))
		over >>= 32
	}
	var carry uint64
	for i := range d.sum {
		d.sum[i], carry = bits.Add64(d.sum[i], add[i], carry)
	}
}
