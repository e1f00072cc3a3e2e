// Package failure says of what kind an error is. An error that matters has a [Code]; [Of] finds the one that counts among all
// that an error wraps, and what follows from a code (exit status, metric label, whether waiting helps) is in one table.
package failure

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
)

// Code is the kind of an error. The order is that in which they count when an error is of several: what its reader can fix
// himself comes first.
type Code uint8

// The codes.
const (
	None        Code = iota
	Config           // what was asked for cannot be
	Schema           // the data is not what the job says
	Unavailable      // something outside cannot be reached or used
	NotAdmitted      // wrong token or certificate
	TooLarge         // a message above the limit
	Identity         // the log of another shard or layout
	Layout           // parameters do not fit the model
	Mismatch         // not the same job
	Version          // other version of the protocol
	Corrupt          // what is stored is damaged
	NoSpace          // a disk is full
	NoDir            // no folder was named
	InUse            // another process has it
	Full             // no memory for rows
	NotReady         // not yet: wait
	Unreachable      // no answer
	Canceled         // the caller wants no answer any more
	Deadline         // the caller's time is up
	Fenced           // a newer owner
	Gap              // something between is missing
	Overlap          // a part is there already
	Torn             // shards disagree
	Busy             // too much under way
	Closed           // used after its end
	Disk             // a disk that only its owner can fix, or no files left to open
	Unknown          // an error of no code
)

// Class is what a code means to the user of the program.
type Class uint8

// The classes.
const (
	Failed      Class = iota // it failed while running
	Mistake                  // the user can fix it in the job or on the command line
	Environment              // the machine, its disks or what is reached over the network must be fixed
)

// kinds has what follows from a code.
var kinds = [...]struct {
	label   string // of metrics; "": "error"
	class   Class
	lasting bool
}{
	None:        {label: "ok"},
	Config:      {class: Mistake, lasting: true},
	Schema:      {class: Mistake, lasting: true},
	Unavailable: {class: Environment},
	NotAdmitted: {class: Mistake, lasting: true},
	TooLarge:    {class: Mistake, lasting: true},
	Identity:    {class: Mistake, lasting: true},
	Layout:      {label: "layout", class: Mistake, lasting: true},
	Mismatch:    {class: Mistake, lasting: true},
	Version:     {class: Mistake, lasting: true},
	Corrupt:     {lasting: true},
	NoSpace:     {label: "no_space", class: Environment, lasting: true},
	NoDir:       {class: Environment},
	InUse:       {class: Environment},
	Full:        {label: "full", class: Environment},
	NotReady:    {class: Environment},
	Unreachable: {class: Environment},
	Canceled:    {label: "canceled"},
	Deadline:    {label: "canceled"},
	Fenced:      {label: "fenced"},
	Gap:         {label: "gap"},
	Overlap:     {label: "overlap"},
	Torn:        {label: "torn"},
	Busy:        {label: "busy"},
	Closed:      {label: "closed"},
	Disk:        {class: Environment},
	Unknown:     {},
}

// Label is the code as a label of metrics, of a small closed set: "ok", "layout", "no_space", "full", "canceled", "fenced",
// "gap", "overlap", "torn", "busy", "closed", and "error" for all others.
func (c Code) Label() string {
	if l := kinds[c].label; l != "" {
		return l
	}
	return "error"
}

// Class is what the code means to the user of the program.
func (c Code) Class() Class { return kinds[c].class }

// Lasting reports whether waiting and trying again do not help.
func (c Code) Lasting() bool { return kinds[c].lasting }

// New returns an error with a code, for package-level variables that others wrap and errors.Is finds. Two are never equal.
func New(code Code, text string) error { return &coded{code, text} }

type coded struct {
	code Code
	text string
}

// Error returns the text.
func (e *coded) Error() string { return e.text }

// Code returns the code.
func (e *coded) Code() Code { return e.code }

// ours are errors of the standard library that have codes.
var ours = [...]struct {
	err  error
	code Code
}{
	{context.Canceled, Canceled},
	{context.DeadlineExceeded, Deadline},
	{syscall.ENOSPC, Disk},
	{syscall.EDQUOT, Disk},
	{syscall.EFBIG, Disk},
	{syscall.EROFS, Disk},
	{syscall.EIO, Disk},
	{syscall.ESTALE, Disk},
	{syscall.EMFILE, Disk},
	{syscall.ENFILE, Disk},
	{fs.ErrPermission, Disk},
}

// Of returns the code that counts: the first, in the order of the codes, among those of err and all that it wraps. nil is
// [None], an error without any is [Unknown].
func Of(err error) Code {
	if err == nil {
		return None
	}
	best := Unknown
	walk(err, func(c Code) { best = min(best, c) })
	return best
}

// Has reports whether err, or anything that it wraps, has one of the codes.
func Has(err error, codes ...Code) (found bool) {
	if err == nil {
		return false
	}
	walk(err, func(c Code) {
		for _, want := range codes {
			found = found || c == want
		}
	})
	return found
}

// Lasting reports whether err, or anything that it wraps, has a code that waiting does not help against.
func Lasting(err error) (lasting bool) {
	if err == nil {
		return false
	}
	walk(err, func(c Code) { lasting = lasting || c.Lasting() })
	return lasting
}

// walk calls found for every code of an error.
func walk(err error, found func(Code)) {
	if c, ok := err.(interface{ Code() Code }); ok {
		found(c.Code())
	}
	switch x := err.(type) { //nolint:errorlint // what err wraps is walked through
	case interface{ Unwrap() error }:
		if inner := x.Unwrap(); inner != nil {
			walk(inner, found)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range x.Unwrap() {
			if inner != nil {
				walk(inner, found)
			}
		}
	}
	// Those that are not ours have Is methods of their own: an Errno is fs.ErrPermission.
	is, _ := err.(interface{ Is(target error) bool })
	for _, o := range ours {
		if err == o.err || is != nil && is.Is(o.err) { //nolint:errorlint // what err wraps is walked through
			found(o.code)
		}
	}
}

// Flatten takes errors apart that were joined, by errors.Join and by what is like it, so that each is a line of its own. What
// wraps several and says something itself stays whole.
func Flatten(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(joined.Unwrap()...).Error() {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, Flatten(e)...)
	}
	return out
}
