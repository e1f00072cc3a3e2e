package epochsource

import (
	"errors"
	"fmt"
	"math"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/position"
)

// WholeSplit as Options.ShuffleRows makes one window of all rows of a split.
const WholeSplit = -1

// OneSplitName is the name that the only split of a source with Options.OneSplit has by default.
const OneSplitName = "*"

// Order is the order of the epochs of a split from one on: windows of ShuffleRows, permuted by Seed, as in [Options].
type Order struct {
	From        int `json:"from"`
	ShuffleRows int `json:"shuffle_rows"`
	// Seed is nil where it is that of the options, and where nothing is shuffled.
	Seed *uint64 `json:"seed,omitempty"`
}

// Options are the choices of a [Source]; the zero value reads everything once in the order of the source.
type Options struct {
	// Epochs is how many times everything is read; default 1.
	Epochs int
	// ShuffleRows is the size of the windows of consecutive rows that are read into memory and permuted. 0 keeps the
	// order of the source, [WholeSplit] permutes each split as a whole. Larger windows mix better and take more memory:
	// up to twice the bytes of a window's rows, for each split that is being read.
	ShuffleRows int
	// Seed chooses the permutations.
	Seed uint64
	// Orders are the orders that the epochs of splits have, by split, where they have another than ShuffleRows says: an
	// epoch that was begun in one order continues in it.
	Orders map[string][]Order
	// Starts are the positions before which nothing is read, by split: a split begins there, or continues there from a
	// position before.
	Starts map[string]pipeline.Position
	// SplitName is the name of the one split; default [OneSplitName].
	SplitName string
	// OneSplit makes one split of all splits of the source, one after another, so that windows cross files.
	// One worker then reads everything.
	OneSplit bool
	// BlockRows bounds the rows of an element made of a permuted window, default 1024.
	BlockRows int
	// MaxWindowBytes bounds a window: one that is larger fails the run rather than the machine. Default 1 GiB.
	MaxWindowBytes int64
	// WindowAdvice is what the error of such a window says of the bound and what to do. Default: to shuffle fewer rows, or to raise MaxWindowBytes.
	WindowAdvice string
	// KeepBytes bounds, for each split, the rows that are kept in memory between shuffled epochs so that the source need
	// not be read again: a split of more bytes is read again. Default 256 MiB; -1 keeps nothing.
	KeepBytes int64
}

func (o Options) withDefaults() Options {
	if o.Epochs == 0 {
		o.Epochs = 1
	}
	if o.SplitName == "" {
		o.SplitName = OneSplitName
	}
	if o.BlockRows == 0 {
		o.BlockRows = 1024
	}
	if o.MaxWindowBytes == 0 {
		o.MaxWindowBytes = 1 << 30
	}
	if o.WindowAdvice == "" {
		o.WindowAdvice = "shuffle fewer rows, or raise MaxWindowBytes"
	}
	if o.KeepBytes == 0 {
		o.KeepBytes = 256 << 20
	}
	return o
}

// Validate returns every fault of the options at once, each wrapping [pipeline.ErrConfig]. Zero values mean defaults.
func (o Options) Validate() error {
	o = o.withDefaults()
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("epochsource: "+format+": %w", append(args, pipeline.ErrConfig)...))
	}
	if most := math.MaxInt64>>position.EpochBits - 1; o.Epochs < 0 || o.Epochs > most {
		fault("epochs %d is not in 1 to %d", o.Epochs, most)
	}
	if o.ShuffleRows < WholeSplit {
		fault("shuffle_rows %d is neither a number of rows nor -1", o.ShuffleRows)
	}
	if o.BlockRows < 0 {
		fault("block_rows %d is negative", o.BlockRows)
	}
	if o.MaxWindowBytes < 0 {
		fault("max_window_bytes %d is negative", o.MaxWindowBytes)
	}
	return errors.Join(faults...)
}
