package pipeline

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// ShuffleOptions say how rows are grouped.
type ShuffleOptions struct {
	// Key is the column to group by: int64, binary or string, or list<int64>, of which the first value counts. Rows
	// without a key come first, as one group.
	Key string
	// Partitions is how many splits the result has, at least 1: so many workers can continue with it.
	Partitions int
}

// Shuffle brings rows with equal keys together, from all splits and sources of a stream, once that has ended:
//
//	split a   |-k1-k2-k1-|
//	split b   |-k2-k3-k1-|
//	partition 0   |-k1-k1-k1-k3-|
//	partition 1   |-k2-k2-|
//
// The result is a source of its own, called name, with a split for each partition of the keys' hash. Rows are sorted by key,
// then by source, split and position of where they come from, and their positions are their numbers within the partition: all
// of it is a function of the rows, so that a run that starts over gives each row the position it had, and sinks downstream continue
// where they were ([Resumer]). Rows of one key are in one batch, unless there are tens of thousands.
//
// The stream must end, must have [ColPosition], and is read from its beginning by every run, because what is grouped is kept
// for one run only: in memory and on disk by the local runner, between the processes of a GroupByKey on Beam. What is downstream is a segment of the plan
// that runs when the one in front has ended. Event times are in no order there, so the watermark stays where it is until the
// end.
func Shuffle(s Stream[*Batch], name string, o ShuffleOptions) Stream[*Batch] {
	sh := &shuffle{name: name, opts: o}
	in := &node{kind: sinkNode, name: name + ".in", site: caller(), desc: sh.String(), full: Fingerprint("shuffle", o), shuffle: sh}
	in.sink = erasedSink[*Batch]{sh}
	if o.Partitions < 1 {
		in.fault("%d partitions, it takes 1 or more: %w", o.Partitions, ErrConfig)
	}
	s.follow(in)
	out := &node{kind: sourceNode, name: name, site: in.site, elem: elemName[*Batch](), shuffle: sh, desc: "shuffle " + name, full: in.full}
	out.source = erasedSource[*Batch]{shuffled{sh}}
	out.read.Lateness = time.Duration(math.MaxInt64)
	sh.in = in
	return Stream[*Batch]{g: s.g, n: s.g.add(out)}
}

// Exchange keeps the rows of a [Shuffle] during a run. Runners have one for each ([RunOptions].Exchanges).
type Exchange interface {
	// Put takes a batch and owns it. It is called from several goroutines.
	Put(ctx context.Context, b *Batch) error
	// Open reads a partition from a row on, when everything was put. The reader's batches are those of the split that
	// [ShuffleInfo.Split] names.
	Open(ctx context.Context, env *Env, partition int, from Position) (Reader[*Batch], error)
}

// ShuffleInfo describes a [Shuffle] of a plan.
type ShuffleInfo struct {
	ShuffleOptions
	// Name is that of the source downstream of it.
	Name string
	// Schema is that of the rows.
	Schema *arrow.Schema
	// From and To are the segments upstream and downstream.
	From, To int
}

// Split names the split of a partition.
func (ShuffleInfo) Split(partition int) string { return fmt.Sprintf("%05d", partition) }

// Shuffles returns the shuffles of the plan, in the order of building, which no shuffle's end comes before its beginning in.
func (p *Plan) Shuffles() []ShuffleInfo {
	var out []ShuffleInfo
	for i, s := range p.Segments {
		for _, n := range s.shape.sinks {
			if n.shuffle == nil {
				continue
			}
			info := ShuffleInfo{ShuffleOptions: n.shuffle.opts, Name: n.shuffle.name, Schema: n.in[0].n.schema, From: i}
			for k, behind := range p.Segments {
				if behind.source(info.Name) != nil {
					info.To = k
				}
			}
			out = append(out, info)
		}
	}
	return out
}

// shuffle is the end of a segment that a [Shuffle] makes.
type shuffle struct {
	name string
	opts ShuffleOptions
	in   *node
}

var _ Sink[*Batch] = (*shuffle)(nil)

func (s *shuffle) String() string {
	return fmt.Sprintf("shuffle %s by %s, %d partitions", s.name, s.opts.Key, s.opts.Partitions)
}

// Fingerprint implements [Sink].
func (s *shuffle) Fingerprint() string { return Fingerprint("shuffle", s.opts) }

// Open implements [Sink].
func (s *shuffle) Open(_ context.Context, env *Env) (Writer[*Batch], error) {
	x, err := env.exchange(s.name)
	return &shuffleWriter{x}, err
}

// check finds what is wrong with the stream that is grouped.
func (s *shuffle) check(c *checker, n *node, in *arrow.Schema) {
	if i := in.FieldIndices(ColPosition); len(i) != 1 {
		c.fault(n, "the stream has no positions any more; group before the stage that makes training batches: %w", ErrSchema)
	}
	i := in.FieldIndices(s.opts.Key)
	if len(i) != 1 {
		c.fault(n, "there is no column %q to group by, but %s: %w", s.opts.Key, schemaText(in), ErrSchema)
		return
	}
	switch dt := in.Field(i[0]).Type; dt.ID() {
	case arrow.INT64, arrow.BINARY, arrow.STRING:
	case arrow.LIST:
		if dt.(*arrow.ListType).Elem().ID() == arrow.INT64 {
			return
		}
		fallthrough
	default:
		c.fault(n, "column %q is %s; keys are int64, binary, string or list<int64>: %w", s.opts.Key, typeText(dt), ErrSchema)
	}
	for _, source := range n.sources {
		if source.source != nil && !source.source.bounded() {
			c.fault(n, "source %q has no end, and rows are grouped when all are there: %w", source.name, ErrConfig)
		}
	}
}

// shuffleWriter stores no position: it answers that nothing is there, so that everything is read.
type shuffleWriter struct{ x Exchange }

// Write implements [Writer].
func (w *shuffleWriter) Write(ctx context.Context, b *Batch) error { return w.x.Put(ctx, b) }

// Flush implements [Writer].
func (w *shuffleWriter) Flush(context.Context) error { return nil }

// Close implements [Writer].
func (w *shuffleWriter) Close() error { return nil }

// Resume implements [Resumer].
func (w *shuffleWriter) Resume(context.Context, string, []Split) (map[string]Progress, error) {
	return map[string]Progress{}, nil
}

// shuffled is the source downstream of a [Shuffle].
type shuffled struct{ s *shuffle }

var _ Source[*Batch] = shuffled{}

// Schema implements [Source]: that of the rows, which planning knows.
func (s shuffled) Schema() *arrow.Schema { return s.s.in.in[0].n.schema }

// Bounded implements [Source].
func (s shuffled) Bounded() bool { return true }

// Splits implements [Source]: the partitions.
func (s shuffled) Splits(context.Context) ([]Split, error) {
	out := make([]Split, s.s.opts.Partitions)
	for i := range out {
		out[i] = Split{Name: ShuffleInfo{}.Split(i), End: NoPosition}
	}
	return out, nil
}

// Open implements [Source].
func (s shuffled) Open(ctx context.Context, env *Env, split Split, from Position) (Reader[*Batch], error) {
	x, err := env.exchange(s.s.name)
	if err != nil {
		return nil, err
	}
	var partition int
	if _, err := fmt.Sscanf(split.Name, "%d", &partition); err != nil || partition >= s.s.opts.Partitions {
		return nil, fmt.Errorf("shuffle %q has no partition %q: %w", s.s.name, split.Name, ErrConfig)
	}
	return x.Open(ctx, env, partition, from)
}

func (s shuffled) String() string { return s.s.name }

// Fingerprint implements [Source].
func (s shuffled) Fingerprint() string { return s.s.Fingerprint() }

// exchange is the runner's.
func (e *Env) exchange(name string) (Exchange, error) {
	if x := e.exchanges[name]; x != nil {
		return x, nil
	}
	return nil, fmt.Errorf("shuffle %q: the runner keeps no rows for it; run the whole plan: %w", name, ErrConfig)
}
