package pqfile

import "errors"

// maxIndexBytes bounds what is read of an offset index.
const maxIndexBytes = 64 << 20

// pageLocation says where a data page lies and which row it begins with (parquet.thrift: PageLocation).
type pageLocation struct {
	offset, firstRow int64
	size             int32
}

// SeekRow goes to the page that holds a row by way of the chunk's offset index and returns the row that the page begins with.
// Nothing may have been read of the column. A chunk without an index, or with one that cannot be true, is read from its
// beginning: 0. An index that lies within what can be true shows when the chunk has more or fewer rows after the page than
// it should. Errors are those of the file, and of the dictionary.
func (c *Column) SeekRow(row int64) (int64, error) {
	pages, err := c.index()
	if err != nil || len(pages) == 0 {
		return 0, err
	}
	at := 0
	for at+1 < len(pages) && pages[at+1].firstRow <= row {
		at++
	}
	if at == 0 {
		return 0, nil
	}
	// Whatever lies before the first data page is the dictionary.
	for c.off < pages[0].offset && !c.hasDict {
		if done, err := c.next(nil); err != nil || done {
			return 0, errors.Join(err, malformedIf(done, "a data page at byte %d, before the first that the offset index has", c.off))
		}
	}
	last := pages[len(pages)-1]
	c.off, c.end = pages[at].offset, last.offset+int64(last.size)
	if c.node.MaxRep == 0 {
		c.left -= pages[at].firstRow
	} else {
		c.exact = true
	}
	return pages[at].firstRow, nil
}

func malformedIf(is bool, format string, args ...any) error {
	if !is {
		return nil
	}
	return malformed(format, args...)
}

// index reads the offset index; nil where there is none that can be true. Errors are those of the file.
func (c *Column) index() ([]pageLocation, error) {
	n := int64(c.chunk.indexBytes)
	if n <= 0 || n > maxIndexBytes || c.chunk.index <= 0 || c.chunk.index > c.fileEnd-n {
		return nil, nil
	}
	c.head = grow(c.head, int(n))
	if err := readAt(c.r, c.head, c.chunk.index); err != nil {
		if errors.Is(err, ErrMalformed) {
			return nil, nil
		}
		return nil, err
	}
	var pages []pageLocation
	d := decoder{b: c.head}
	d.structure(func(id int16, typ byte) bool {
		if id != 1 || typ != typeList {
			return false
		}
		d.list(func(byte) {
			var p pageLocation
			d.structure(func(id int16, typ byte) bool {
				switch {
				case id == 1 && typ == typeI64:
					p.offset = d.int()
				case id == 2 && typ == typeI32:
					p.size = d.int32()
				case id == 3 && typ == typeI64:
					p.firstRow = d.int()
				default:
					return false
				}
				return true
			})
			pages = append(pages, p)
		})
		return true
	})
	if d.err != nil {
		return nil, nil //nolint:nilerr // the pages can be read without
	}
	for i, p := range pages {
		wrong := p.offset < c.chunk.start() || p.size <= 0 || p.offset > c.fileEnd-int64(p.size) || p.firstRow < 0
		if i == 0 {
			wrong = wrong || p.firstRow != 0
		} else {
			before := pages[i-1]
			wrong = wrong || p.firstRow <= before.firstRow || p.offset < before.offset+int64(before.size)
		}
		if c.node.MaxRep == 0 {
			wrong = wrong || p.firstRow >= max(c.chunk.numValues, 1)
		}
		if wrong {
			return nil, nil
		}
	}
	return pages, nil
}
