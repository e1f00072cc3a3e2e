package epochsource

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/position"
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
	if schema := src.Schema(); !schema.HasField(pipeline.ColBegin) {
		s.src = &placed[T]{Source: src, schema: pipeline.WithBegin(schema), wrap: s.wrap}
	}
	return s, nil
}

// Schema implements [pipeline.Source]: that of the source, with [pipeline.ColBegin].
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
	if s.opts.Epochs == 1 {
		return out
	}
	return fmt.Sprintf("%s, %d epochs", out, s.opts.Epochs)
}

// Fingerprint implements [pipeline.Source]: that of the source, and everything but how much memory may be used.
func (s *Source[T]) Fingerprint() string {
	return pipeline.Fingerprint("epochs", s.opts, "BlockRows", "MaxWindowBytes", "WindowAdvice", "KeepBytes", "Orders", "Starts", "SplitName") + " of " + s.src.Fingerprint()
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
	end := position.AtEpoch(s.opts.Epochs, 0)
	if s.opts.OneSplit {
		name := s.opts.SplitName
		return []pipeline.Split{{Name: name, Identity: Together(inner), Start: s.opts.Starts[name], End: end}}, nil
	}
	out := make([]pipeline.Split, len(inner))
	for i, sp := range inner {
		out[i] = pipeline.Split{Name: sp.Name, Identity: sp.Identity, Seen: sp.Seen, Start: s.opts.Starts[sp.Name], End: end}
		if s.opts.Epochs == 1 {
			out[i].Rows = sp.Rows
		}
		if s.shuffle(sp.Name, 0) == 0 { // positions of the first epoch are the source's own
			out[i].Start = max(out[i].Start, sp.Start)
		}
		if s.shuffle(sp.Name, s.opts.Epochs-1) == 0 {
			if out[i].End = pipeline.NoPosition; sp.End >= 0 && sp.End < 1<<position.EpochBits {
				out[i].End = position.AtEpoch(s.opts.Epochs-1, sp.End)
			} else if s.opts.Epochs == 1 {
				out[i].End = sp.End
			}
		}
	}
	return out, nil
}

// Together is the identity of several splits as one, empty when one of them has none.
func Together(splits []pipeline.Split) string {
	h := sha256.New()
	for _, s := range splits {
		if s.Identity == "" {
			return ""
		}
		_, _ = fmt.Fprintf(h, "%q\n", s.Identity)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// order is that of an epoch of a split.
func (s *Source[T]) order(split string, epoch int) Order {
	order := Order{ShuffleRows: s.opts.ShuffleRows}
	for i, o := range s.opts.Orders[split] {
		if i == 0 || o.From <= epoch {
			order = o
		}
	}
	if order.Seed == nil {
		order.Seed = &s.opts.Seed
	}
	return order
}

// shuffle is the size of the windows of an epoch of a split.
func (s *Source[T]) shuffle(split string, epoch int) int { return s.order(split, epoch).ShuffleRows }

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
	if s.opts.OneSplit && name == s.opts.SplitName {
		return splits, nil
	}
	if i := slices.IndexFunc(splits, func(sp pipeline.Split) bool { return sp.Name == name }); i >= 0 && !s.opts.OneSplit {
		return splits[i : i+1], nil
	}
	return nil, fmt.Errorf("epochsource: %s has no split %q: %w", s.src, name, pipeline.ErrConfig)
}

// seeded is what the order of a split is drawn from beside the seed.
func seeded(inner []pipeline.Split, name string) string {
	if len(inner) == 1 {
		return cmp.Or(inner[0].Identity, name)
	}
	return cmp.Or(Together(inner), name)
}

// Open implements [pipeline.Source]. The source is read from its beginning, without the rows before the window that holds
// from; in the order of the source it is read from there. After the last epoch, as when there were more before, there is
// nothing. Errors: those of the source, [pipeline.ErrConfig] for a split that does not exist, a [*pipeline.GapError] for a
// position that is none; one after the rows of its epoch shows in Next.
func (s *Source[T]) Open(ctx context.Context, env *pipeline.Env, split pipeline.Split, from pipeline.Position) (pipeline.Reader[T], error) {
	if from < 0 {
		return nil, &pipeline.GapError{Source: env.Source, Split: split.Name, Want: from, Last: position.AtEpoch(s.opts.Epochs, 0)}
	}
	inner, err := s.inner(ctx, split.Name)
	if err != nil {
		return nil, err
	}
	start := max(from, s.opts.Starts[split.Name])
	epoch, row := start.Epoch()
	return &Reader[T]{
		skips:  start > from,
		source: s, env: env, origin: pipeline.Origin{Source: env.Source, Split: split.Name, To: from},
		epoch: epoch, row: int64(row), seeded: seeded(inner, split.Name), feed: feed[T]{src: s.src, env: env, splits: inner, keepBytes: s.opts.KeepBytes},
	}, nil
}
