package param

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/model/optim"
)

// Dim is the number of weights of a row.
func (t Table) Dim() int {
	n := 0
	for _, s := range t.Segments {
		n += s.Dim
	}
	return n
}

// StateDim is the number of float32 of optimizer state of a row.
func (t Table) StateDim() int {
	n := 0
	for _, s := range t.Segments {
		n += s.Optimizer.StateDim(s.Dim)
	}
	return n
}

// Len is the number of elements of the tensor.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// PushLen is how many values a push has of the tensor: its gradient, and with a Delay behind that the weights that it was computed with.
func (t Tensor) PushLen() int {
	if t.Delay > 0 {
		return 2 * t.Len()
	}
	return t.Len()
}

// DensePushLen is how many values a push has of all dense tensors.
func (l *Layout) DensePushLen() int {
	n := 0
	for _, t := range l.Dense {
		n += t.PushLen()
	}
	return n
}

// DenseLen is the number of elements of all dense tensors.
func (l *Layout) DenseLen() int {
	n := 0
	for _, t := range l.Dense {
		n += t.Len()
	}
	return n
}

// DenseStateLen is the number of float32 of optimizer state of all dense tensors.
func (l *Layout) DenseStateLen() int {
	n := 0
	for _, t := range l.Dense {
		n += t.Optimizer.StateDim(t.Len())
	}
	return n
}

// DenseOffset returns where tensor i begins in the concatenation of all dense tensors.
func (l *Layout) DenseOffset(i int) int {
	n := 0
	for _, t := range l.Dense[:i] {
		n += t.Len()
	}
	return n
}

// Validate reports every fault at once: empty or repeated names, dimensions below 1, missing rules.
func (l *Layout) Validate() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf("param: "+format, args...)) }
	tables, tensors := map[string]bool{}, map[string]bool{}
	for _, t := range l.Tables {
		if t.Name == "" || tables[t.Name] {
			bad("table name %q is empty or used twice", t.Name)
		}
		tables[t.Name] = true
		if len(t.Segments) == 0 {
			bad("table %q has no segment", t.Name)
		}
		segments := map[string]bool{}
		for _, s := range t.Segments {
			if s.Name == "" || segments[s.Name] {
				bad("table %q: segment name %q is empty or used twice", t.Name, s.Name)
			}
			segments[s.Name] = true
			if s.Dim < 1 {
				bad("table %q segment %q: dim %d is below 1", t.Name, s.Name, s.Dim)
			}
			if s.Optimizer == nil {
				bad("table %q segment %q has no optimizer", t.Name, s.Name)
			} else if optim.IsShaped(s.Optimizer) {
				bad("table %q segment %q: %s is a rule of dense tensors, by their shape; rows need another", t.Name, s.Name, s.Optimizer.Name())
			}
			if !(s.L2 >= 0) { // NaN too
				bad("table %q segment %q: l2 %v is not a number from 0", t.Name, s.Name, s.L2)
			}
			if !(s.L1 >= 0) {
				bad("table %q segment %q: l1 %v is not a number from 0", t.Name, s.Name, s.L1)
			}
			if !(s.Delay >= 0 && s.Delay <= MaxDelay) {
				bad("table %q segment %q: delay compensation %v is not between 0 and %g", t.Name, s.Name, s.Delay, MaxDelay)
			}
			if !(s.Clip >= 0) {
				bad("table %q segment %q: clip %v is not a number from 0", t.Name, s.Name, s.Clip)
			}
			if err := errors.Join(s.Schedule.Validate(), s.Compressor.Validate()); err != nil {
				bad("table %q segment %q: %w", t.Name, s.Name, err)
			}
		}
	}
	for _, t := range l.Dense {
		if t.Name == "" || tensors[t.Name] {
			bad("dense tensor name %q is empty or used twice", t.Name)
		}
		tensors[t.Name] = true
		if len(t.Shape) > 0 && slices.Min(t.Shape) < 1 {
			bad("dense tensor %q has shape %v", t.Name, t.Shape)
		}
		if t.Optimizer == nil {
			bad("dense tensor %q has no optimizer", t.Name)
		}
		if !(t.L2 >= 0) {
			bad("dense tensor %q: l2 %v is not a number from 0", t.Name, t.L2)
		}
		if !(t.L1 >= 0) {
			bad("dense tensor %q: l1 %v is not a number from 0", t.Name, t.L1)
		}
		if !(t.Delay >= 0 && t.Delay <= MaxDelay) {
			bad("dense tensor %q: delay compensation %v is not between 0 and %g", t.Name, t.Delay, MaxDelay)
		}
		if err := t.Schedule.Validate(); err != nil {
			bad("dense tensor %q: %w", t.Name, err)
		}
	}
	if err := l.Retention.Validate(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// String renders the layout in one canonical form, a line for each segment and tensor.
func (l *Layout) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\n", l.Seed)
	for _, t := range l.Tables {
		for _, s := range t.Segments {
			fmt.Fprintf(&b, "table %s segment %s dim %d init %s optimizer %s l2 %g%s\n", t.Name, s.Name, s.Dim, s.Init, s.Optimizer, s.L2, s.extras())
		}
	}
	for _, t := range l.Dense {
		fmt.Fprintf(&b, "dense %s shape %v init %s optimizer %s l2 %g%s\n", t.Name, t.Shape, t.Init, t.Optimizer, t.L2, t.extras())
	}
	if r := l.Retention.String(); r != "" {
		fmt.Fprintln(&b, r)
	}
	return b.String()
}

// extras are what few parameters have; those without have the text of before there was any.
func (s *Segment) extras() (text string) {
	if s.L1 != 0 {
		text = fmt.Sprintf(" l1 %g", s.L1)
	}
	if s.Delay != 0 {
		text += fmt.Sprintf(" delay %g", s.Delay)
	}
	if s.Clip != 0 {
		text += fmt.Sprintf(" clip %g", s.Clip)
	}
	if !s.Schedule.Constant() {
		text += " schedule " + s.Schedule.String()
	}
	if s.Compressor.Kind != "" {
		text += " read as " + s.Compressor.String()
	}
	return text
}

func (t *Tensor) extras() string {
	return (&Segment{L1: t.L1, Delay: t.Delay, Schedule: t.Schedule}).extras()
}

// Steps names the parameters whose gradients are bounded, whose rates have schedules or whose weights are read as something else, with all of it; "" where there are none.
func (l *Layout) Steps() string {
	var out []string
	add := func(name, text string) {
		if text != "" {
			out = append(out, name+text)
		}
	}
	for _, t := range l.Tables {
		for _, s := range t.Segments {
			add(SegmentName(t.Name, s.Name), s.extras())
		}
	}
	for _, t := range l.Dense {
		add(t.Name, t.extras())
	}
	return strings.Join(out, ", ")
}

// Hash identifies the layout: equal hashes mean equal parameters, initial values and rules.
func (l *Layout) Hash() string {
	h := sha256.Sum256([]byte(l.String()))
	return hex.EncodeToString(h[:8])
}
