package pipeline

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/failure"
)

// Sentinel errors of the contract. Implementations wrap them; callers test with errors.Is.
var (
	// ErrSchema: columns are missing, have another type or are used against their contract. Fix the graph or job.
	ErrSchema = failure.Kind(failure.Schema, "schema mismatch")
	// ErrConfig: what the user asked for cannot be (a topic that does not exist, a pattern without files). Fix the job.
	ErrConfig = failure.Kind(failure.Config, "bad configuration")
	// ErrUnavailable: something outside the process (broker, shard, disk) cannot be reached or is full. Retry later.
	ErrUnavailable = failure.Kind(failure.Unavailable, "unavailable")
	// ErrBadData: input that cannot be decoded. See [DataError].
	ErrBadData = failure.Kind(failure.Unknown, "bad data")
	// ErrClosed: the object was closed before or during the call.
	ErrClosed = failure.New(failure.Closed, "closed")
	// ErrFenced: another owner has taken over the split; this one must stop.
	ErrFenced = failure.New(failure.Fenced, "fenced: the split has a newer owner")
)

// DataError is bad input: where it was found and why it is bad. It wraps [ErrBadData] and Err.
type DataError struct {
	Source, Split string
	// Position is where the bad record begins, in the unit of the source: a byte, an offset or the number of a record or row.
	Position Position
	// Reason is a short constant phrase of a small closed set («crc mismatch»); it becomes a metric label.
	Reason string
	// Err says more, or is nil.
	Err error
	// Records is how many records cannot be used, where they cannot be separated, as in a damaged batch; 0 means 1.
	Records int64
	// Path is the file that the record lies in, where it is one; [Env.BadRow] sets it.
	Path string

	line func(at int64) int64
}

// Line is the number, from 1, of the line of text that the record begins in; 0 where it is not known. It may read the file.
func (e *DataError) Line() int64 {
	if e.line == nil || e.Position < 0 {
		return 0
	}
	return e.line(int64(e.Position))
}

// Rows is how many records it stands for, at least 1.
func (e *DataError) Rows() int64 { return max(e.Records, 1) }

// Error renders `source/split position 12: reason: detail (file logs/day1.csv, line 3)`.
func (e *DataError) Error() string {
	s := fmt.Sprintf("%s/%s position %s: %s", e.Source, e.Split, e.Position.Text(), e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Path != "" {
		s += " (file " + e.Path
		if line := e.Line(); line > 0 {
			s += fmt.Sprintf(", line %d", line)
		}
		s += ")"
	}
	return s
}

// Unwrap makes errors.Is find ErrBadData and the cause.
func (e *DataError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrBadData}
	}
	return []error{ErrBadData, e.Err}
}

// GapError says that a reader was asked for records that the source does not have (any more): retention has passed the
// position, or the log was truncated or re-created. Reading on would lose records silently, so nothing does by itself.
type GapError struct {
	Source, Split string
	// Want is the position asked for; the source has [First, Last), NoPosition where that is not the reason or is not known.
	Want, First, Last Position
	// Other says why the source has other records now than those that Want counts, wherever Want lies: "the topic was
	// re-created". Empty: Want lies outside of [First, Last).
	Other string
	// Hint is what the user can do.
	Hint string
}

// Error names the gap and what to do.
func (e *GapError) Error() string {
	s := fmt.Sprintf("%s/%s: position %s lies outside of what the source has", e.Source, e.Split, e.Want.Text())
	if e.Other != "" {
		s = fmt.Sprintf("%s/%s: %s, so position %s counts other records than the source has now", e.Source, e.Split, e.Other, e.Want.Text())
	}
	if e.First != NoPosition {
		s += fmt.Sprintf(", [%s,%s)", e.First.Text(), e.Last.Text())
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}
