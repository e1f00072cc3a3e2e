package kafkawire

import (
	"runtime"
	"strings"
	"testing"
)

// FuzzAnswers feeds every decoder of a broker's answers: bounded memory, no panic.
func FuzzAnswers(f *testing.F) {
	huge := []byte{0, 0, 0, 0, 0x5d, 0x3e, 0xaa, 0xac, 0, 0, 0, 0}
	f.Add(huge)
	f.Add(huge[4:])
	f.Add([]byte{0, 0, 0x5d, 0x3e, 0xaa, 0xac})
	f.Add([]byte(strings.Repeat("\x00\x00\x00\x01", 40)))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := allocated()
		for _, version := range []int16{metadataWithIDs, metadataMaxForIDs} {
			_, _ = decodeMetadata(b, version)
		}
		_, _ = decodeOldMetadata(b)
		_, _ = decodeVersions(b)
		_, _, _ = decodeSASLHandshake(b)
		_, _, _, _ = decodeSASLAuthenticate(b)
		if n := allocated() - before; n > uint64(1<<20+200*len(b)) {
			t.Fatalf("%d bytes were allocated for %d", n, len(b))
		}
	})
}

// allocated is the number of bytes that were ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func FuzzDecodeMetadata(f *testing.F) {
	f.Add(int16(10), []byte(strings.Repeat("\x00", 80)))
	f.Add(int16(12), []byte(strings.Repeat("\x02", 200)))
	f.Fuzz(func(t *testing.T, version int16, b []byte) {
		c, err := decodeMetadata(b, version)
		if err == nil && 26*len(c.Topics) > len(b) {
			t.Fatalf("%d topics in %d bytes", len(c.Topics), len(b))
		}
	})
}
