package table

// CutSpace is memory that updates beside a cut of a large table touch all over, one update many thousands of pages of it, with its pages. Who makes it before a cut, without a lock, spares the
// first updates behind that the system's time for them.
type CutSpace struct {
	b []byte // nil: a cut has it
}

// leastSpace is how many rows a table has for which a CutSpace is worth while.
const leastSpace = 512 << 10

// WantsCutSpace returns of how many rows the next cut wants to have a [CutSpace], 0 where it does without or has one. It may overlap lookups.
func (t *Mem) WantsCutSpace() int {
	n := t.numbers.high
	if n < leastSpace || t.space.fits(4*n) {
		return 0
	}
	return n
}

// NewCutSpace makes a space for so many rows, and some that come meanwhile; nil where the system gives none.
func NewCutSpace(rows int) *CutSpace {
	b, mapped, err := mapMemory(4*(rows+rows/16), false)
	if err != nil || !mapped {
		return nil // the cut does without, or says why it cannot
	}
	for rest := b[:4*rows]; len(rest) > 0; { // in pieces, for which others who map memory wait
		some := rest[:min(populateBytes, len(rest))]
		populateMemory(some)
		rest = rest[len(some):]
	}
	return &CutSpace{b}
}

// TakeCutSpace hands a space over to the next cut that it is large enough for; until then, or until Close, the table keeps it. It excludes everything else.
func (t *Mem) TakeCutSpace(s *CutSpace) {
	t.space.Close()
	t.space = s
}

// Close gives the memory back, unless a cut has it.
func (s *CutSpace) Close() {
	if s != nil && s.b != nil {
		unmapMemory(s.b)
		s.b = nil
	}
}

// fits reports whether there are so many bytes.
func (s *CutSpace) fits(size int) bool { return s != nil && len(s.b) >= size }

// take returns the memory, which is the caller's then, or nil if it is less than so many bytes.
func (s *CutSpace) take(size int) (b []byte) {
	if s.fits(size) {
		b, s.b = s.b, nil
	}
	return b
}
