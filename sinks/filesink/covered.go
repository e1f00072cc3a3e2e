package filesink

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/monolith-go/monolith/pipeline"
)

// Keys of a file's metadata.
const (
	// MetaOutput is [Options].Output.
	MetaOutput = "monolith.output"
	// MetaSource and MetaSplit say which split the rows are of.
	MetaSource = "monolith.source"
	MetaSplit  = "monolith.split"
	// MetaFrom and MetaTo are the positions [from, to) that the file covers.
	MetaFrom = "monolith.from"
	MetaTo   = "monolith.to"
	// MetaRows and MetaBatches count what was written of the split since it was first read, this file included.
	MetaRows    = "monolith.rows"
	MetaBatches = "monolith.batches"
)

// covered is what a visible file says about itself.
type covered struct {
	output        string
	source, split string
	from          pipeline.Position
	pipeline.Progress
}

func (c covered) metadata() map[string]string {
	return map[string]string{
		MetaOutput: c.output, MetaSource: c.source, MetaSplit: c.split,
		MetaFrom: strconv.FormatInt(int64(c.from), 10), MetaTo: strconv.FormatInt(int64(c.Position), 10),
		MetaRows: strconv.FormatInt(c.Rows, 10), MetaBatches: strconv.FormatInt(c.Batches, 10),
	}
}

// readCovered reads what a file says about itself. Errors: those of [Format].Metadata; [ErrDamaged].
func readCovered(f Format, r io.ReaderAt, size int64) (covered, error) {
	meta, err := f.Metadata(r, size)
	if err != nil {
		return covered{}, err
	}
	c := covered{output: meta[MetaOutput], source: meta[MetaSource], split: meta[MetaSplit]}
	var errs []error
	number := func(key string) int64 {
		v, err := strconv.ParseInt(meta[key], 10, 64)
		if err != nil || v < 0 {
			errs = append(errs, fmt.Errorf("%s is %.40q: %w", key, meta[key], ErrDamaged))
		}
		return v
	}
	c.from, c.Position = pipeline.Position(number(MetaFrom)), pipeline.Position(number(MetaTo))
	c.Rows, c.Batches = number(MetaRows), number(MetaBatches)
	if len(errs) == 0 && c.Position <= c.from {
		errs = append(errs, fmt.Errorf("positions [%s,%s): %w", c.from.Text(), c.Position.Text(), ErrDamaged))
	}
	if err := errors.Join(errs...); err != nil {
		return covered{}, err
	}
	return c, nil
}
