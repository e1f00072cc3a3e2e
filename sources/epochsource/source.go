package epochsource

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/pipeline"
)

// Source describes the epochs of another source of blocks or batches. Its methods may be called from several goroutines
// at once.
type Source[T pipeline.Element] struct {
	src  pipeline.Source[T]
	opts Options
	wrap func(arrow.RecordBatch, pipeline.Origin) (T, error)

	mu struct {
		sync.Mutex
		splits []pipeline.Split // of src, once listed
	}
}

var (
	_ pipeline.Source[*pipeline.Block] = (*Source[*pipeline.Block])(nil)
	_ pipeline.Source[*pipeline.Batch] = (*Source[*pipeline.Batch])(nil)
)

// New describes the epochs of src, whose elements must be blocks or batches with [pipeline.ColPosition]. With one epoch
// and no shuffling it does nothing useful but to number rows. Errors, all at once: those of [Options.Validate],
// [pipeline.ErrConfig] for an unbounded source, [pipeline.ErrSchema] for one without positions.
func New[T pipeline.Element](src pipeline.Source[T], opts Options) (*Source[T], error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if !src.Bounded() {
		return nil, fmt.Errorf("epochsource: %s never ends, so it has no epochs: %w", src, pipeline.ErrConfig)
	}
	if err := pipeline.CheckColumns(src.Schema(), arrow.Field{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64}); err != nil {
		return nil, fmt.Errorf("epochsource: %s: %w", src, err)
	}
	s := &Source[T]{src: src, opts: opts.withDefaults()}
	var none T
	switch any(none).(type) {
	case *pipeline.Block:
		s.wrap = func(rec arrow.RecordBatch, o pipeline.Origin) (T, error) {
			b, err := pipeline.NewBlock(rec, o)
			return any(b).(T), err
		}
	case *pipeline.Batch:
		s.wrap = func(rec arrow.RecordBatch, o pipeline.Origin) (T, error) {
			b, err := pipeline.NewBatch(rec, o)
			return any(b).(T), err
		}
	default:
		return nil, fmt.Errorf("epochsource: %s makes %T, neither blocks nor batches: %w", src, none, pipeline.ErrConfig)
	}
	return s, nil
}

// Schema implements [pipeline.Source]: that of the source.
func (s *Source[T]) Schema() *arrow.Schema { return s.src.Schema() }

// Bounded implements [pipeline.Source].
func (s *Source[T]) Bounded() bool { return true }

// String implements [pipeline.Source].
func (s *Source[T]) String() string {
	out := s.src.String()
	if s.opts.OneSplit {
		out += ", as one split"
	}
	switch {
	case s.opts.ShuffleRows == WholeSplit:
		out += ", shuffled"
	case s.opts.ShuffleRows > 0:
		out += fmt.Sprintf(", shuffled in windows of %d", s.opts.ShuffleRows)
	}
	return fmt.Sprintf("%s, %d epochs", out, s.opts.Epochs)
}

// Fingerprint implements [pipeline.Source]: that of the source, and everything but how much memory may be used.
func (s *Source[T]) Fingerprint() string {
	return pipeline.Fingerprint("epochs", s.opts, "BlockRows", "MaxWindowBytes", "KeepBytes") + " of " + s.src.Fingerprint()
}

// Splits lists the splits of the source, or the one split "*", each from epoch 0 to the end of the last epoch. Errors:
// those of the source.
func (s *Source[T]) Splits(ctx context.Context) ([]pipeline.Split, error) {
	inner, err := s.src.Splits(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.mu.splits = inner
	s.mu.Unlock()
	end := pipeline.AtEpoch(s.opts.Epochs, 0)
	if s.opts.OneSplit {
		return []pipeline.Split{{Name: OneSplitName, End: end}}, nil
	}
	out := make([]pipeline.Split, len(inner))
	for i, sp := range inner {
		out[i] = pipeline.Split{Name: sp.Name, End: end}
	}
	return out, nil
}

// inner returns the splits of the source that make up a split.
func (s *Source[T]) inner(ctx context.Context, name string) ([]pipeline.Split, error) {
	s.mu.Lock()
	splits := s.mu.splits
	s.mu.Unlock()
	if splits == nil {
		var err error
		if splits, err = s.src.Splits(ctx); err != nil {
			return nil, err
		}
	}
	if s.opts.OneSplit && name == OneSplitName {
		return splits, nil
	}
	if i := slices.IndexFunc(splits, func(sp pipeline.Split) bool { return sp.Name == name }); i >= 0 && !s.opts.OneSplit {
		return splits[i : i+1], nil
	}
	return nil, fmt.Errorf("epochsource: %s has no split %q: %w", s.src, name, pipeline.ErrConfig)
}

// Open implements [pipeline.Source]. The source is read from its beginning, without the rows before the window that holds
// from. Errors: those of the source, [pipeline.ErrConfig] for a split that does not exist, a [*pipeline.GapError] for a
// position outside of the epochs; one behind the rows of its epoch shows in Next.
func (s *Source[T]) Open(ctx context.Context, env *pipeline.Env, split pipeline.Split, from pipeline.Position) (pipeline.Reader[T], error) {
	if end := pipeline.AtEpoch(s.opts.Epochs, 0); from < 0 || from > end {
		return nil, &pipeline.GapError{Source: env.Source, Split: split.Name, Want: from, Last: end, Hint: "more epochs would reach it"}
	}
	inner, err := s.inner(ctx, split.Name)
	if err != nil {
		return nil, err
	}
	epoch, row := from.Epoch()
	return &Reader[T]{
		source: s, env: env, origin: pipeline.Origin{Source: env.Source, Split: split.Name, To: from},
		epoch: epoch, row: int64(row), feed: feed[T]{src: s.src, env: env, splits: inner, keepBytes: s.opts.KeepBytes},
	}, nil
}
