package parquetsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/arrowx"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/parquetsource/internal/pqfile"
)

// column reads the rows of one leaf as Arrow arrays. Levels mean (Melnik et al., Dremel: Interactive Analysis of Web-Scale
// Datasets, VLDB 2010, section 4): repetition 0 begins a row; a definition level of MaxDef stands for a value, from
// ElementDef on for an element of the list that is null, one below for a list without elements, and less for no list.
type column struct {
	mem    memory.Allocator
	field  arrow.Field
	leaf   *pqfile.Node
	pages  *pqfile.Column
	page   *pqfile.Page
	at     int   // next entry of page
	value  int   // next value of page
	row    int64 // of the row group, that is next
	elems  appender
	limits int // bytes of elems
	// counting makes the offsets of lists of one.
	counting *arrowx.Counting
}

func newColumn(env *pipeline.Env, field arrow.Field, leaf *pqfile.Node, pages *pqfile.Column, maxBytes int, counting *arrowx.Counting) *column {
	elem := field.Type
	for {
		l, ok := elem.(*arrow.ListType)
		if !ok {
			break
		}
		elem = l.Elem()
	}
	return &column{
		mem: env.Mem(), field: field, leaf: leaf, pages: pages, elems: newAppender(env.Mem(), env.Recycled(), elem, leaf), limits: maxBytes, counting: counting,
	}
}

// fill ensures that the page has an entry; io.EOF ends the column.
func (c *column) fill() error {
	if c.page != nil && c.at < c.page.Len {
		return nil
	}
	page, err := c.pages.Next()
	if err != nil {
		return err
	}
	c.page, c.at, c.value = page, 0, 0
	return nil
}

// read returns the next n rows as an array that the caller owns. After an error the column is of no more use.
func (c *column) read(n int) (arrow.Array, error) {
	c.row += int64(n)
	switch {
	case c.leaf.MaxRep > 1:
		return c.nested(n, true)
	case c.leaf.MaxRep == 1:
		return c.lists(n)
	}
	c.elems.Reserve(n)
	if err := c.scalars(n, true); err != nil {
		return nil, err
	}
	values := c.elems.NewArray()
	if c.field.Type.ID() != arrow.LIST {
		return values, nil
	}
	defer values.Release()
	return c.ones(values), nil
}

// ones makes lists of one of single values: [a null b] becomes [[a] null [b]].
func (c *column) ones(values arrow.Array) arrow.Array {
	n := values.Len()
	// The bitmap of the values serves the lists too: a null list may span what it does not show.
	buffers := []*memory.Buffer{values.Data().Buffers()[0], c.counting.To(n)}
	data := array.NewData(c.field.Type, n, buffers, []arrow.ArrayData{values.Data()}, values.NullN(), 0)
	defer data.Release()
	return array.MakeFromData(data)
}

// goTo passes over the rows before a row: over most of them by the index of pages, where the file has one, then over whole
// pages, and at last over what lies before the row in its page. Cancelled, it continues with the next call.
func (c *column) goTo(ctx context.Context, row int64) (err error) {
	if c.row == 0 && row > 0 && c.page == nil {
		if c.row, err = c.pages.SeekRow(row); err != nil {
			return err
		}
		skipped, err := c.pages.Skip(row - c.row)
		if c.row += skipped; err != nil {
			return err
		}
	}
	for c.row < row {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n := min(row-c.row, skipRows)
		if err := c.skip(int(n)); err != nil {
			return err
		}
		c.row += n
	}
	return nil
}

// skip passes over n rows.
func (c *column) skip(n int) (err error) {
	switch c.leaf.MaxRep {
	case 0:
		return c.scalars(n, false)
	case 1:
		_, err = c.walk(n, nil)
	default:
		_, err = c.nested(n, false)
	}
	return err
}

// done returns an error unless the column ends here.
func (c *column) done() error {
	err := c.fill()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("column %q has more rows than its row group: %w", c.field.Name, pqfile.ErrMalformed)
	}
	return err
}

// early is the error for a column that ends too soon.
func (c *column) early(err error, missing int) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("column %q ends, %d rows are missing: %w", c.field.Name, missing, pqfile.ErrMalformed)
	}
	return err
}

func (c *column) scalars(n int, keep bool) error {
	for n > 0 {
		if err := c.fill(); err != nil {
			return c.early(err, n)
		}
		m := min(n, c.page.Len-c.at)
		var defs []uint8
		if c.page.Full < c.page.Len {
			defs = c.page.Def[c.at : c.at+m]
		}
		switch {
		case defs == nil && keep:
			if err := c.add(m); err != nil {
				return err
			}
		case defs == nil:
			c.value += m
		case keep:
			if err := c.nullable(defs); err != nil {
				return err
			}
		default:
			c.value += bytes.Count(defs, []byte{c.leaf.MaxDef})
		}
		c.at += m
		n -= m
	}
	return nil
}

// nullable adds values and nulls run by run.
func (c *column) nullable(defs []uint8) error {
	for i := 0; i < len(defs); {
		j := i
		for j < len(defs) && defs[j] == c.leaf.MaxDef {
			j++
		}
		if err := c.add(j - i); err != nil {
			return err
		}
		i = j
		for j < len(defs) && defs[j] != c.leaf.MaxDef {
			j++
		}
		c.elems.AppendNulls(j - i)
		i = j
	}
	return nil
}

// add appends the next n values of the page.
func (c *column) add(n int) error {
	if n == 0 {
		return nil
	}
	c.value += n
	return c.bounded(c.elems.add(&c.page.Values, c.value-n, c.value, c.limits))
}

func (c *column) bounded(fits bool) error {
	if fits {
		return nil
	}
	return fmt.Errorf("column %q has more than %d bytes in one batch; read fewer rows at a time (block_rows): %w",
		c.field.Name, c.limits, pqfile.ErrTooLarge)
}

// shape collects where lists begin and which are null.
type shape struct {
	offsets []int32
	valid   []byte
	nulls   int
}

func (c *column) lists(n int) (arrow.Array, error) {
	offsets, valid := memory.NewResizableBuffer(c.mem), memory.NewResizableBuffer(c.mem)
	defer offsets.Release()
	defer valid.Release()
	offsets.Resize((n + 1) * arrow.Int32SizeBytes)
	valid.Resize(int(bitutil.BytesForBits(int64(n))))
	bitutil.SetBitsTo(valid.Bytes(), 0, int64(n), true)
	s := &shape{offsets: arrow.Int32Traits.CastFromBytes(offsets.Bytes()), valid: valid.Bytes()}
	count, err := c.walk(n, s)
	if err != nil {
		return nil, err
	}
	s.offsets[n] = int32(count)
	elems := c.elems.NewArray()
	defer elems.Release()
	buffers := []*memory.Buffer{valid, offsets}
	if s.nulls == 0 {
		buffers[0] = nil
	}
	data := array.NewData(c.field.Type, n, buffers, []arrow.ArrayData{elems.Data()}, s.nulls, 0)
	defer data.Release()
	return array.MakeFromData(data), nil
}

// walk goes through the entries of n rows. With a shape it adds their elements; it returns the number of these.
func (c *column) walk(n int, s *shape) (count int, err error) {
	rows, run := 0, 0 // run: values seen but not added
	flush := func() error {
		m := run
		run = 0
		if s == nil {
			c.value += m
			return nil
		}
		return c.add(m)
	}
	for {
		if c.page == nil || c.at == c.page.Len {
			if err := flush(); err != nil {
				return 0, err
			}
			if err := c.bounded(count <= c.limits/8); err != nil {
				return 0, err
			}
			if err := c.fill(); err != nil {
				if errors.Is(err, io.EOF) && rows == n {
					return count, nil
				}
				return 0, c.early(err, n-rows)
			}
		}
		rep, def := c.page.Rep[c.at], c.page.Def[c.at]
		if rep == 0 {
			if rows == n {
				return count, flush()
			}
			if s != nil {
				s.offsets[rows] = int32(count)
			}
			rows++
		}
		switch {
		case rows == 0 || rep > 0 && def < c.leaf.ElementDef:
			return 0, fmt.Errorf("column %q: a list continues that has not begun: %w", c.field.Name, pqfile.ErrMalformed)
		case def == c.leaf.MaxDef:
			run++
			count++
		case def >= c.leaf.ElementDef:
			if err := flush(); err != nil {
				return 0, err
			}
			if s != nil {
				c.elems.AppendNulls(1)
			}
			count++
		case def+1 < c.leaf.ElementDef && s != nil:
			bitutil.ClearBit(s.valid, rows-1)
			s.nulls++
		}
		c.at++
	}
}

// release gives back what was read for an array that did not come about.
func (c *column) release() { c.elems.Release() }
