package result

import "time"

// Entry is an embedding row with all that belongs to it.
type Entry struct {
	Table string `json:"table"`
	ID    int64  `json:"id"`
	Slot  int    `json:"slot"`
	// Occurrences is how often the id occurred in examples, Updated its last event time; nil: it has none.
	Occurrences uint64     `json:"occurrences"`
	Updated     *time.Time `json:"updated,omitempty"`
	// Weights are those of all segments, one after the other. Segments say what they are.
	Weights  []float32      `json:"weights,omitempty"`
	Segments []EntrySegment `json:"segments,omitempty"`
}

// EntrySegment is what a row has of a segment: so many weights, and the state of their optimizer, in the order in which the rule keeps it.
type EntrySegment struct {
	Name      string    `json:"name"`
	Dim       int       `json:"dim"`
	Optimizer string    `json:"optimizer"`
	State     []float32 `json:"state,omitempty"`
}

// LookedUp are the rows of some ids.
type LookedUp struct {
	// Snapshot is the path of the snapshot that was read; empty where running shards were asked.
	Snapshot string `json:"snapshot,omitempty"`
	// Damaged are as in [SnapshotInfo].
	Damaged []string `json:"damaged,omitempty"`
	Entries []Entry  `json:"entries"`
	// Missing are the ids that have no row.
	Missing []int64 `json:"missing"`
}

// Edited is what became of a request to edit rows.
type Edited struct {
	Table     string `json:"table"`
	Operation string `json:"operation"`
	Request   string `json:"request"`
	// IDs is how many the request has, Before how many of them were edited when it was made before, Edited how many were edited now.
	IDs    int64 `json:"ids"`
	Before int64 `json:"before"`
	Edited int64 `json:"edited"`
	// Existed is how many of those that were edited now, or would be, had a row just before.
	Existed int64 `json:"existed"`
	DryRun  bool  `json:"dry_run"`
	// Durable says that a write-ahead log has the edits; otherwise they last from the next snapshot on.
	Durable bool `json:"durable"`
}

// Pushed is what was pushed to a server.
type Pushed struct {
	To        string `json:"to"`
	Model     string `json:"model"`
	Signature string `json:"signature"`
	// Rows is how many rows were pushed, each as often as it was, Removed how many ids of which the row has gone, Requests in how many requests.
	Rows     int64 `json:"rows"`
	Removed  int64 `json:"removed"`
	Requests int64 `json:"requests"`
}

// RunningSlots is what running shards have of each slot.
type RunningSlots struct {
	Job string `json:"job"`
	// Rows, Newest and Slots are those of [SnapshotSlots].
	Rows   int64      `json:"rows"`
	Newest *time.Time `json:"newest,omitempty"`
	Slots  []SlotInfo `json:"slots"`
	// Shards are all that there are, in their order. Rows and Slots lack those that have Failed.
	Shards []RunningShard `json:"shards"`
}

// RunningShard is what a running shard holds.
type RunningShard struct {
	Address string `json:"address"`
	Rows    int64  `json:"rows"`
	// Bytes is the memory of its tables: rows with room for more, index, and what counts ids without a row.
	Bytes int64 `json:"bytes"`
	// Dense is that of its dense parameters and their optimizers' state.
	Dense int64 `json:"dense_bytes"`
	// Failed says why this is not known; empty: it is.
	Failed string `json:"failed,omitempty"`
}

// Change is a line of the changes of a job: a row that was made or changed, or an id whose row has gone, or the end of a shard's pass.
type Change struct {
	Shard int `json:"shard"`
	// Entry is nil for an end.
	*Entry
	// Removed says that the row has gone, or has expired.
	Removed bool `json:"removed,omitempty"`
	// All says that the pass brings all rows of the shard: others that the consumer has of it are no more.
	All bool `json:"all,omitempty"`
	// Whole marks the end of a pass: everything is there that was applied before it began.
	Whole bool `json:"whole,omitempty"`
}
