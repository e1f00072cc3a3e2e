package kafkasink

import (
	"runtime"
	"strings"
	"testing"
)

// FuzzAnswers feeds every decoder of a broker's answers that is the sink's own: bounded memory, no panic.
func FuzzAnswers(f *testing.F) {
	huge := []byte{0, 0, 0, 0, 0x5d, 0x3e, 0xaa, 0xac, 0, 0, 0, 0}
	f.Add(huge)
	f.Add(huge[4:])
	f.Add([]byte(strings.Repeat("\x00\x00\x00\x01", 40)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, version := range []int16{produceOld, produceZstd, produceWithErrors} {
			_, _ = decodeProduce(b, version)
		}
		_, _, _ = decodeCreateTopic(b, "out")
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(1<<20+200*len(b)) {
			t.Fatalf("%d bytes were allocated for %d", n, len(b))
		}
	})
}
