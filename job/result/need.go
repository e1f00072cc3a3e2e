package result

// MemoryNeed is what the tables of a job will take.
type MemoryNeed struct {
	Tables []TableNeed `json:"tables"`
	// Bytes are those of all tables on all shards, as far as their rows are known; Unknown: some are not.
	Bytes   int64 `json:"bytes"`
	Unknown bool  `json:"unknown,omitempty"`
	// Dense is what dense parameters and their optimizers' state take beside them.
	Dense int64 `json:"dense_bytes"`
	// Shards is how many there are. Remote: each is in a process of its own; otherwise all are in the process that trains.
	Shards int  `json:"shards"`
	Remote bool `json:"remote"`
	// Process is what the tables take in one process, Limit what they may take there (0: nobody knows), and LimitOf whose limit that is.
	Process int64  `json:"process_bytes"`
	Limit   int64  `json:"limit_bytes,omitempty"`
	LimitOf string `json:"limit_of,omitempty"`
	// Sampled is how many examples were read to count ids, Examples how many there will be, as far as that is known.
	Sampled  int64 `json:"sampled_examples,omitempty"`
	Examples int64 `json:"examples,omitempty"`
	// Warning says that tables, or layers and batches, do not fit; empty: nothing says so.
	Warning string `json:"warning,omitempty"`
	// BadRows counts the sample's bad rows by reason, and BadExamples are the first ones with their places.
	BadRows     map[string]int64 `json:"bad_rows,omitempty"`
	BadExamples []string         `json:"bad_examples,omitempty"`
	// Remarks are what the sample shows that a job should not do, such as to train on the padding of lists.
	Remarks []string `json:"remarks,omitempty"`
}

// NumBad is how many of the sample's records are bad rows.
func (n *MemoryNeed) NumBad() (sum int64) {
	for _, k := range n.BadRows {
		sum += k
	}
	return sum
}

// TableNeed is what one table will take on all shards.
type TableNeed struct {
	Name     string `json:"name"`
	RowBytes int64  `json:"row_bytes"`
	// Rows is -1 where nothing is known of them; Basis says what it is known by.
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes,omitempty"`
	Basis string `json:"basis,omitempty"`
	// Filter is what the hash filter takes that counts ids without a row, beside Bytes.
	Filter int64 `json:"filter_bytes,omitempty"`
}
