package table

import "runtime"

// CutSpace is memory that updates beside a cut of a large table touch all over, one update many thousands of pages of it, with its pages: what says where the images of its rows are, and room for the
// first of these. Who makes it before a cut, without a lock, spares the first updates behind that the system's time for them; for later ones the table does that ahead.
type CutSpace struct {
	b, images []byte // nil: a cut has them
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

// firstImages is how many bytes for images there are before a cut of so many rows: a quarter of what a narrow one takes. The first updates behind a cut keep nearly all of
// their rows, at which a system that has to get pages from a host falls behind; when a quarter has images it keeps up.
func firstImages(rows int) int {
	const least, most, narrow = ranges * chunkBytes, 128 << 20, 32
	return min(max(rows*narrow/4, least), most) / chunkBytes * chunkBytes
}

// NewCutSpace makes a space for so many rows, and some that come meanwhile; nil where the system gives none.
func NewCutSpace(rows int) *CutSpace {
	s := &CutSpace{b: populated(4*(rows+rows/16), 4*rows)}
	if s.b == nil {
		return nil // the cut does without, or says why it cannot
	}
	first := firstImages(rows)
	s.images = populated(first, first)
	return s
}

// populated maps so many bytes and populates some of them; nil where the system gives none.
func populated(size, some int) []byte {
	b, mapped, err := mapMemory(size, false)
	if err != nil || !mapped {
		return nil
	}
	for rest := b[:some]; len(rest) > 0; { // in pieces, for which others who map memory wait, and those who want the processor
		piece := rest[:min(chunkBytes, len(rest))]
		populateMemory(piece)
		runtime.Gosched()
		rest = rest[len(piece):]
	}
	return b
}

// TakeCutSpace hands a space over to the next cut that it is large enough for; until then, or until Close, the table keeps it. It excludes everything else.
func (t *Mem) TakeCutSpace(s *CutSpace) {
	t.space.Close()
	t.space = s
}

// Close gives the memory back, unless a cut has it.
func (s *CutSpace) Close() {
	if s == nil {
		return
	}
	for _, b := range [][]byte{s.b, s.images} {
		if b != nil {
			unmapMemory(b)
		}
	}
	s.b, s.images = nil, nil
}

// fits reports whether there are so many bytes.
func (s *CutSpace) fits(size int) bool { return s != nil && len(s.b) >= size }

// take returns the memory, which is the caller's then, or nil if there are less than so many bytes for where images are.
func (s *CutSpace) take(size int) (b, images []byte) {
	if s.fits(size) {
		b, images = s.b, s.images
		s.b, s.images = nil, nil
	}
	return b, images
}
