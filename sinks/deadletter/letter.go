// Package deadletter keeps records that cannot be used, with the reason, so that they can be looked at, fixed and read
// again: in a file ([File]) or through any publisher, such as a Kafka producer ([To]). Both are policies for
// [pipeline.Env.BadRows].
//
// A dead letter may be written more than once: positions are stored only at snapshots, so after a crash the records
// since the last one are read, and found bad, again. Source, split and position identify a record.
package deadletter

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/pipeline"
)

// Letter is one record that could not be used. As JSON it is one line, the payload in base64:
//
//	{"time":"2026-03-01T12:00:00Z","source":"ratings","split":"ratings-0","position":17,"reason":"wrong type","error":"...","payload":"CgQ..."}
type Letter struct {
	// Time is when the record was found bad, in UTC.
	Time   time.Time `json:"time"`
	Source string    `json:"source"`
	Split  string    `json:"split"`
	// Path is the file that the record lies in, where it is one.
	Path string `json:"path,omitempty"`
	// Position is where the record begins, in the unit of the source.
	Position int64 `json:"position"`
	// Line is the number, from 1, of the line that the record begins in, where it is text in a file.
	Line int64 `json:"line,omitempty"`
	// Records is how many records the letter is of, where they cannot be separated; absent: one.
	Records int64 `json:"records,omitempty"`
	// Reason is the short phrase that metrics count by, Error the details.
	Reason string `json:"reason"`
	Error  string `json:"error,omitempty"`
	// Payload is the undecoded record, where there is one.
	Payload []byte `json:"payload,omitempty"`
}

// newLetter describes a bad row. The payload is not copied.
func newLetter(now time.Time, err *pipeline.DataError, payload []byte) Letter {
	l := Letter{
		Time: now.UTC(), Source: err.Source, Split: err.Split, Path: err.Path, Position: int64(err.Position), Line: err.Line(), Records: err.Records, Reason: err.Reason, Payload: payload,
	}
	if err.Err != nil {
		l.Error = err.Err.Error()
	}
	return l
}

// Key identifies the record: source/split/position.
func (l Letter) Key() string {
	return l.Source + "/" + l.Split + "/" + strconv.FormatInt(l.Position, 10)
}

// Parse reads one line of a file, or one published value. Errors: [pipeline.ErrBadData].
func Parse(line []byte) (Letter, error) {
	var l Letter
	if err := json.Unmarshal(line, &l); err != nil {
		return Letter{}, fmt.Errorf("deadletter: %w: %w", err, pipeline.ErrBadData)
	}
	return l, nil
}
