package main

import (
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"

	"github.com/monolith-go/monolith/internal/memlimit"
	"github.com/monolith-go/monolith/ps/table"
)

// forProgram is the least that is not for tables: the program itself, and what is on its way in batches, logs and files being
// written. On larger machines that is an eighth; a sixteenth more is the system's. Where there is little, half.
const forProgram = 128 << 20

// processMemory bounds what this process takes by what the machine, or its control group, lets it have: tables say that they
// do not fit instead of meeting the system's end of the process, and the garbage collector works harder in time. A user's
// GOMEMLIMIT is left alone. It returns nil where no limit is known.
func processMemory(root fs.FS) *table.Memory {
	l, ok := memlimit.Find(root)
	if !ok {
		return nil
	}
	o := table.MemoryOptions{
		Limit: forTables(l),
		Of:    fmt.Sprintf("what the program leaves of the memory of %s", l.Of),
		Do:    "spread the table over more shards, on machines of their own",
		Free:  func() (int64, bool) { return memlimit.Free(root) },
		Least: min(256<<20, l.Bytes/32),
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		usable := l.Bytes - l.Bytes/16
		debug.SetMemoryLimit(usable)
		// Rows lie outside of what the collector counts.
		o.Changed = func(mapped int64) { debug.SetMemoryLimit(max(usable-mapped, usable/8)) }
	}
	return table.NewMemory(o)
}

// roomOf is how many bytes of requests a server may have at a time: what is made of one takes up to ten times as much. 0: no limit is known.
func roomOf(m *table.Memory) int64 {
	limit, _ := m.Limit()
	return limit / 16
}

func forTables(l memlimit.Limit) int64 {
	return l.Bytes - l.Bytes/16 - max(l.Bytes/8, min(forProgram, l.Bytes/2))
}
