package result

// Counted is a number of rows and what became of them, or why.
type Counted struct {
	What string `json:"what"`
	Rows int64  `json:"rows"`
}

// Imported is what was taken over of a checkpoint of bytedance/monolith.
type Imported struct {
	// From is the folder of its tables, Step the number in its name, -1 without one.
	From string `json:"from"`
	Step int64  `json:"step"`
	// Snapshot is the folder of the snapshot that was made, and Digest names what it holds; empty after a dry run.
	Snapshot string `json:"snapshot,omitempty"`
	Digest   string `json:"digest,omitempty"`
	// Entries were read; Rows are in the snapshot.
	Entries int64           `json:"entries"`
	Rows    int64           `json:"rows"`
	Tables  []ImportedTable `json:"tables"`
	// Skipped are the entries that were left out, by reason.
	Skipped []Counted `json:"skipped,omitempty"`
	// Dense are the tensors that were taken over, whose optimizers start over, and DenseInitial those that have their initial values.
	Dense        []string `json:"dense,omitempty"`
	DenseInitial []string `json:"dense_initial,omitempty"`
	// Filters are the admission filters that were found, whose counters cannot be given back to ids.
	Filters []ImportedFilter `json:"filters,omitempty"`
	// Others are files in the folder that are no tables.
	Others  []string `json:"others,omitempty"`
	Seconds float64  `json:"seconds"`
}

// ImportedTable is a table of the job.
type ImportedTable struct {
	Name string `json:"name"`
	Rows int64  `json:"rows"`
	// From are the tables of the checkpoint that its rows were in.
	From []Counted `json:"from,omitempty"`
	// Twice are entries whose id another one had too, that was updated later.
	Twice int64 `json:"twice,omitempty"`
	// Restarted says which weights and states start over, and of how many rows.
	Restarted []Counted `json:"restarted,omitempty"`
}

// ImportedFilter is an admission filter.
type ImportedFilter struct {
	Name   string `json:"name"`
	Splits int    `json:"splits"`
	// Counters are those in use.
	Counters uint64 `json:"counters"`
}

// Exported is a checkpoint for bytedance/monolith.
type Exported struct {
	// Snapshot is what it was made of, Assets the folder of its tables.
	Snapshot string `json:"snapshot"`
	// Damaged are as in [SnapshotInfo].
	Damaged []string        `json:"damaged,omitempty"`
	Assets  string          `json:"assets"`
	Rows    int64           `json:"rows"`
	Bytes   int64           `json:"bytes"`
	Tables  []ExportedTable `json:"tables"`
	// Dense are the variables that dense tensors are in, which are called as they are.
	Dense   []string `json:"dense,omitempty"`
	Seconds float64  `json:"seconds"`
}

// ExportedTable is a table in a checkpoint.
type ExportedTable struct {
	Name string `json:"name"`
	// As is what it is called there, of the first parameter server, and Files how many it is in.
	As    string `json:"as"`
	Files int    `json:"files"`
	Rows  int64  `json:"rows"`
	// Restarted are the segments whose state starts over there, with the reason.
	Restarted []string `json:"restarted,omitempty"`
}
