package result

import "time"

// SnapshotList is what snapshots there are, the newest first.
type SnapshotList struct {
	// Dir is the folder that they lie in.
	Dir       string          `json:"dir"`
	Snapshots []SnapshotEntry `json:"snapshots"`
}

// SnapshotEntry is one of them. Of a damaged one, of which Error says why it cannot be read, number and path alone are known.
type SnapshotEntry struct {
	Path string `json:"path"`
	ID   int64  `json:"id"`
	// Kind is whole, incremental or damaged; Base is the number of the snapshot that an incremental one adds to.
	Kind    string    `json:"kind"`
	Base    int64     `json:"base,omitempty"`
	Created time.Time `json:"created"`
	// Rows are those of all tables, with those of the bases, Bytes the size of its own files.
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
	// Shards is how many wrote it.
	Shards int `json:"shards"`
	// Examples and Batches were applied, of all splits of all sources; Splits is how many of them there are.
	Examples int64 `json:"examples"`
	Batches  int64 `json:"batches"`
	Splits   int   `json:"splits"`
	// Label is what it is to the job, Note a remark, Kept why retention keeps it; empty: it does not.
	Label string `json:"label,omitempty"`
	Note  string `json:"note,omitempty"`
	Kept  string `json:"kept,omitempty"`
	Error string `json:"error,omitempty"`
}

// SnapshotCheck is what was found in one snapshot.
type SnapshotCheck struct {
	Path string `json:"path"`
	// Reads are the numbers of the snapshots that it is read by: its own and those of its bases.
	Reads []int64 `json:"reads,omitempty"`
	// Bytes were read.
	Bytes int64 `json:"bytes"`
	// Faults say what is wrong, each with its file; none: it is whole.
	Faults []string `json:"faults,omitempty"`
}

// SnapshotDiff is what two snapshots have that is not the same.
type SnapshotDiff struct {
	A         string         `json:"a"`
	B         string         `json:"b"`
	Tables    []TableDiff    `json:"tables"`
	Tensors   []TensorDiff   `json:"tensors,omitempty"`
	Positions []PositionDiff `json:"positions,omitempty"`
	// State are the keys of worker state that differ.
	State []string `json:"state,omitempty"`
	// Damaged are as in [SnapshotInfo], of both sides.
	Damaged []string `json:"damaged,omitempty"`
}

// TableDiff counts rows of a table: those that only B has, those that only A has, those of which any bit is another, and the rest. Shape
// says that the segments are others, so that rows were compared by fid alone.
type TableDiff struct {
	Name    string `json:"name"`
	Added   int64  `json:"added"`
	Removed int64  `json:"removed"`
	Changed int64  `json:"changed"`
	Same    int64  `json:"same"`
	Shape   bool   `json:"shape,omitempty"`
}

// TensorDiff is a dense tensor that is not the same. Only is "a" or "b" where the other has none of its name and shape; Weights is the
// largest difference of a weight.
type TensorDiff struct {
	Name    string  `json:"name"`
	Only    string  `json:"only,omitempty"`
	Weights float64 `json:"weights"`
}

// PositionDiff is a split that is not where it was; a position is null where a snapshot does not know the split.
type PositionDiff struct {
	Source string `json:"source"`
	Split  string `json:"split"`
	A      *int64 `json:"a"`
	B      *int64 `json:"b"`
	// Examples is how many more were applied in B.
	Examples int64 `json:"examples"`
}

// SnapshotsPruned is what retention keeps and what it does not.
type SnapshotsPruned struct {
	Dir string `json:"dir"`
	// Gone are the paths of those that were removed, or would be.
	Gone []string `json:"gone"`
	// Removed says that they were.
	Removed bool            `json:"removed"`
	Kept    []SnapshotEntry `json:"kept"`
}

// SnapshotTaken is a snapshot that was asked for.
type SnapshotTaken struct {
	SnapshotEntry
	// Took is how long it was written, Stall the longest that a push waited for it, in seconds.
	Took  float64 `json:"took"`
	Stall float64 `json:"stall"`
}

// Promoted is a take-over by a standby on command.
type Promoted struct {
	Shard int `json:"shard"`
	// Took is how long it was until the standby was in charge, in seconds.
	Took float64 `json:"took"`
}
