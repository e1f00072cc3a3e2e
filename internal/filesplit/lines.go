package filesplit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/monolith-go/monolith/internal/fsx"
)

// LineIndex finds the lines that records of a file of text begin in, for messages about them. Its methods may be called from several
// goroutines at once.
type LineIndex struct {
	open func() (fsx.File, error)
	gz   bool

	mu sync.Mutex
	// Of a plain file: blocks[i] is the number of line ends before byte i·lineBlock.
	blocks []int64
	// Of a gzip stream: where the number of a record's line, less that of the record, becomes another one.
	steps []lineStep
	lost  bool // there were more than maxLineSteps
}

type lineStep struct{ record, ahead int64 }

const (
	// lineBlock is how many bytes are looked at, at most, for a line near one that is known.
	lineBlock = 1 << 20
	// maxLineBlocks bounds how much of a plain file is read for one line.
	maxLineBlocks = 1 << 10
	// maxLineSteps bounds what is remembered of a gzip stream.
	maxLineSteps = 1 << 16
)

// NewLineIndex returns an index of a file that open opens again. Of a gzip stream [Records] must be given it.
func NewLineIndex(gz bool, open func() (fsx.File, error)) *LineIndex {
	return &LineIndex{open: open, gz: gz}
}

// Line is the number, from 1, of the line that the record at a position begins in; 0 where that is not known, or would take too long to find.
func (x *LineIndex) Line(at int64) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.gz {
		return x.count(at)
	}
	i, found := slices.BinarySearchFunc(x.steps, at, func(s lineStep, at int64) int { return int(min(max(s.record-at, -1), 1)) })
	if !found {
		i--
	}
	if i < 0 || x.lost && i == len(x.steps)-1 {
		return 0
	}
	return at + x.steps[i].ahead
}

// add notes the line of a record of a gzip stream.
func (x *LineIndex) add(record, line int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	ahead, n := line-record, len(x.steps)
	switch {
	case x.lost || n > 0 && (x.steps[n-1].ahead == ahead || x.steps[n-1].record >= record): // or it is read once more
	case n == maxLineSteps:
		x.lost = true
	default:
		x.steps = append(x.steps, lineStep{record, ahead})
	}
}

// count counts the lines of a plain file up to a byte.
func (x *LineIndex) count(at int64) int64 {
	block := at / lineBlock
	if block-int64(len(x.blocks)) > maxLineBlocks {
		return 0
	}
	f, err := x.open()
	if err != nil {
		return 0
	}
	defer f.Close() //nolint:errcheck // it was only read
	if len(x.blocks) == 0 {
		x.blocks = []int64{0}
	}
	buf := make([]byte, lineBlock)
	for int64(len(x.blocks)) <= block {
		n := len(x.blocks)
		ends, ok := lineEnds(f, int64(n-1)*lineBlock, buf)
		if !ok {
			return 0
		}
		x.blocks = append(x.blocks, x.blocks[n-1]+ends)
	}
	ends, ok := lineEnds(f, block*lineBlock, buf[:at%lineBlock])
	if !ok {
		return 0
	}
	return x.blocks[block] + ends + 1
}

// lineEnds counts the line ends in the bytes from an offset on that fill buf; false: they are not there.
func lineEnds(f fsx.File, from int64, buf []byte) (int64, bool) {
	if len(buf) == 0 {
		return 0, true
	}
	n, err := f.ReadAt(buf, from)
	if n < len(buf) || err != nil && !errors.Is(err, io.EOF) {
		return 0, false
	}
	return int64(bytes.Count(buf, []byte{'\n'})), true
}

// Lines returns an index of a file of the list.
func (f *Files) Lines(file File, gz bool) *LineIndex {
	return NewLineIndex(gz, func() (fsx.File, error) { return f.Open(context.Background(), file) })
}
