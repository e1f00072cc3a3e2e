package table

import "unsafe"

const (
	lineBytes = int(unsafe.Sizeof(line{}))
	// firstLines and lastLines bound the mappings of full-size segments: each is as large as all before it.
	firstLines = 1 << 20
	lastLines  = 256 << 20
)

// lineStore gives out the lines of segments: of small ones from the Go heap, of full-size ones outside of it where the system
// allows that, in huge pages that are there before they are needed.
type lineStore struct {
	now, next region
	free      [][]line
	maps      [][]byte
	mapped    int
	given     int // bytes of mappings, ever
}

// region is a mapping that is being given out.
type region struct {
	b    []byte
	at   int
	warm int // up to where populating was asked for
}

// get returns n empty lines, a power of two.
func (s *lineStore) get(n int, p *populator) []line {
	if n < maxLines {
		return newLines(n)
	}
	if k := len(s.free); k > 0 {
		l := s.free[k-1]
		s.free = s.free[:k-1]
		clear(l)
		return l
	}
	const size = maxLines * lineBytes
	if s.now.at+size > len(s.now.b) {
		if s.next.b == nil {
			s.next = s.grow()
		}
		s.now, s.next = s.next, region{}
		if s.now.b == nil {
			return newLines(n)
		}
	}
	l := unsafe.Slice((*line)(unsafe.Pointer(unsafe.SliceData(s.now.b[s.now.at:]))), n)
	s.now.at += size
	s.given += size
	s.warm(p)
	return l
}

// ahead is how many bytes of lines are made ready before they are needed.
func (s *lineStore) ahead() int { return min(max(s.mapped/4, populateBytes), aheadBytes) }

// warm has the lines populated that will be needed next.
func (s *lineStore) warm(p *populator) {
	if s.mapped < populateBytes {
		return
	}
	ahead := s.ahead()
	s.now.warm = p.extend(s.now.b, s.now.warm, s.now.at+ahead)
	left := len(s.now.b) - s.now.at
	if left >= ahead {
		return
	}
	if s.next.b == nil {
		s.next = s.grow()
	}
	s.next.warm = p.extend(s.next.b, s.next.warm, ahead-left)
}

func (s *lineStore) grow() region {
	b, mapped, err := mapMemory(min(max(s.mapped, firstLines), lastLines), true)
	if err != nil || !mapped {
		return region{}
	}
	s.maps = append(s.maps, b)
	s.mapped += len(b)
	return region{b: b}
}

// put takes lines back.
func (s *lineStore) put(l []line) {
	if len(l) == maxLines {
		s.free = append(s.free, l)
	}
}

// release is put for lines that nobody may need soon: their memory goes back to the system.
func (s *lineStore) release(l []line) {
	s.put(l)
	if len(l) < maxLines {
		return
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(l))), len(l)*lineBytes)
	at := address(b)
	for _, m := range s.maps {
		if from := address(m); at >= from && at < from+uintptr(len(m)) {
			dropMemory(wholePages(b))
		}
	}
}

// close gives everything back.
func (s *lineStore) close() {
	for _, m := range s.maps {
		unmapMemory(m)
	}
	*s = lineStore{}
}

// newLines makes n empty lines, a power of two, on the Go heap.
func newLines(n int) []line {
	l := make([]line, n)
	if uintptr(unsafe.Pointer(unsafe.SliceData(l)))%64 != 0 { // the allocator's own sizes from minLines on are aligned
		l = make([]line, n+1)
		at := uintptr(unsafe.Pointer(unsafe.SliceData(l))) % 64
		l = unsafe.Slice((*line)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(l)), 64-at)), n)
	}
	return l
}
