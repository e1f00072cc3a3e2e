// Package position says how far the splits of sources were read, in the words that the pipeline and the parameter server
// share.
package position

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// SplitID names a split of a source.
type SplitID struct{ Source, Split string }

// String renders source/split.
func (id SplitID) String() string { return id.Source + "/" + id.Split }

// Compare is the order of splits: by source, then by name.
func (id SplitID) Compare(other SplitID) int {
	return cmp.Or(strings.Compare(id.Source, other.Source), strings.Compare(id.Split, other.Split))
}

// Position is a place in one split of a source: everything before it has been read. Its unit is the source's own
// (Kafka: offset of the next record; TFRecord and text: byte offset, or record number where the file is compressed;
// Parquet: row in the row group), but in every source positions of one split are ordered, never negative and start at
// the split's Start. Reading on from a position loses and repeats nothing.
type Position int64

// None stands for an unknown position, and as the End of a split for «no end».
const None Position = -1

// EpochBits is where the epoch begins in the positions of a source that is read more than once: epochs share one split,
// with the epoch in the high bits and the place within the epoch in the low ones. See [AtEpoch].
const EpochBits = 40

// AtEpoch returns the position of place at in the given epoch (from 0). It panics when either does not fit.
func AtEpoch(epoch int, at Position) Position {
	if epoch < 0 || epoch > math.MaxInt64>>EpochBits || at < 0 || at >= 1<<EpochBits {
		panic(fmt.Sprintf("position: none for epoch %d at %d", epoch, at))
	}
	return Position(epoch)<<EpochBits | at
}

// Epoch splits a position made by [AtEpoch].
func (p Position) Epoch() (epoch int, at Position) {
	return int(p >> EpochBits), p & (1<<EpochBits - 1)
}

// Text is a position as messages have it: as its source counts, and of which epoch from the second on: `12 of epoch 2`.
func (p Position) Text() string {
	epoch, at := p.Epoch()
	if p < 0 || epoch == 0 {
		return strconv.FormatInt(int64(p), 10)
	}
	return fmt.Sprintf("%d of epoch %d", int64(at), epoch+1)
}

// Progress describes how far a split has been processed. Two are equal (==) when all three agree.
type Progress struct {
	// Position is the end of what was applied: where reading continues. [None]: nothing yet.
	Position Position `json:"position"`
	// Rows counts examples and Batches elements with at least one example that were applied of the split since it was
	// first read.
	Rows    int64 `json:"rows"`
	Batches int64 `json:"batches"`
}
