package table

import (
	"math/bits"
	"slices"
	"unsafe"

	"github.com/monolith-go/monolith/model/param"
)

const (
	slots = 5
	// A segment has between minLines and maxLines (64 KiB) lines; it doubles in place, then splits in two.
	minLines = 8
	maxLines = 1024
	// maxProbe bounds the lines that a search looks at.
	maxProbe = 32
	// minDirectory and directoryPerSegment bound the directory, which keys chosen to share their highest hash bits
	// would otherwise double without end.
	minDirectory        = 4096
	directoryPerSegment = 64
)

// line is one cache line of the index.
type line struct {
	key    [slots]int64
	id     [slots]uint32
	n      uint8
	passed uint8 // keys whose search continues from here, saturating; 0 ends one
	_      [2]uint8
}

// probe is the line that a search for h looks at after p others, modulo the number of lines. Keys with one home mostly have different lines behind it: were
// it the next one for all, full lines would stand side by side, and searches of a segment near its limit take up to all of maxProbe.
func probe(h, p uint64) uint64 { return h + p*(h>>strideShift|1) }

// strideShift is past the bits of the home line: maxLines is 1<<strideShift.
const strideShift = 10

// segment holds the keys of one range of hashes.
type segment struct {
	lines []line
	n     int
	depth uint8
	// first is the lowest hash of the range, which has 1<<(64-depth) hashes.
	first uint64
}

// index maps keys to row numbers: an extendible hash table (Fagin et al., 1979) whose directory is addressed by the
// highest bits of [Hash], so that walking it in order visits keys in hash order. It grows one segment at a time. Keys
// that fit nowhere, because someone chose them to collide, go to an ordinary map.
type index struct {
	dir []*segment
	// lines has for each entry of dir the address of the segment's lines, a multiple of 64, plus the logarithm of their number.
	lines []uint64
	depth uint8
	segs  int
	bytes int64
	over  map[int64]uint32
	// spilled are keys that a rebuilt segment had no place for; the table notifies its cuts and empties it.
	spilled []entry
	// spare and astray are of the last split, reused: the lines of the upper half, and the keys that were not in their home lines.
	spare  []line
	astray []entry
	store  lineStore
	// populate makes memory ready ahead, also that of the rows.
	populate *populator
}

func newIndex() index {
	s := &segment{lines: newLines(minLines)}
	x := index{populate: newPopulator(), dir: []*segment{s}, lines: make([]uint64, 1), segs: 1, bytes: minLines * 64}
	x.place(s)
	return x
}

// place enters a segment into the directory.
func (x *index) place(s *segment) {
	width := 1 << (x.depth - s.depth)
	at := int(s.first >> 1 >> (63 - x.depth))
	lines := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.lines)))) + uint64(bits.TrailingZeros(uint(len(s.lines))))
	for i := at; i < at+width; i++ {
		x.dir[i], x.lines[i] = s, lines
	}
}

// numLines is how many lines there are.
func (x *index) numLines() int { return int(x.bytes / 64) }

func (x *index) segment(h uint64) *segment { return x.dir[h>>(64-x.depth)] }

// linesOf returns the lines of the segment of h without the segment itself, which is seldom in the cache.
func (x *index) linesOf(h uint64) []line {
	e := x.lines[h>>1>>(63-x.depth)]
	at := uintptr(e &^ 63)
	// The segment in dir keeps the lines alive, and nothing of them moves.
	return unsafe.Slice((*line)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), 1<<(e&63))
}

// find returns the row number of key.
func (x *index) find(h uint64, key int64) (id uint32, ok bool) {
	lines := x.linesOf(h)
	mask := uint64(len(lines) - 1)
	for p := range uint64(maxProbe) {
		l := &lines[probe(h, p)&mask]
		for i := range min(int(l.n), slots) {
			if l.key[i] == key {
				return l.id[i], true
			}
		}
		if l.passed == 0 {
			break
		}
	}
	if len(x.over) > 0 {
		id, ok = x.over[key]
	}
	return id, ok
}

// home is the line where a search for h begins.
func (x *index) home(h uint64) *line {
	lines := x.linesOf(h)
	return &lines[h&uint64(len(lines)-1)]
}

// put enters a key that is not there, unless the segment has as many as it takes.
func (s *segment) put(h uint64, key int64, id uint32) bool {
	return s.n < s.limit() && s.enter(h, key, id)
}

// enter enters a key that is not there where it finds a place near its home.
func (s *segment) enter(h uint64, key int64, id uint32) bool {
	mask := uint64(len(s.lines) - 1)
	for p := range uint64(min(maxProbe, len(s.lines))) {
		l := &s.lines[probe(h, p)&mask]
		if l.n == slots {
			continue
		}
		l.key[l.n], l.id[l.n] = key, id
		l.n++
		s.n++
		for q := range p {
			if m := &s.lines[probe(h, q)&mask]; m.passed < 255 {
				m.passed++
			}
		}
		return true
	}
	return false
}

// remove takes a key away and returns its row number; over says that it was in the overflow map.
func (x *index) remove(h uint64, key int64) (id uint32, over, ok bool) {
	s := x.segment(h)
	mask := uint64(len(s.lines) - 1)
	for p := range uint64(maxProbe) {
		l := &s.lines[probe(h, p)&mask]
		for i := range min(int(l.n), slots) {
			if l.key[i] != key {
				continue
			}
			id = l.id[i]
			l.n--
			s.n--
			l.key[i], l.id[i] = l.key[l.n], l.id[l.n]
			for q := range p {
				// One that is saturated stays: nobody knows how many there are, and searches only take longer.
				if m := &s.lines[probe(h, q)&mask]; m.passed < 255 {
					m.passed--
				}
			}
			if len(s.lines) > minLines && s.n < len(s.lines)*slots/shrinkBelow {
				x.shrink(s)
			}
			return id, false, true
		}
		if l.passed == 0 {
			break
		}
	}
	if id, ok = x.over[key]; ok {
		delete(x.over, key)
	}
	return id, ok, ok
}

// shrinkBelow is of how many places of a segment less than one is taken when it gives lines back.
const shrinkBelow = 8

// shrink gives a segment that is nearly empty as many lines as it needs.
func (x *index) shrink(s *segment) {
	old := s.lines
	s.lines = x.store.get(linesFor(s.n), x.populate)
	s.n = 0
	x.bytes -= int64(len(old)-len(s.lines)) * 64
	x.place(s)
	x.refill(old, s)
	x.store.release(old)
}

// limit is how many keys a segment takes before it grows, between .75 and .87 of its places: each has a limit of its own, so
// that those of a table, which fill alike, do not grow at the same time.
func (s *segment) limit() int {
	return len(s.lines) * slots * (1536 + int(param.Mix(s.first, uint64(s.depth))%246)) / 2048
}

// insert enters a key that is not there, growing its segment where that helps.
func (x *index) insert(h uint64, key int64, id uint32) {
	for {
		s := x.segment(h)
		switch {
		case s.put(h, key, id):
			return
		case s.n < len(s.lines)*slots/2:
			// Half empty and yet no place near home: the low bits collide, and more lines would not part them.
		case len(s.lines) < maxLines:
			x.double(s)
			continue
		case s.depth < 63 && (s.depth < x.depth || len(x.dir) < minDirectory || len(x.dir) < directoryPerSegment*x.segs):
			x.split(s)
			continue
		}
		x.overflow(key, id)
		return
	}
}

func (x *index) overflow(key int64, id uint32) {
	if x.over == nil {
		x.over = map[int64]uint32{}
	}
	x.over[key] = id
}

func (x *index) double(s *segment) {
	old := s.lines
	s.lines, s.n = x.store.get(2*len(old), x.populate), 0
	x.place(s)
	x.bytes += int64(len(old)) * 64
	x.refill(old, s)
}

// split parts a segment by the next bit of the hash. As both halves mostly have as many lines as it had, keys that are in their home lines stay where they are,
// or are where they were among the lines of the upper half, and only the others look for a place.
func (x *index) split(s *segment) {
	if s.depth == x.depth {
		x.deepen()
	}
	all, shift := s.n, 63-s.depth
	upper := x.halve(s.lines, shift)
	s.depth++
	t := &segment{depth: s.depth, first: s.first | 1<<shift}
	x.segs++
	// The lower half keeps its lines; a half that is (nearly) empty gets no more than it needs.
	if n := linesFor(upper); n == len(x.spare) {
		t.lines = x.store.get(n, x.populate)
		t.n = copyLines(t.lines, x.spare)
	} else {
		t.lines = x.store.get(n, x.populate)
		x.refill(x.spare, t)
	}
	x.bytes += int64(len(t.lines)) * 64
	s.n = all - upper
	for i := range x.astray {
		s.n -= int(^x.astray[i].hash >> shift & 1)
	}
	if n := linesFor(all - upper); n < len(s.lines) {
		old := s.lines
		x.bytes -= int64(len(old)-n) * 64
		s.lines, s.n = x.store.get(n, x.populate), 0
		x.refill(old, s)
		x.store.put(old)
	}
	x.place(s)
	x.place(t)
	for _, e := range x.astray {
		to := s
		if e.hash>>shift&1 != 0 {
			to = t
		}
		x.enter(to, e)
	}
}

// halve parts the keys of lines that are in their home lines by a bit of their hashes: those without it stay, those with it go to the same lines of spare. The
// others go to astray, so that no search continues from any line. It returns how many keys have the bit.
func (x *index) halve(lines []line, shift uint8) (upper int) {
	x.spare = slices.Grow(x.spare[:0], len(lines))[:len(lines)]
	x.astray = x.astray[:0]
	spare, mask := x.spare, uint64(len(lines)-1)
	for i := range lines {
		l, u := &lines[i], &spare[i]
		from := *l
		down, ups := 0, 0
		for j := range min(int(from.n), slots) {
			key, id := from.key[j], from.id[j]
			h := Hash(key)
			up := int(h >> shift & 1)
			upper += up
			if h&mask != uint64(i) {
				x.astray = append(x.astray, entry{h, key, id})
				continue
			}
			// To both, as a branch would be taken as often as not: what lies behind the n keys of a line means nothing.
			l.key[down], l.id[down] = key, id
			u.key[ups], u.id[ups] = key, id
			down += 1 - up
			ups += up
		}
		l.n, l.passed, u.n, u.passed = uint8(down), 0, uint8(ups), 0
	}
	return upper
}

// copyLines copies lines and returns how many keys they have.
func copyLines(to, from []line) (n int) {
	copy(to, from)
	for i := range to {
		n += int(to[i].n)
	}
	return n
}

// deepen doubles the directory.
func (x *index) deepen() {
	dir, lines := make([]*segment, 2*len(x.dir)), make([]uint64, 2*len(x.dir))
	for i, p := range x.dir {
		dir[2*i], dir[2*i+1] = p, p
		lines[2*i], lines[2*i+1] = x.lines[i], x.lines[i]
	}
	x.dir, x.lines = dir, lines
	x.depth++
}

// linesFor returns how many lines hold n keys at most 2/3 full, with room for some more.
func linesFor(n int) int {
	want := n*3/2/slots + 1
	return min(max(1<<bits.Len(uint(want-1)), minLines), maxLines)
}

// refill enters the keys of lines into a segment.
func (x *index) refill(old []line, s *segment) {
	for i := range old {
		l := &old[i]
		for j := range min(int(l.n), slots) {
			x.enter(s, entry{Hash(l.key[j]), l.key[j], l.id[j]})
		}
	}
}

// enter enters a key into a segment that is being rebuilt, or where it can be found without.
func (x *index) enter(s *segment, e entry) {
	if !s.enter(e.hash, e.key, e.id) {
		x.overflow(e.key, e.id)
		x.spilled = append(x.spilled, e)
	}
}
