package parse

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/clip"
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

func bad(reason, format string, args ...any) error {
	return &rowError{reason, fmt.Errorf(format, clip.Args(args)...)}
}
