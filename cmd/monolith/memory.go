package main

import (
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"runtime/metrics"

	"github.com/monolith-go/monolith/internal/memlimit"
	"github.com/monolith-go/monolith/ps/table"
)

// forProgram is the least that is not for tables: the program itself, and what is on its way in batches, logs and files being
// written. On larger machines that is an eighth; a sixteenth more is the system's. Where there is little, half.
const forProgram = 128 << 20

// forWriters is the share of memory that the process's snapshot writers work with together, whatever the number of shards. It is part of forProgram. One writer
// needs 16 MiB, or takes smaller record batches.
const forWriters = 16

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
		// The collector may have let garbage grow up to its limit.
		Reclaim: debug.FreeOSMemory,
		Least:   min(256<<20, l.Bytes/32),
		Work:    l.Bytes / forWriters,
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		usable := l.Bytes - l.Bytes/16
		debug.SetMemoryLimit(usable)
		outside := outsideOfGo{root: root}
		o.Changed = func(mapped int64) { debug.SetMemoryLimit(max(usable-outside.bytes(mapped), usable/8)) }
	}
	return table.NewMemory(o)
}

// outsideOfGo measures what the process has beside what the garbage collector counts: rows, and what tables have populated ahead of them.
type outsideOfGo struct {
	root fs.FS
	// at is how much was mapped for rows when it was measured, beside what else there was.
	at, beside int64
}

// measureEvery is after how much growth of tables it is measured again.
const measureEvery = 4 << 20

// bytes is how much there is where tables have mapped so much. One call at a time.
func (o *outsideOfGo) bytes(mapped int64) int64 {
	if d := mapped - o.at; d >= measureEvery || -d >= measureEvery {
		o.at = mapped
		if resident, ok := memlimit.Resident(o.root); ok {
			s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
			metrics.Read(s)
			o.beside = max(resident-int64(s[0].Value.Uint64()-s[1].Value.Uint64())-mapped, 0)
		}
	}
	return mapped + o.beside
}

// roomOf is how many bytes of requests a server may have at a time: what is made of one takes up to ten times as much. 0: no limit is known.
func roomOf(m *table.Memory) int64 {
	limit, _ := m.Limit()
	return limit / 16
}

func forTables(l memlimit.Limit) int64 {
	return l.Bytes - l.Bytes/16 - max(l.Bytes/8, min(forProgram, l.Bytes/2))
}
