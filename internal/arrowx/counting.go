package arrowx

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Counting makes offsets of lists of one value each, 0, 1, 2 and so on, once for many columns. The zero value is ready. Not for concurrent use;
// what it returned may be.
type Counting struct{ buf *memory.Buffer }

// To returns a buffer that begins with the int32 from 0 to n. It is shared: nobody may write to it. Who keeps it longer than the next call
// retains it, as arrays do.
func (c *Counting) To(n int) *memory.Buffer {
	if c.buf == nil || c.buf.Len() < 4*(n+1) {
		buf := memory.NewResizableBuffer(memory.NewGoAllocator()) // not a caller's, which may count what is not released
		buf.Resize(4 * (n + n/8 + 1))
		for i, at := 0, arrow.Int32Traits.CastFromBytes(buf.Bytes()); i < len(at); i++ {
			at[i] = int32(i)
		}
		c.buf = buf
	}
	return c.buf
}
