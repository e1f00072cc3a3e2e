package ps

import "time"

// RecoveryMode describes what becomes of the other shards when one has lost its state.
type RecoveryMode uint8

const (
	// Rollback makes all shards go back to the newest snapshot; readers rewind. The result is as if nothing had happened.
	Rollback RecoveryMode = iota
	// Partial makes the lost shard go back alone; the others keep what they have and skip what is pushed again. Every
	// example still counts once per shard, but the bits of the result differ.
	Partial
)

// ClusterInfo describes how a cluster is.
type ClusterInfo struct {
	// Generation counts the states that the shards have gone back to.
	Generation uint64
	// Addrs are where its shards are, that of shard 0 first; nil: in the process that was asked.
	Addrs []string
	// Dir is the folder of its snapshots.
	Dir      string
	Recovery RecoveryMode
	// Restored is the snapshot that the state goes back to, Newest the last one that was taken since; nil for none.
	Restored, Newest *SnapshotInfo
	Skipped          []error
}

// SnapshotOptions say what becomes of one snapshot.
type SnapshotOptions struct {
	// Pin keeps it whatever its age.
	Pin bool
	// Note is kept with it.
	Note string
	// Label, if not empty, keeps it until there is a newer one with the label.
	Label string
	// IfChanged takes none while the newest snapshot, or what the shards were restored from, is what they hold: that one is
	// returned.
	IfChanged bool
}

// Scaled describes a change of the number of shards.
type Scaled struct {
	// From and To are how many shards there were and are. They are equal where nothing was to be done.
	From, To int
	// Snapshot is the path of the snapshot by which the rows moved, Rows how many it holds.
	Snapshot string
	Rows     int64
	// Again counts the examples that were applied after the snapshot's cut, which are read and trained again.
	Again int64
	// Took is the time of all, Pause that in which nothing was applied; for most of it lookups are answered.
	Took, Pause time.Duration
}
