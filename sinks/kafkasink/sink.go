package kafkasink

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/internal/kafkawire"
	"github.com/monolith-go/monolith/pipeline"
)

// Sink writes rows to a topic, each exactly once for those who read committed records: [New] makes one of blocks, [NewRows]
// one of batches. All rows of a split go to one partition, in order. It is safe for concurrent use.
type Sink[T pipeline.Element] struct {
	opts   Options
	kind   string
	encode func(T, *rows) error
}

var (
	_ pipeline.Sink[*pipeline.Block] = (*Sink[*pipeline.Block])(nil)
	_ pipeline.Sink[*pipeline.Batch] = (*Sink[*pipeline.Batch])(nil)
)

// New describes a sink that writes the records of blocks: payload, key and time as far as the block has them. Records that are older
// than the topic's retention, by these times, are removed soon and with them how far a split is. It opens nothing. Errors: [pipeline.ErrConfig], all faults of the options at once.
func New(opts Options) (*Sink[*pipeline.Block], error) {
	return newSink(opts, "records", encodeBlock)
}

// NewRows describes a sink that writes each row of a batch as a JSON object, whose members are the columns in their order;
// reserved ones are called label, weight, time, position and line_id. A column [pipeline.ColKey] becomes the record's key. The
// record's time is that of writing, whatever time the row has, so that retention by time keeps the last rows of each split, which
// Resume needs, also when old rows are written. Numbers are exact; what JSON cannot hold (NaN, infinity) is null, and bytes that are not
// UTF-8 are {"base64": "..."}. It opens nothing. Errors: [pipeline.ErrConfig], all faults of the options at once.
func NewRows(opts Options) (*Sink[*pipeline.Batch], error) {
	return newSink(opts, "rows", encodeRows)
}

func newSink[T pipeline.Element](opts Options, kind string, encode func(T, *rows) error) (*Sink[T], error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts.Codec = cmp.Or(opts.Codec, SinkCodec)
	return &Sink[T]{opts.WithDefaults(), kind, encode}, nil
}

// String implements [pipeline.Sink].
func (s *Sink[T]) String() string { return "kafka " + s.opts.Topic }

// Fingerprint implements [pipeline.Sink]: where the rows go and under which name, not over which broker, how they travel, how
// long is tried and how often they are committed.
func (s *Sink[T]) Fingerprint() string {
	return pipeline.Fingerprint("kafka "+s.kind, s.opts, "Brokers", "ClientID", "Codec", "CommitEvery", "CommitRows", "Keys", "MaxBytes", "RetryFor", "SASL", "TLS", "Timeout")
}

// Open implements [pipeline.Sink]. It makes sure that the topic exists. Errors: [pipeline.ErrConfig] when it does not,
// [pipeline.ErrUnavailable].
func (s *Sink[T]) Open(ctx context.Context, env *pipeline.Env) (pipeline.Writer[T], error) {
	w, err := s.OpenWriter(ctx, env)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// OpenWriter is Open with the writer's own type.
func (s *Sink[T]) OpenWriter(ctx context.Context, _ *pipeline.Env) (*Writer[T], error) {
	p, err := NewProducer(s.opts)
	if err != nil {
		return nil, err
	}
	if _, err := p.Partitions(ctx); err != nil {
		_ = p.Close() // never fails
		return nil, err
	}
	return &Writer[T]{p: p, encode: s.encode, splits: map[pipeline.SplitID]*split{}}, nil
}

// Writer writes the rows of a worker's splits. It is not for concurrent use.
type Writer[T pipeline.Element] struct {
	p      *Producer
	encode func(T, *rows) error
	splits map[pipeline.SplitID]*split
	failed error // of a commit, of which it is not known what became
	totals struct{ transactions, rows, bytes atomic.Int64 }
	closed bool
}

var (
	_ pipeline.Writer[*pipeline.Block] = (*Writer[*pipeline.Block])(nil)
	_ pipeline.Resumer                 = (*Writer[*pipeline.Block])(nil)
	_ pipeline.Storer                  = (*Writer[*pipeline.Block])(nil)
	_ pipeline.Idler                   = (*Writer[*pipeline.Block])(nil)
)

// split is how far a split has been written.
type split struct {
	id      pipeline.SplitID
	txn     transaction
	headers []Header
	at      pipeline.Progress // of what was taken
	stored  pipeline.Progress // of what is committed
	waiting rows
	since   time.Time // when the first of them came
	records []Record  // scratch
}

// maxWaiting is how many bytes of a split wait for their commit.
const maxWaiting = 8 << 20

// Resume implements [pipeline.Resumer]: it registers the transactional id of each split, which fences its earlier owners and
// decides about what they have begun, and reads the partitions back from their ends for the last committed row of each
// split. Of a split that was never written they are read to their beginnings. Errors: [pipeline.ErrUnavailable];
// [pipeline.ErrConfig] when the brokers refuse, or hold a damaged batch.
func (w *Writer[T]) Resume(ctx context.Context, source string, splits []pipeline.Split) (map[string]pipeline.Progress, error) {
	if w.closed {
		return nil, w.errClosed()
	}
	n, err := w.p.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	mine := make([]*split, len(splits))
	var group errgroup.Group
	group.SetLimit(maxLanes)
	for i, sp := range splits {
		id := pipeline.SplitID{Source: source, Split: sp.Name}
		s := &split{id: id, at: pipeline.Progress{Position: pipeline.NoPosition}, stored: pipeline.Progress{Position: pipeline.NoPosition}}
		s.txn = transaction{p: w.p, partition: int32(w.p.choose([]byte(id.String()), n)), by: producing{txn: w.p.opts.Output + "/" + w.p.opts.Topic + "/" + id.String()}}
		s.headers = []Header{{HeaderOutput, []byte(w.p.opts.Output)}, {HeaderSource, []byte(source)}, {HeaderSplit, []byte(sp.Name)}}
		mine[i] = s
		group.Go(func() error {
			if err := s.txn.register(ctx); err != nil {
				return fmt.Errorf("kafkasink: take over %s: %w", id, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := w.readBack(ctx, mine, n); err != nil {
		return nil, fmt.Errorf("kafkasink: read back how far it is: %w", err)
	}
	out := make(map[string]pipeline.Progress, len(splits))
	for _, s := range mine {
		w.splits[s.id] = s
		if s.at = s.stored; s.at.Position != pipeline.NoPosition {
			out[s.id.Split] = s.at
		}
	}
	return out, nil
}

// readBack finds the last committed row of splits: in the partition that each would go to as a new one, and where it is not
// there in the others, because the topic may have had fewer partitions. A split stays in the partition where it is found.
func (w *Writer[T]) readBack(ctx context.Context, splits []*split, partitions int) error {
	search := func(wanted func(s *split, partition int32) bool) error {
		wants := make([]map[pipeline.SplitID]bool, partitions) // before any split is changed by what is found
		for p := range wants {
			wants[p] = map[pipeline.SplitID]bool{}
			for _, s := range splits {
				if wanted(s, int32(p)) {
					wants[p][s.id] = true
				}
			}
		}
		var mu sync.Mutex
		var group errgroup.Group
		group.SetLimit(maxLanes)
		for i, ids := range wants {
			if len(ids) == 0 {
				continue
			}
			p := int32(i)
			group.Go(func() error {
				r := readBack{p: w.p, output: w.p.opts.Output, unpack: kafkawire.Unpacker{Limit: maxUnpack}}
				defer r.unpack.Close()
				found, err := r.partition(ctx, p, ids)
				mu.Lock()
				defer mu.Unlock()
				for _, s := range splits {
					if at, ok := found[s.id]; ok {
						s.stored, s.txn.partition = at, p
					}
				}
				return err
			})
		}
		return group.Wait()
	}
	if err := search(func(s *split, p int32) bool { return s.txn.partition == p }); err != nil {
		return err
	}
	missing := map[*split]bool{}
	for _, s := range splits {
		missing[s] = s.stored.Position == pipeline.NoPosition
	}
	return search(func(s *split, p int32) bool { return missing[s] && s.txn.partition != p })
}

// Write implements [pipeline.Writer]. Rows are not visible before they are committed. A split that Resume was not asked about
// is resumed by its first element, which must begin where what is committed ends. Errors: [pipeline.ErrFenced] when the split
// has another owner; [pipeline.ErrUnavailable]; [pipeline.ErrConfig].
func (w *Writer[T]) Write(ctx context.Context, e T) error {
	defer e.Release()
	if err := w.usable(); err != nil {
		return err
	}
	o := e.Origin()
	s := w.splits[o.ID()]
	if s == nil {
		if _, err := w.Resume(ctx, o.Source, []pipeline.Split{{Name: o.Split}}); err != nil {
			return err
		}
		s = w.splits[o.ID()]
	}
	if s.at.Position == pipeline.NoPosition {
		s.at.Position = o.From
	}
	if o.From != s.at.Position {
		return fmt.Errorf("kafkasink: %s does not begin at position %d, where what is written ends: %w", o, s.at.Position, pipeline.ErrConfig)
	}
	if n := e.NumRows(); n > 0 {
		if len(s.waiting.spans) == 0 {
			s.since = time.Now()
		}
		before := len(s.waiting.spans)
		if err := w.encode(e, &s.waiting); err != nil {
			return err
		}
		s.mark(before, o, positions(e))
	}
	s.at.Position = o.To
	if rows := len(s.waiting.spans); rows >= w.p.opts.CommitRows || rows > 0 && (len(s.waiting.data) >= maxWaiting || w.due(s)) {
		return w.commit(ctx, []*split{s})
	}
	return nil
}

// positions returns the positions of an element's rows, nil where it has none.
func positions[T pipeline.Element](e T) []int64 {
	if t, ok := any(e).(interface{ Positions() []int64 }); ok {
		return t.Positions()
	}
	return nil
}

// mark gives the rows of an element, from number first on, their places, and counts them.
func (s *split) mark(first int, o pipeline.Origin, positions []int64) {
	spans := s.waiting.spans[first:]
	for i := range spans {
		s.at.Rows++
		at := pipeline.Progress{Position: o.From, Rows: s.at.Rows, Batches: s.at.Batches}
		if i < len(positions) {
			at.Position = pipeline.Position(positions[i])
		}
		if i == len(spans)-1 {
			s.at.Batches++
			at.Position, at.Batches = o.To, s.at.Batches
		}
		spans[i].at = at
	}
}

func (w *Writer[T]) due(s *split) bool { return time.Since(s.since) >= w.p.opts.CommitEvery }

// commit commits what waits of splits, side by side.
func (w *Writer[T]) commit(ctx context.Context, splits []*split) error {
	var group errgroup.Group
	group.SetLimit(maxLanes)
	for _, s := range splits {
		group.Go(func() error {
			s.records = s.waiting.records(s.records[:0], int(s.txn.partition), s.headers)
			if err := s.txn.commit(ctx, s.records); err != nil {
				return fmt.Errorf("kafkasink: topic %q: positions %d to %d of %s: %w", w.p.opts.Topic, s.stored.Position, s.at.Position, s.id, err)
			}
			w.totals.transactions.Add(1)
			w.totals.rows.Add(int64(len(s.waiting.spans)))
			w.totals.bytes.Add(int64(len(s.waiting.data)))
			s.waiting.reset()
			s.stored = s.at
			return nil
		})
	}
	w.failed = group.Wait()
	return w.failed
}

// Totals returns how many transactions this writer has committed, and how many rows of how many bytes of keys and values were in
// them.
func (w *Writer[T]) Totals() (transactions, rows, bytes int64) {
	return w.totals.transactions.Load(), w.totals.rows.Load(), w.totals.bytes.Load()
}

// Flush implements [pipeline.Writer]: it commits what was written. Errors: as Write.
func (w *Writer[T]) Flush(ctx context.Context) error {
	return w.commitIf(ctx, func(*split) bool { return true })
}

// Idle implements [pipeline.Idler]: it commits what has waited for [Options].CommitEvery.
func (w *Writer[T]) Idle(ctx context.Context) error { return w.commitIf(ctx, w.due) }

func (w *Writer[T]) commitIf(ctx context.Context, when func(*split) bool) error {
	if err := w.usable(); err != nil {
		return err
	}
	var now []*split
	for _, s := range w.splits {
		if len(s.waiting.spans) > 0 && when(s) {
			now = append(now, s)
		}
	}
	return w.commit(ctx, now)
}

// Stored implements [pipeline.Storer].
func (w *Writer[T]) Stored(id pipeline.SplitID) pipeline.Position {
	if s := w.splits[id]; s != nil {
		return s.stored.Position
	}
	return pipeline.NoPosition
}

// usable reports whether the writer can continue.
func (w *Writer[T]) usable() error {
	if w.closed {
		return w.errClosed()
	}
	return w.failed
}

// Close implements [pipeline.Writer]: what is not committed is dropped.
func (w *Writer[T]) Close() error {
	w.closed = true
	return w.p.Close()
}

func (w *Writer[T]) errClosed() error {
	return fmt.Errorf("kafkasink: writer to %q: %w", w.p.opts.Topic, pipeline.ErrClosed)
}
