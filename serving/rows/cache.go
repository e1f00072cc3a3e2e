package rows

import (
	"math"
	"sync"
)

// cache keeps rows, of all exports together, in at most so many bytes. It is [stripes] caches that each have a lock, by the hash of the id.
//
// A stripe is a queue of blocks, each of which has rows one behind the other:
//
//	┌ table, id (2 words), mark and dim, weights [dim] ┬ table, id, ... ┐  32-bit words
//
// Rows are written to the block at the end of the queue. When there is room for no other block, that at the front is used again: rows that were asked for since they were written or
// spared last lose their mark and stay, others go, and the block joins the end: the second chance of CLOCK (Corbató, A Paging Experiment with the Multics System, 1968) for rows of
// different lengths. Nothing is allocated once the blocks are there, but for the index as it grows, and the collector has nothing to follow.
type cache struct {
	stripes []stripe
}

// key names a row: a table of an export has a number of its own.
type key struct {
	table uint32
	id    int64
}

const (
	// headWords is what a row has in front of its weights.
	headWords = 4
	// marked is the bit of the fourth word of a row that was asked for; the others are its dim.
	marked = 1 << 31
	// indexBytes is what the index has for a row, on the mean: key and place of 24 bytes at a load of about a half.
	indexBytes = 48
	// manyStripes is how many stripes a large cache has.
	manyStripes = 64
	// largestBlock and smallestBlock bound the words of a block.
	largestBlock, smallestBlock = 16 << 10, 64
)

type stripe struct {
	mu     sync.Mutex
	index  map[key]uint32 // number of its block · words of a block + where it begins there
	blocks []block
	queue  []uint32 // numbers of blocks, the next to be used again first; the last is written to
	free   []uint32 // numbers that no block has
	words  int      // of a block
	most   int64    // bytes
}

type block struct {
	words []uint32
	used  int
}

// newCache makes a cache of at most so many bytes; nil: there is none.
func newCache(bytes int64) *cache {
	n := int64(manyStripes)
	for n > 1 && bytes/n < 16*4*largestBlock {
		n /= 2
	}
	words := min(bytes/n/4/8, largestBlock)
	if words < smallestBlock {
		return nil
	}
	c := &cache{stripes: make([]stripe, n)}
	for i := range c.stripes {
		c.stripes[i] = stripe{index: map[key]uint32{}, words: int(words), most: bytes / n}
	}
	return c
}

// of is the stripe of a row.
func (c *cache) of(k key) *stripe {
	h := (uint64(k.id) ^ uint64(k.table)<<32) * 0x9e3779b97f4a7c15 // Fibonacci hashing; Knuth, The Art of Computer Programming 3, 6.4
	return &c.stripes[h>>32%uint64(len(c.stripes))]
}

// get copies the weights of a row to dst, which is as long as they are, and reports whether they are there.
func (c *cache) get(k key, dst []float32) bool {
	if c == nil {
		return false
	}
	s := c.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.index[k]
	if !ok {
		return false
	}
	row := s.blocks[int(at)/s.words].words[int(at)%s.words:]
	row[3] |= marked
	for i, w := range row[headWords:][:len(dst)] {
		dst[i] = math.Float32frombits(w)
	}
	return true
}

// put keeps the weights of a row. One that is larger than a block is not kept.
func (c *cache) put(k key, weights []float32) {
	if c == nil {
		return
	}
	s := c.of(k)
	n := headWords + len(weights)
	if n > s.words {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, has := s.index[k]; has { // of somebody who asked at the same time
		return
	}
	b, number := s.room(n)
	s.index[k] = number*uint32(s.words) + uint32(b.used)
	row := b.words[b.used:][:n]
	row[0], row[1], row[2], row[3] = k.table, uint32(k.id), uint32(uint64(k.id)>>32), uint32(len(weights))
	for i, w := range weights {
		row[headWords+i] = math.Float32bits(w)
	}
	b.used += n
}

// room is a block with room for so many words, which a block has, and its number.
func (s *stripe) room(words int) (*block, uint32) {
	for len(s.queue) > 1 && s.bytes()+indexBytes > s.most { // short rows have more of an index than the long ones for which there were so many blocks
		s.drop()
	}
	if n := len(s.queue); n > 0 {
		if b := &s.blocks[s.queue[n-1]]; b.used+words <= s.words {
			return b, s.queue[n-1]
		}
	}
	if full := int64(4*s.words + indexBytes*(s.words/words)); len(s.queue) == 0 || s.bytes()+full <= s.most {
		return s.add()
	}
	for {
		number := s.queue[0]
		copy(s.queue, s.queue[1:])
		s.queue[len(s.queue)-1] = number
		b := &s.blocks[number]
		s.sweep(b, number, true)
		if b.used+words <= s.words { // at the latest when it comes again, without marks
			return b, number
		}
	}
}

// add makes a block, the last of the queue.
func (s *stripe) add() (*block, uint32) {
	number := uint32(len(s.blocks))
	if n := len(s.free); n > 0 {
		number, s.free = s.free[n-1], s.free[:n-1]
	} else {
		s.blocks = append(s.blocks, block{})
	}
	b := &s.blocks[number]
	b.words = make([]uint32, s.words)
	s.queue = append(s.queue, number)
	return b, number
}

// drop gives back the first block of the queue.
func (s *stripe) drop() {
	number := s.queue[0]
	s.queue = append(s.queue[:0], s.queue[1:]...)
	b := &s.blocks[number]
	s.sweep(b, number, false)
	b.words = nil
	s.free = append(s.free, number)
}

// sweep drops the rows of a block; it spares those that are marked, if it may, and takes their mark.
func (s *stripe) sweep(b *block, number uint32, spare bool) {
	end := b.used
	b.used = 0
	for at := 0; at < end; {
		row := b.words[at:]
		k := key{row[0], int64(uint64(row[1]) | uint64(row[2])<<32)}
		n := headWords + int(row[3]&^marked)
		if spare && row[3]&marked != 0 {
			row[3] &^= marked
			copy(b.words[b.used:], row[:n])
			s.index[k] = number*uint32(s.words) + uint32(b.used)
			b.used += n
		} else {
			delete(s.index, k)
		}
		at += n
	}
}

// bytes is what the stripe takes.
func (s *stripe) bytes() int64 {
	return 4*int64(s.words)*int64(len(s.queue)) + indexBytes*int64(len(s.index))
}

// bytes is what the cache takes.
func (c *cache) bytes() (sum int64) {
	if c == nil {
		return 0
	}
	for i := range c.stripes {
		s := &c.stripes[i]
		s.mu.Lock()
		sum += s.bytes()
		s.mu.Unlock()
	}
	return sum
}
