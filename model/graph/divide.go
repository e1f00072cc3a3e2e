package graph

// pass is the part of a step that an operator is in.
type pass uint8

const (
	ahead pass = iota
	back
)

// divisible operators have work that several threads can share: ranges of rows, of elements, or of the values that they are made of, which
// write nothing in common.
type divisible interface {
	// block does the items from the first up to the last of a pass. What the pass as a whole needs, such as where gradients go, is in
	// s.work.
	block(s *Session, n *node, p pass, from, to int)
}

// work is what the threads of a session share at the moment. It is a [simd.Task].
type work struct {
	s    *Session
	op   divisible
	n    *node
	pass pass
	size int // items of a block
	all  int

	// into is where gradients go, and first reports whether they overwrite what is there; item is one of several inputs, and at its column.
	into     []float32
	first    bool
	item, at int
}

// Block implements [simd.Task].
func (w *work) Block(_, block int) {
	from := block * w.size
	w.op.block(w.s, w.n, w.pass, from, min(from+w.size, w.all))
}

// divide has a session's threads do so many items, of about so many elements each, in blocks of a multiple of grain. Small work is done on
// this one.
func (s *Session) divide(o divisible, n *node, p pass, items, elements, grain int) {
	const worth = 1 << 14 // elements, a few microseconds
	threads := s.pool.Threads()
	if threads == 1 || items*elements < worth {
		o.block(s, n, p, 0, items)
		return
	}
	w := &s.work
	size := (items + 4*threads - 1) / (4 * threads) // several blocks a thread, as none knows how fast the others are
	w.s, w.op, w.n, w.pass, w.all = s, o, n, p, items
	w.size = max((size+grain-1)/grain, 1) * grain
	s.pool.Run((items+w.size-1)/w.size, w)
}

// zeroing is memory that the threads of a session clear. It is a [simd.Task].
type zeroing struct{ x []float32 }

// zeroBlock is how much a thread clears at a time.
const zeroBlock = 1 << 15

// Block implements [simd.Task].
func (z *zeroing) Block(_, block int) {
	from := block * zeroBlock
	clear(z.x[from:min(from+zeroBlock, len(z.x))])
}

// zero has a session's threads clear x.
func (s *Session) zero(x []float32) {
	if s.pool.Threads() == 1 || len(x) <= zeroBlock {
		clear(x)
		return
	}
	s.zeroing.x = x
	s.pool.Run((len(x)+zeroBlock-1)/zeroBlock, &s.zeroing)
	s.zeroing.x = nil
}
