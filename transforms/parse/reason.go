package parse

import (
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/internal/clip"
	"github.com/monolith-go/monolith/internal/hint"
)

// The reasons for which a record is not used; they become values of a metric label.
const (
	reasonExample  = "malformed example" // not the wire form of a tf.Example
	reasonLibFM    = "malformed libfm"
	reasonCSV      = "malformed csv"
	reasonJSON     = "malformed json"
	reasonFields   = "wrong number of fields"
	reasonType     = "wrong type"         // a feature has values of another type than declared
	reasonNumber   = "bad number"         // text that is no number, or a number that does not fit
	reasonFinite   = "not finite"         // NaN or infinity where the model needs a number
	reasonLarge    = "value out of range" // a dense value that no model can learn from
	reasonRange    = "id out of range"    // an integer that is no signature
	reasonLength   = "wrong length"       // another number of values than the dense feature is wide
	reasonValue    = "value is not 1"     // libfm, when nobody asked for values
	reasonNoLabel  = "no label"
	reasonLabel    = "bad label"
	reasonMask     = "bad mask"
	reasonWeight   = "bad weight"
	reasonHoldout  = "bad value of the holdout"
	reasonJoinedIn = "bad side table value"
)

// rowError says why one record cannot be used.
type rowError struct {
	reason string
	err    error
}

// Error renders reason and detail.
func (e *rowError) Error() string {
	if e.err == nil {
		return e.reason
	}
	return e.reason + ": " + e.err.Error()
}

// Unwrap returns the detail.
func (e *rowError) Unwrap() error { return e.err }

// explain adds to the error of a record what the record seems to be and how to convert it, where that is known.
func (p *program) explain(err error, payload []byte) {
	row, ok := errors.AsType[*rowError](err)
	if !ok {
		return
	}
	h := hint.Wrapped(payload)
	switch {
	case h != "":
	case p.Format == LibFM:
		h = hint.LibFM(payload)
	case p.Format == JSONL:
		h = hint.JSON(payload)
	}
	row.err = hint.Explain(row.err, h)
}

func bad(reason, format string, args ...any) error {
	return &rowError{reason, fmt.Errorf(format, clip.Args(args)...)}
}
