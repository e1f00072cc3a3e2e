package testbed

import (
	"encoding/binary"
	"slices"
)

// Edit returns a copy of a good file with edits, for fuzz targets of large formats: their inputs are then a few bytes where
// the file has thousands, and the fuzzer does not spend its time on making them smaller. Each edit is five bytes: what to do
// (change a byte, insert one, take some out, cut the rest off), the place in three bytes, modulo the length, and a value.
func Edit(file, edits []byte) []byte {
	out := slices.Clone(file)
	for ; len(edits) >= 5 && len(out) > 0; edits = edits[5:] {
		at := int(binary.LittleEndian.Uint32(edits[1:])&0xffffff) % len(out)
		value := edits[4]
		switch edits[0] % 8 {
		default:
			out[at] = value
		case 1:
			out = slices.Insert(out, at, value)
		case 2:
			out = slices.Delete(out, at, min(at+1+int(value), len(out)))
		case 3:
			out = out[:at]
		}
	}
	return out
}
