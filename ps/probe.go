package ps

import "time"

// Probe describes what the process of a shard has to work with.
type Probe struct {
	// Host is the name of its machine.
	Host string
	// Trainers counts the sessions that own splits: workers that train.
	Trainers int
	// Rows and Bytes are what the shard's tables hold.
	Rows, Bytes int64
	// Room is how many bytes the tables of the process may still take; -1: nobody knows.
	Room int64
	// Disks are those that the shard makes something durable on.
	Disks []DiskProbe
}

// DiskProbe is how long a disk took to make blocks durable, one after the other.
type DiskProbe struct {
	// Of is what the shard keeps there, "log" or "snapshots", and Dir the folder.
	Of, Dir string
	// Block is the size of a block, bytes.
	Block int64
	// Syncs are the times of each: written and synced.
	Syncs []time.Duration
	// Failed says why the folder could not be written to; empty: it could.
	Failed string
}
