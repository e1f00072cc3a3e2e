package pipeline

import (
	"fmt"

	"github.com/monolith-go/monolith/pipeline/position"
)

// Position is a place in one split of a source; see [position.Position].
type Position = position.Position

// Progress describes how far a split has been processed; see [position.Progress].
type Progress = position.Progress

// NoPosition stands for an unknown position, and as the End of a split for «no end».
const NoPosition = position.None

// SplitID names a split within a graph, by the name of its source's node and its own: see [position.SplitID]. Splits keep it
// wherever their stream goes; sources whose streams are merged may have splits of one name.
type SplitID = position.SplitID

// Split is a part of a source that one reader reads in order: a Kafka partition, a file, a row group.
type Split struct {
	// Source is the name of the source's node in the graph. A [Source] leaves it empty; [Segment.Splits] sets it.
	Source string `json:",omitempty"`
	// Name is unique within the source and stable between runs: positions are stored under it.
	Name string
	// Start is the first position of the split when nothing has been read of it yet.
	Start Position
	// Identity, if not empty, identifies the split by its content, wherever that lies: a copy has the same. What is drawn by
	// chance for the split is seeded by it. It stays what it was when the split was first seen. It is not for people.
	Identity string
	// Seen, if not empty, identifies by their content all the records that a split with an identity has by now, of which it had fewer when it was
	// first seen. A position is that of another split where the first records are others.
	Seen string `json:",omitempty"`
	// End is the position after the last record, or NoPosition when it is not known or there is none.
	End Position
	// Rows is how many records there are from Start on, 0 when that is not known: positions need not count records.
	Rows int64 `json:",omitempty"`
	// Memory is text that the source wants remembered of the split beside its position; empty: nothing. See [Rememberer].
	Memory string `json:",omitempty"`
}

// ID names the split within its graph.
func (s Split) ID() SplitID { return SplitID{Source: s.Source, Split: s.Name} }

// Origin describes what records a block or batch was made of.
type Origin struct {
	Source string // name of the source's node in the graph
	Split  string
	// From and To bound the half-open range of positions [From, To). Consecutive elements of one split join without
	// a gap: the next From is this To. Records that were dropped by a policy lie inside some range.
	From, To Position
	// MinTime and MaxTime bound the event times in microseconds since 1970; both 0 when the source has none.
	MinTime, MaxTime int64
	// Watermark is the smallest event time that a later element of the split can have, in microseconds since 1970; 0: not
	// known. See [ReadOptions]. A stage hands it on with the origin; one that emits less than it has got lowers it to the
	// times of what it holds back.
	Watermark int64
}

// ID names the split that the records are of.
func (o Origin) ID() SplitID { return SplitID{Source: o.Source, Split: o.Split} }

// String renders the origin as source/split[from,to), with positions as [position.Position.Text] has them.
func (o Origin) String() string {
	return fmt.Sprintf("%s/%s[%s,%s)", o.Source, o.Split, o.From.Text(), o.To.Text())
}

// Join returns the origin of two consecutive elements of one split taken together: [o.From, next.To).
func (o Origin) Join(next Origin) Origin {
	o.To, o.Watermark = next.To, max(o.Watermark, next.Watermark)
	if next.MaxTime != 0 || next.MinTime != 0 {
		if o.MinTime == 0 && o.MaxTime == 0 {
			o.MinTime, o.MaxTime = next.MinTime, next.MaxTime
		} else {
			o.MinTime, o.MaxTime = min(o.MinTime, next.MinTime), max(o.MaxTime, next.MaxTime)
		}
	}
	return o
}
