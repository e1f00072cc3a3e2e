package pqfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
)

// Page is a run of a column's values. Its slices are valid until the next page is read.
type Page struct {
	// Len is the number of entries: values, nulls and, in lists, marks for empty ones.
	Len int
	// Rep and Def are the levels of the entries, or nil where the column's largest level is 0.
	Rep, Def []uint8
	// Full is the number of entries with the largest definition level: those that Values has a value for, in order.
	Full   int
	Values Values
}

// Column reads the pages of one column chunk. It is not for concurrent use.
type Column struct {
	r     io.ReaderAt
	node  *Node
	chunk Chunk
	shape shape
	off   int64
	end   int64
	// fileEnd is where the pages and indexes of the file end.
	fileEnd int64
	left    int64 // entries not read yet; of a list after SeekRow the most there can be
	// exact says that end is where the last page ends, and that left is only a bound.
	exact bool

	hasDict bool
	*Buffers
	*Scratch
}

// Buffers is the memory that reading a column chunk takes. It may serve one [Column] after another; what a column
// returned is no longer valid then.
type Buffers struct {
	dict Values
	page Page

	raw, flat, dictRaw, dictFlat, repBuf, defBuf []byte
}

// Scratch is what reading a page takes and the page no longer needs: decoders, and the page as it is stored. Columns that are
// read by turns, by one goroutine, share one, which so stays in the processor's caches.
type Scratch struct {
	codecs      codecs
	head, bytes []byte
}

// Column opens a column of a row group; the node must be a leaf. The buffers belong to it.
func (m *Meta) Column(r io.ReaderAt, group int, node *Node, limits Limits, buffers *Buffers, scratch *Scratch) *Column {
	c := m.RowGroups[group].chunks[node.Leaf]
	// Old writers leave the dictionary page's header out of the size (PARQUET-816); the number of values ends the chunk.
	end := c.start() + c.compressed + 100
	if end > m.end || end < c.start() {
		end = m.end
	}
	return &Column{
		r: r, node: node, chunk: c, off: c.start(), end: end, fileEnd: m.end, left: c.numValues,
		shape: shape{node.Physical, int(node.width), limits}, Buffers: buffers, Scratch: scratch,
	}
}

// Next returns the next page with entries. io.EOF ends the chunk. Errors wrap [ErrMalformed] or [ErrUnsupported] and name
// the column, or are those of the file.
func (c *Column) Next() (*Page, error) {
	for c.left > 0 && (!c.exact || c.off < c.end) {
		done, err := c.next(nil)
		if err != nil {
			return nil, fmt.Errorf("column %q, page at byte %d: %w", c.node.Name, c.off, err)
		}
		if done {
			return &c.page, nil
		}
	}
	return nil, io.EOF
}

// Skip passes over whole pages of at most so many rows, without decoding them, and returns how many rows they had. It
// must be called at the beginning of a page. Pages of lists are passed over only if they say how many rows they have.
// Errors are those of Next.
func (c *Column) Skip(rows int64) (skipped int64, err error) {
	for rows > skipped && c.left > 0 && (!c.exact || c.off < c.end) {
		most := rows - skipped
		before := most
		if _, err := c.next(&most); err != nil {
			return skipped, fmt.Errorf("column %q, page at byte %d: %w", c.node.Name, c.off, err)
		}
		if most < 0 { // the page stays: it holds what is wanted, or does not say
			return skipped, nil
		}
		skipped += before - most
	}
	return skipped, nil
}

// next reads one page of any kind and reports whether it had entries. With skip, a page of entries is passed over if it has
// at most *skip rows, which it is lowered by; otherwise *skip becomes -1 and the page is left.
func (c *Column) next(skip *int64) (bool, error) {
	if c.off >= c.end {
		return false, malformed("the chunk ends, %d values are missing", c.left)
	}
	h, size, err := readHeader(c.r, c.off, c.end, &c.head)
	if err != nil {
		return false, err
	}
	most := int64(c.shape.limits.MaxPageBytes)
	if int64(h.compressed) > c.end-c.off-size {
		return false, malformed("page of %d bytes; %d are left of the chunk", h.compressed, c.end-c.off-size)
	}
	if int64(h.compressed) > most || int64(h.uncompressed) > most {
		return false, tooLarge("page of %d bytes, %d uncompressed; the bound is %d, raise max_page_bytes", h.compressed, h.uncompressed, most)
	}
	at := c.off + size
	next := at + int64(h.compressed)
	known := h.kind == pageData || h.kind == pageDataV2 || h.kind == pageDictionary
	if !known {
		c.off = next // index pages and what later versions of the format may add
		return false, nil
	}
	if !h.hasBody {
		return false, malformed("page header without the part for its type %d", h.kind)
	}
	if h.kind != pageDictionary && int64(h.values) > c.left {
		return false, malformed("page of %d values; %d are left", h.values, c.left)
	}
	if int(h.values) > c.shape.limits.values() {
		return false, tooLarge("page of %d values; the bound is %d, an eighth of max_page_bytes: raise that", h.values, c.shape.limits.values())
	}
	if skip != nil && h.kind != pageDictionary {
		rows := int64(h.values)
		if c.node.MaxRep > 0 {
			rows = int64(h.rows)
		}
		if c.node.MaxRep > 0 && h.kind != pageDataV2 || rows < 0 || rows > *skip {
			*skip = -1
			return false, nil
		}
		*skip -= rows
		c.left -= int64(h.values)
		c.off = next
		return false, nil
	}
	raw := &c.raw
	switch {
	case c.chunk.codec != codecNone && (h.kind != pageDataV2 || !h.flat):
		raw = &c.bytes // what is decompressed lies elsewhere
	case h.kind == pageDictionary:
		raw = &c.dictRaw
	}
	*raw = grow(*raw, int(h.compressed))
	if err := readAt(c.r, *raw, at); err != nil {
		return false, err
	}
	if err := h.verify(*raw); err != nil {
		return false, err
	}
	if h.kind == pageDictionary {
		err = c.dictionary(h, *raw)
	} else {
		err = c.data(h, *raw)
	}
	if err != nil {
		return false, err
	}
	c.off = next
	return h.kind != pageDictionary && h.values > 0, nil
}

// body returns the uncompressed content of src, of size bytes, in buf or in src itself.
func (c *Column) body(src []byte, size int, buf *[]byte) ([]byte, error) {
	if c.chunk.codec == codecNone {
		return src, nil
	}
	if cap(*buf) < size+slack {
		*buf = make([]byte, 0, size+slack)
	}
	*buf = (*buf)[:size]
	return *buf, c.codecs.decompress(c.chunk.codec, *buf, src)
}

func (c *Column) dictionary(h header, raw []byte) error {
	if c.hasDict {
		return malformed("a second dictionary")
	}
	src, err := c.body(raw, int(h.uncompressed), &c.dictFlat)
	if err != nil {
		return err
	}
	if h.encoding != encPlain && h.encoding != encPlainDictionary {
		return unsupported("dictionary with encoding %d", h.encoding)
	}
	c.hasDict = true
	return c.dict.plain(c.shape, src, int(h.values))
}

func (c *Column) data(h header, raw []byte) error {
	p := &c.page
	n := int(h.values)
	p.Len, p.Rep, p.Def = n, nil, nil
	var src []byte
	var err error
	if h.kind == pageDataV2 {
		src, err = c.levelsV2(h, raw)
	} else {
		src, err = c.levelsV1(h, raw)
	}
	if err != nil {
		return err
	}
	p.Full = n
	if p.Def != nil {
		p.Full = bytes.Count(p.Def, []byte{c.node.MaxDef})
	}
	if p.Full > 0 {
		var dict *Values
		if c.hasDict {
			dict = &c.dict
		}
		if err := p.Values.decode(c.shape, h.encoding, src, p.Full, dict); err != nil {
			return err
		}
	}
	c.left -= int64(n)
	return nil
}

// levelsV1 reads the levels of a v1 page, which are compressed with the values, and returns the values.
func (c *Column) levelsV1(h header, raw []byte) ([]byte, error) {
	src, err := c.body(raw, int(h.uncompressed), &c.flat)
	if err != nil {
		return nil, err
	}
	if c.node.MaxRep > 0 {
		if c.page.Rep, src, err = levels(&c.repBuf, src, h.repEnc, int(h.values), c.node.MaxRep); err != nil {
			return nil, err
		}
	}
	if c.node.MaxDef > 0 {
		if c.page.Def, src, err = levels(&c.defBuf, src, h.defEnc, int(h.values), c.node.MaxDef); err != nil {
			return nil, err
		}
	}
	return src, nil
}

// levels reads n levels at the beginning of src and returns what follows.
func levels(buf *[]byte, src []byte, encoding int32, n int, most uint8) (out, rest []byte, err error) {
	width := uint(bits.Len8(most))
	*buf = grow(*buf, n)
	switch encoding {
	case encRLE:
		if len(src) < 4 || uint64(binary.LittleEndian.Uint32(src)) > uint64(len(src)-4) {
			return nil, nil, malformed("levels in %d bytes", len(src))
		}
		size := 4 + int(binary.LittleEndian.Uint32(src))
		err, rest = hybrid(*buf, src[4:size], width), src[size:]
	case encBitPacked:
		var size int
		if size, err = packed(*buf, src, width); err == nil {
			rest = src[size:]
		}
	default:
		return nil, nil, unsupported("levels with encoding %d", encoding)
	}
	if err != nil {
		return nil, nil, err
	}
	return *buf, rest, check(*buf, most)
}

func check(levels []byte, most uint8) error {
	if most&(most+1) == 0 { // its bits cannot hold more
		return nil
	}
	for i, l := range levels {
		if l > most {
			return malformed("level %d of entry %d is above %d", l, i, most)
		}
	}
	return nil
}

// levelsV2 reads the levels of a v2 page, which lie uncompressed before the values, and returns the values.
func (c *Column) levelsV2(h header, raw []byte) ([]byte, error) {
	src, n := raw, int(h.values)
	rep, def := src[:h.repBytes], src[h.repBytes:h.repBytes+h.defBytes]
	src = src[h.repBytes+h.defBytes:]
	if c.node.MaxRep > 0 {
		c.repBuf = grow(c.repBuf, n)
		if err := hybrid(c.repBuf, rep, uint(bits.Len8(c.node.MaxRep))); err != nil {
			return nil, err
		}
		c.page.Rep = c.repBuf
		if err := check(c.page.Rep, c.node.MaxRep); err != nil {
			return nil, err
		}
	}
	if c.node.MaxDef > 0 {
		c.defBuf = grow(c.defBuf, n)
		if err := hybrid(c.defBuf, def, uint(bits.Len8(c.node.MaxDef))); err != nil {
			return nil, err
		}
		c.page.Def = c.defBuf
		if err := check(c.page.Def, c.node.MaxDef); err != nil {
			return nil, err
		}
	}
	size := int(h.uncompressed - h.repBytes - h.defBytes)
	if h.flat || len(src) == 0 {
		return src, nil // in the column's own memory, or empty
	}
	if size == 0 {
		return nil, nil
	}
	return c.body(src, size, &c.flat)
}
