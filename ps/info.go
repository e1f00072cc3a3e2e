package ps

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
