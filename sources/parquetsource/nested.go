package parquetsource

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/sources/parquetsource/internal/pqfile"
)

// listsOf are the lists of one depth of a column of lists of lists: where each begins among what it is made of, and which are
// null.
type listsOf struct {
	begin []int32
	null  []bool
	nulls int
}

// nested goes through n rows of a column of lists of lists, of any depth. With keep it returns them as an array that the
// caller owns. An entry with repetition level r belongs to the list of depth r that is open; those below start over as far
// as its definition level says that there is an element above them.
func (c *column) nested(n int, keep bool) (arrow.Array, error) {
	defs := c.leaf.ElementDefs
	last := len(defs) - 1
	lists := make([]listsOf, len(defs))
	rows, run, count := 0, 0, 0 // run: values seen but not added
	before := uint8(0)          // the definition level of the entry before, of the same row
	flush := func() error {
		m := run
		if run = 0; keep {
			return c.add(m)
		}
		c.value += m
		return nil
	}
	for {
		if c.page == nil || c.at == c.page.Len {
			if err := flush(); err != nil {
				return nil, err
			}
			size := count
			for _, l := range lists {
				size += len(l.begin)
			}
			if err := c.bounded(size <= c.limits/8); err != nil {
				return nil, err
			}
			if err := c.fill(); err != nil {
				if errors.Is(err, io.EOF) && rows == n {
					break
				}
				return nil, c.early(err, n-rows)
			}
		}
		rep, def := c.page.Rep[c.at], c.page.Def[c.at]
		switch {
		case rep == 0 && rows == n:
			if err := flush(); err != nil || !keep {
				return nil, err
			}
			return c.arrayOf(lists, n), nil
		case rep == 0:
			rows++
		case rows == 0 || before < defs[rep-1] || def < defs[rep-1]:
			return nil, fmt.Errorf("column %q: a list continues that has not begun: %w", c.field.Name, pqfile.ErrMalformed)
		}
		before = def
		c.at++
		for k := int(rep); keep && k <= last && (k == 0 || def >= defs[k-1]); k++ {
			l := &lists[k]
			at := count
			if k < last {
				at = len(lists[k+1].begin)
			}
			null := def+1 < defs[k]
			if l.begin, l.null = append(l.begin, int32(at)), append(l.null, null); null {
				l.nulls++
			}
		}
		switch {
		case def == c.leaf.MaxDef:
			run++
			count++
		case def >= defs[last]:
			if err := flush(); err != nil {
				return nil, err
			}
			if keep {
				c.elems.AppendNulls(1)
			}
			count++
		}
	}
	if !keep {
		return nil, nil
	}
	return c.arrayOf(lists, n), nil
}

// arrayOf puts lists around the elements that were added.
func (c *column) arrayOf(lists []listsOf, n int) arrow.Array {
	types := []arrow.DataType{c.field.Type}
	for range lists[1:] {
		types = append(types, types[len(types)-1].(*arrow.ListType).Elem())
	}
	out := c.elems.NewArray()
	for k, l := range slices.Backward(lists) {
		length := len(l.begin)
		if k == 0 {
			length = n
		}
		offsets, valid := memory.NewResizableBuffer(c.mem), memory.NewResizableBuffer(c.mem)
		offsets.Resize((length + 1) * arrow.Int32SizeBytes)
		valid.Resize(int(bitutil.BytesForBits(int64(length))))
		at := arrow.Int32Traits.CastFromBytes(offsets.Bytes())
		copy(at, l.begin)
		at[length] = int32(out.Len())
		bitutil.SetBitsTo(valid.Bytes(), 0, int64(length), true)
		for i, null := range l.null {
			if null {
				bitutil.ClearBit(valid.Bytes(), i)
			}
		}
		buffers := []*memory.Buffer{valid, offsets}
		if l.nulls == 0 {
			buffers[0] = nil
		}
		data := array.NewData(types[k], length, buffers, []arrow.ArrayData{out.Data()}, l.nulls, 0)
		out.Release()
		out = array.MakeFromData(data)
		data.Release()
		offsets.Release()
		valid.Release()
	}
	return out
}
