package synthsource

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/pipeline"
)

// Source reads a [Stream], or what is held out after it, as blocks of tf.Example records with their users as keys and with
// event times. The position of a split is the number of its examples before it: position p of split k of n is before example
// p·n+k. Reading is pure computation, so no position is ever lost.
type Source struct {
	stream *Stream
}

var _ pipeline.Source[*pipeline.Block] = (*Source)(nil)

// New describes a source. Errors: [pipeline.ErrConfig], every fault at once.
func New(opts Options) (*Source, error) {
	s, err := NewStream(opts)
	if err != nil {
		return nil, err
	}
	return &Source{s}, nil
}

// Stream returns the generator that the source reads.
func (s *Source) Stream() *Stream { return s.stream }

// Schema implements [pipeline.Source].
func (s *Source) Schema() *arrow.Schema { return pipeline.BlockSchema(true, true) }

// Bounded implements [pipeline.Source].
func (s *Source) Bounded() bool { return s.stream.Len() != Unbounded }

// Splits implements [pipeline.Source]; split k is named after its number, "00007".
func (s *Source) Splits(context.Context) ([]pipeline.Split, error) {
	splits := make([]pipeline.Split, s.stream.Options().Splits)
	for k := range splits {
		splits[k] = pipeline.Split{Name: splitName(k), End: pipeline.NoPosition}
		if s.Bounded() {
			splits[k].End = s.last(k)
		}
	}
	return splits, nil
}

func splitName(k int) string { return fmt.Sprintf("%05d", k) }

// last is the number of examples of split k, of a stream without end that of those which can be numbered.
func (s *Source) last(k int) pipeline.Position {
	opts := &s.stream.world.opts
	n, examples := int64(opts.Splits), opts.Examples
	if opts.HeldOut > 0 {
		examples = opts.HeldOut
	}
	if examples == Unbounded {
		examples = maxExamples
	}
	return pipeline.Position((examples - int64(k) + n - 1) / n)
}

// Open implements [pipeline.Source]. Errors: [pipeline.ErrConfig] for a split that the source does not have, a
// [*pipeline.GapError] for a position after its end.
func (s *Source) Open(_ context.Context, env *pipeline.Env, split pipeline.Split, from pipeline.Position) (pipeline.Reader[*pipeline.Block], error) {
	opts := s.stream.world.opts
	var k int
	if _, err := fmt.Sscanf(split.Name, "%d", &k); err != nil || k < 0 || k >= opts.Splits || splitName(k) != split.Name {
		return nil, fmt.Errorf("synthsource: split %q is not among %s to %s: %w", split.Name, splitName(0), splitName(opts.Splits-1), pipeline.ErrConfig)
	}
	last := s.last(k)
	if from < 0 || from > last {
		return nil, &pipeline.GapError{
			Source: env.Source, Split: split.Name, Want: from, First: 0, Last: last,
			Hint: "the stream was longer, or had fewer splits, when the position was stored",
		}
	}
	return newReader(s.stream, env, split.Name, k, from, last), nil
}

// String implements [pipeline.Source]: `synthetic 200000 examples, seed 7`, or `synthetic 5000 examples behind 200000, seed 7`
// of held-out ones.
func (s *Source) String() string {
	opts := s.stream.Options()
	if !s.Bounded() {
		return fmt.Sprintf("synthetic without end, seed %d", opts.Seed)
	}
	if opts.HeldOut > 0 {
		return fmt.Sprintf("synthetic %d examples behind %d, seed %d", opts.HeldOut, opts.Examples, opts.Seed)
	}
	return fmt.Sprintf("synthetic %d examples, seed %d", opts.Examples, opts.Seed)
}

// Fingerprint implements [pipeline.Source]: everything but how fast and in what blocks the examples come.
func (s *Source) Fingerprint() string {
	return pipeline.Fingerprint("synthetic", s.stream.Options(), "Rate", "BlockRows")
}
