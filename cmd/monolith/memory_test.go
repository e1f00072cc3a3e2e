package main

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/monolith-go/monolith/internal/memlimit"
	"github.com/monolith-go/monolith/ps/table"
)

// TestTablesLeaveRoomForTheProgram: where memory is short, what the program itself needs is not the tables', so that they are
// full by its settings before the system ends the process.
func TestTablesLeaveRoomForTheProgram(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ memory, tables int64 }{
		{64 << 20, 28 << 20},       // half, less a sixteenth
		{256 << 20, 112 << 20},     // half is 128 MiB
		{512 << 20, 352 << 20},     // 128 MiB and a sixteenth
		{1 << 30, 832 << 20},       // an eighth is 128 MiB
		{16 << 30, 13 * (1 << 30)}, // 13/16
	} {
		l, ok := memlimit.Find(fstest.MapFS{"proc/meminfo": {Data: fmt.Appendf(nil, "MemTotal: %d kB\n", tc.memory>>10)}})
		if got := forTables(l); !ok || got != tc.tables {
			t.Errorf("of %d MiB tables get %d, want %d", tc.memory>>20, got>>20, tc.tables>>20)
		}
	}
}

// TestRequestsLeaveRoomForWhatIsMadeOfThem: the requests that a server takes together are a small part of what there is, up to ten times of which they become.
func TestRequestsLeaveRoomForWhatIsMadeOfThem(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]int64{0: 0, 512 << 20: 23068672, 24 << 30: 1308622848} {
		var m *table.Memory
		if limit > 0 {
			m = table.NewMemory(table.MemoryOptions{Limit: forTables(memlimit.Limit{Bytes: limit})})
		}
		if got := roomOf(m); got != want || 10*got > limit*15/16 {
			t.Errorf("%d bytes of %d, want %d", got, limit, want)
		}
	}
}

// TestCollectorLeavesRoomForAllElse: the collector's limit counts what the process has beside rows and the collector's heap, measured as tables grow.
func TestCollectorLeavesRoomForAllElse(t *testing.T) {
	t.Parallel()
	const lots = 1 << 40 // far beyond this test's heap
	root := fstest.MapFS{}
	o := outsideOfGo{root: root}
	if got := o.bytes(measureEvery); got != measureEvery {
		t.Errorf("where nothing can be measured: %d", got)
	}
	root["proc/self/status"] = &fstest.MapFile{Data: fmt.Appendf(nil, "RssAnon: %d kB\n", int64(lots)>>10)}
	if got := o.bytes(measureEvery + 1); got != measureEvery+1 {
		t.Errorf("before tables have grown: %d", got)
	}
	if got := o.bytes(2 * measureEvery); got < lots/2 || got > lots {
		t.Errorf("with %d bytes resident: %d", int64(lots), got)
	}
	root["proc/self/status"] = &fstest.MapFile{Data: []byte("RssAnon: 1 kB\n")} // less than mapped: pages that were never touched
	if got := o.bytes(0); got != 0 {
		t.Errorf("with nothing resident: %d", got)
	}
}
