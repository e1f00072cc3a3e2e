package components

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/synthsource"
)

// Synthetic makes clicks from a drifting world whose click probabilities it knows.
type Synthetic struct {
	// Examples is the length of the stream; 0 never ends.
	Examples int64 `yaml:"examples" min:"0"`
	// Splits is the number of splits the stream is dealt to.
	Splits int `yaml:"splits" min:"1" max:"1024"`
	// Seed makes the world; 0 takes the job's seed. What was trained on of one world is not continued with in another, nor with another number of splits: give
	// the job another source_name for that.
	Seed uint64 `yaml:"seed" default:"0"`
	// HeldOut, if not 0, gives so many examples that follow a stream of that many examples and that it does not hold, in place of
	// the stream: for eval.source, with examples and seed of the source.
	HeldOut int64 `yaml:"held_out" default:"0" min:"0"`
	// Rate is how many examples come a second, over all splits; 0 is as fast as they are read.
	Rate float64 `yaml:"rate" default:"0" min:"0"`
	// BlockRows is the number of examples of a block.
	BlockRows int `yaml:"block_rows" min:"1"`
}

// Defaults implements [conf.Defaulted].
func (*Synthetic) Defaults() map[string]string {
	o := synthsource.Options{}.WithDefaults()
	return map[string]string{"examples": written(o.Examples), "splits": written(o.Splits), "block_rows": written(o.BlockRows)}
}

// OpenBlocks implements [component.Blocks].
func (s *Synthetic) OpenBlocks(o component.Opening) (pipeline.Source[*pipeline.Block], error) {
	opts := synthsource.Options{
		Seed: s.Seed, Examples: s.Examples, HeldOut: s.HeldOut, Splits: s.Splits, Rate: s.Rate, BlockRows: s.BlockRows,
	}
	opts.Seed = cmp.Or(opts.Seed, o.Seed)
	if s.Examples == 0 {
		opts.Examples = synthsource.Unbounded
	}
	return synthsource.New(opts)
}

// Check implements [component.Checker].
func (s *Synthetic) Check(report component.Report) {
	if s.HeldOut > 0 && s.Examples == 0 {
		report("held_out", "is %d, but a stream without end has nothing behind it; set examples", s.HeldOut)
	}
}

// Formats implements [component.SourceConfig].
func (*Synthetic) Formats() []string { return []string{"tf_example"} }

// UsualFormat implements [component.SourceConfig].
func (*Synthetic) UsualFormat() string { return "tf_example" }

// Bounded implements [component.SourceConfig].
func (s *Synthetic) Bounded() bool { return s.Examples > 0 }

// NumExamples implements [component.Sized].
func (s *Synthetic) NumExamples() int64 {
	if s.HeldOut > 0 {
		return s.HeldOut
	}
	return s.Examples
}

// SelfDescribing implements [component.SelfDescribing].
func (*Synthetic) SelfDescribing() {}

// Brief implements [component.Brief].
func (s *Synthetic) Brief(rows int, _ time.Duration) component.SourceConfig {
	brief := *s
	if rows > 0 {
		brief.BlockRows, brief.Rate = min(s.BlockRows, rows), 0
	}
	return &brief
}

// Positions implements [component.Positioned]. A stream may become longer.
func (s *Synthetic) Positions(seed uint64) string {
	of := fmt.Sprintf("seed %d, splits %d", cmp.Or(s.Seed, seed), s.Splits)
	if s.HeldOut > 0 {
		of += fmt.Sprintf(", held out after %d", s.Examples)
	}
	return of
}

// Written implements [component.Written].
func (*Synthetic) Written() []string { return []string{"source: {synthetic: {examples: 200000}}"} }

// syntheticTarget is the word alone, where no file is called so.
func syntheticTarget(target string) (keys [][2]string, ok bool, err error) {
	if _, err := os.Stat(target); target != "synthetic" || !errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	return [][2]string{{"examples", "0"}}, true, nil
}
