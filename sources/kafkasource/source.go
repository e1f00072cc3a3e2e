package kafkasource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/internal/kafkawire"
	"github.com/monolith-go/monolith/pipeline"
)

// Source is a Kafka topic; its splits are the topic's partitions, named topic-00000 and so on. It holds no connection and
// is safe for concurrent use.
type Source struct {
	opts    Options
	outages outages

	mu struct {
		sync.Mutex
		id kafkawire.TopicID // of the topic whose splits were listed last; zero: not known
		// behind is how many offsets lay behind the end of a partition when that was looked up: what is not committed yet.
		behind map[int32]int64
	}
}

var (
	_ pipeline.Source[*pipeline.Block] = (*Source)(nil)
	_ pipeline.Acknowledger            = (*Source)(nil)
)

// New describes a topic. It opens nothing. Errors: [pipeline.ErrConfig], all faults of the options at once.
func New(opts Options) (*Source, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return &Source{opts: opts.WithDefaults()}, nil
}

// Schema implements [pipeline.Source]: payload, position, key (nullable) and time.
func (s *Source) Schema() *arrow.Schema { return pipeline.WithBegin(pipeline.BlockSchema(true, true)) }

// Bounded implements [pipeline.Source]: whether [Options.End] is set.
func (s *Source) Bounded() bool { return s.opts.bounded() }

// Contemporary implements [pipeline.Contemporary].
func (s *Source) Contemporary() {}

// String implements [pipeline.Source].
func (s *Source) String() string { return "kafka " + s.opts.Topic }

// Fingerprint implements [pipeline.Source]: which records are read. How, from which of a cluster's brokers and as whom may
// differ between processes.
func (s *Source) Fingerprint() string {
	return pipeline.Fingerprint("kafka", s.opts, "Brokers", "DiscoverEvery", "GroupID", "ClientID", "MaxWait", "MaxBytes", "MaxRows", "RetryFor", "Timeout", "TLS", "SASL", "Logger")
}

// asidePatience bounds the patience with what nothing depends on.
const asidePatience = 5 * time.Second

// listing is what [Source.Splits] does.
const listing = "splits"

// with runs f with a client, again while errors may pass.
func (s *Source) with(ctx context.Context, what string, limit time.Duration, f func(*client) error) (err error) {
	opts := s.opts
	opts.Timeout = min(opts.Timeout, max(limit, time.Second)) // a broker that does not answer is not waited for longer than for all tries
	cl, err := newClient(&opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cl.Close()) }()
	p := patience{limit: limit, from: time.Now()}
	s.mu.Lock()
	listed := s.mu.id != kafkawire.TopicID{}
	s.mu.Unlock()
	// Who acknowledges logs by itself how that goes; and who looks for partitions that are new does so beside readers, of this
	// source or another of the same topic, who log it.
	if what == listing && !listed {
		p.log, p.outages, p.who = cmp.Or(s.opts.Logger, slog.New(slog.DiscardHandler)).With("topic", s.opts.Topic), &s.outages, what
		defer p.leave(false)
	}
	for {
		err := f(cl)
		if err == nil {
			p.answered()
			return nil
		}
		cl.Forget()
		if err = p.after(ctx, err); err == nil {
			continue
		}
		if ctx.Err() != nil || errors.Is(err, pipeline.ErrUnavailable) {
			return fmt.Errorf("kafkasource: %s of topic %q: cannot use the brokers %s: %w", what, s.opts.Topic, strings.Join(s.opts.Brokers, ","), err)
		}
		return fmt.Errorf("kafkasource: %s of topic %q: %w", what, s.opts.Topic, err)
	}
}

// Splits implements [pipeline.Source]: one split for each partition. Errors: [pipeline.ErrConfig] when the topic or a
// partition does not exist, access is denied or bounds are missing; [pipeline.ErrUnavailable] with the addresses when no
// broker answers or partitions have no leader.
func (s *Source) Splits(ctx context.Context) ([]pipeline.Split, error) {
	var out []pipeline.Split
	missing := 0
	err := s.with(ctx, listing, s.opts.RetryFor, func(cl *client) (err error) {
		out, err = s.splits(ctx, cl)
		// A topic that was created a moment ago may not have got round to all brokers.
		if errors.Is(err, kafka.UnknownTopicOrPartition) {
			if missing++; missing > 3 {
				unknown, err := cl.UnknownTopic(ctx)
				if err != nil {
					return err
				}
				return fmt.Errorf("%s: %w", unknown, pipeline.ErrConfig)
			}
		}
		return err
	})
	return out, err
}

func (s *Source) splits(ctx context.Context, cl *client) ([]pipeline.Split, error) {
	t, err := cl.Topic(ctx)
	if err != nil {
		return nil, err
	}
	partitions, err := s.partitions(t)
	if err != nil {
		return nil, err
	}
	starts, err := s.bound(ctx, cl, partitions, s.opts.Start)
	if err != nil {
		return nil, err
	}
	var ends map[int32]int64
	if s.opts.bounded() {
		if ends, err = s.bound(ctx, cl, partitions, s.opts.End); err != nil {
			return nil, err
		}
	}
	behind := map[int32]int64{}
	if s.opts.End.Place == Latest && s.opts.Isolation == ReadCommitted {
		all, err := cl.offsets(ctx, partitions, kafkawire.AtLatest, false)
		if err != nil {
			return nil, err
		}
		for p, end := range ends {
			behind[p] = all[p] - end
		}
	}
	s.mu.Lock()
	s.mu.id, s.mu.behind = t.ID, behind
	s.mu.Unlock()
	out := make([]pipeline.Split, 0, len(partitions))
	for _, p := range partitions {
		m := splitMemory{Cluster: cl.Cluster.ID, Topic: t.ID.String(), Start: starts[p], Exact: s.opts.Start.Place == "", Partitions: len(t.Partitions), Term: -1}
		split := pipeline.Split{Name: splitName(s.opts.Name, p), Start: pipeline.Position(starts[p]), End: pipeline.NoPosition, Memory: m.text()}
		if ends != nil {
			split.End = max(pipeline.Position(ends[p]), split.Start)
		}
		out = append(out, split)
	}
	return out, nil
}

// partitions returns those to read, in order.
func (s *Source) partitions(t *kafkawire.TopicMeta) ([]int32, error) {
	have := make([]int32, 0, len(t.Partitions))
	for _, p := range t.Partitions {
		have = append(have, p.Partition)
	}
	slices.Sort(have)
	if have[len(have)-1] > maxPartition {
		return nil, fmt.Errorf("%d partitions are more than the %d that split names have room for: %w", len(have), maxPartition+1, pipeline.ErrConfig)
	}
	if s.opts.Partitions == nil {
		return have, nil
	}
	var out []int32
	for _, p := range s.opts.Partitions {
		if !slices.Contains(have, int32(p)) {
			return nil, fmt.Errorf("there is no partition %d, only %d to %d: %w", p, have[0], have[len(have)-1], pipeline.ErrConfig)
		}
		out = append(out, int32(p))
	}
	slices.Sort(out)
	return out, nil
}

// bound resolves a bound to an offset for each partition.
func (s *Source) bound(ctx context.Context, cl *client, partitions []int32, b Bound) (map[int32]int64, error) {
	out := make(map[int32]int64, len(partitions))
	var ask []int32
	for _, p := range partitions {
		if at, ok := b.Offsets[int(p)]; ok {
			out[p] = at
		} else {
			ask = append(ask, p)
		}
	}
	for p := range b.Offsets {
		if !slices.Contains(partitions, int32(p)) {
			return nil, fmt.Errorf("an offset is given for partition %d, which is not read: %w", p, pipeline.ErrConfig)
		}
	}
	if len(ask) == 0 {
		return out, nil
	}
	if !b.Time.IsZero() {
		return out, s.boundAt(ctx, cl, ask, b.Time, out)
	}
	if b.Place == "" {
		return nil, fmt.Errorf("source.kafka.end names no end for partition %d; name one, or set it to latest: %w", ask[0], pipeline.ErrConfig)
	}
	at := int64(kafkawire.AtEarliest)
	if b.Place == Latest {
		at = kafkawire.AtLatest
	}
	got, err := cl.offsets(ctx, ask, at, s.opts.Isolation == ReadCommitted)
	maps.Copy(out, got)
	return out, err
}

// boundAt adds to out the first offsets of a time or a later one, where there is none the end of what can be read.
func (s *Source) boundAt(ctx context.Context, cl *client, ask []int32, at time.Time, out map[int32]int64) error {
	committed := s.opts.Isolation == ReadCommitted
	// The ends come first: a record that is written in between is at one of them, or behind it, and is found there or later.
	ends, err := cl.offsets(ctx, ask, kafkawire.AtLatest, committed)
	if err != nil {
		return err
	}
	got, err := cl.offsets(ctx, ask, at.UnixMilli(), committed)
	if err != nil {
		return err
	}
	for _, p := range ask {
		if out[p] = ends[p]; got[p] >= 0 {
			out[p] = min(got[p], ends[p])
		}
	}
	return nil
}

// Open implements [pipeline.Source]. It finds the partition's leader and checks the position against the log before it
// returns. A position that still is the split's Start, when that was [Earliest] and no time or offset, may lie before the log's start: nothing
// has been read yet, so the reader begins with what there is and logs the difference. Errors: [pipeline.ErrConfig] for a
// split of another topic or a topic that is gone, [*pipeline.GapError], [pipeline.ErrUnavailable].
func (s *Source) Open(ctx context.Context, env *pipeline.Env, split pipeline.Split, from pipeline.Position) (pipeline.Reader[*pipeline.Block], error) {
	if env == nil {
		env = &pipeline.Env{}
	}
	partition, ok := partitionOf(s.opts.Name, split.Name)
	if !ok || from < 0 {
		return nil, fmt.Errorf("kafkasource: split %q at position %d is none of topic %q: %w", split.Name, from, s.opts.Topic, pipeline.ErrConfig)
	}
	m, err := recollect(split.Name, split.Memory)
	if err != nil {
		return nil, err
	}
	cl, err := newClient(&s.opts)
	if err != nil {
		return nil, err
	}
	f := &fetcher{
		cl: cl, opts: &s.opts, hooks: env.Observe(), source: cmp.Or(env.Source, "kafka"), split: split.Name, partition: partition,
		pos: int64(from), end: int64(split.End), lastTerm: -1, maxBytes: s.opts.MaxBytes,
		out: make(chan fetched), free: make(chan []byte, 2),
	}
	f.log = env.Log().With("source", f.source, "topic", s.opts.Topic, "partition", partition)
	f.patience = patience{limit: s.opts.RetryFor, log: env.Log().With("source", f.source, "topic", s.opts.Topic), outages: &s.outages, who: split.Name, partition: true}
	s.outages.opened()
	f.tail.Store(-1)
	f.cluster = m.Cluster
	s.mu.Lock()
	f.behind = s.mu.behind[partition]
	s.mu.Unlock()
	if f.id = idOf(m.Topic); f.id == (kafkawire.TopicID{}) {
		s.mu.Lock()
		f.id = s.mu.id
		s.mu.Unlock()
	}
	if err := s.check(ctx, f, split, m); err != nil {
		f.patience.leave(false)
		s.outages.closed()
		return nil, errors.Join(err, cl.Close())
	}
	return open(ctx, env, f, m), nil
}

// check compares a new reader's position with the log.
func (s *Source) check(ctx context.Context, f *fetcher, split pipeline.Split, m splitMemory) error {
	for missing := 0; ; {
		first, last, err := f.limits(ctx)
		if read := min(m.At, f.pos); err == nil && m.Term >= 0 && read > first {
			// What was read of the epoch, as far as it counts in the parameters, must still be there.
			var end int64
			if end, err = f.cl.epochEnd(ctx, f.partition, m.Term); err == nil && end >= 0 && end < read {
				return f.truncated(ctx, end)
			}
		}
		if err == nil {
			f.patience.answered()
			f.begin = first
			_, explicit := s.opts.Start.Offsets[int(f.partition)]
			if f.pos < first && f.pos == int64(split.Start) && (s.opts.Start.Place == Earliest || m.Added) && !explicit && !m.Exact {
				f.log.Warn("the oldest records went away before reading began", "offset", f.pos, "until", first)
				f.lost.Add(first - f.pos)
				if m.Added || m.Partitions > 0 && f.pos > 0 { // they were there when the split was first taken up
					f.hooks.RecordsLost(f.source, f.split, f.pos, first)
				}
				return nil
			}
			return f.judge(first, last)
		}
		if errors.Is(err, kafka.UnknownTopicOrPartition) {
			if missing++; missing > 3 {
				return f.name(fmt.Errorf("%w: %w", err, pipeline.ErrConfig))
			}
		}
		f.cl.Forget()
		if err := f.patience.after(ctx, err); err != nil {
			return f.name(err)
		}
	}
}

// Cluster asks the brokers for the identity of their cluster; empty: they report none. Errors: as those of [Source.Splits].
func (s *Source) Cluster(ctx context.Context) (id string, err error) {
	err = s.with(ctx, "cluster", s.opts.RetryFor, func(cl *client) error {
		all, err := cl.Layout(ctx, s.opts.Topic)
		if err == nil {
			id = all.ID
		}
		return err
	})
	return id, err
}

// Acknowledge implements [pipeline.Acknowledger]: it commits the positions to the group [Options.GroupID], without joining
// it, and does nothing when there is none. Positions of other topics are left out. A group belongs to a name, not to a topic:
// positions of a topic that was deleted and re-created would be taken for those of the new one, so none is committed then.
// Errors: a [*pipeline.GapError] for such a topic; [pipeline.ErrUnavailable]; [pipeline.ErrConfig] when access is denied or
// the group has active members.
func (s *Source) Acknowledge(ctx context.Context, stored map[string]pipeline.StoredSplit) error {
	if s.opts.GroupID == "" {
		return nil
	}
	offsets := make(map[int32]int64, len(stored))
	memories := make(map[string]splitMemory, len(stored))
	for name, is := range stored {
		// Parameters remember how far other topics were read before.
		p, ok := partitionOf(s.opts.Name, name)
		if !ok || is.Position < 0 {
			continue
		}
		m, err := recollect(name, is.Memory)
		if err != nil {
			return err
		}
		offsets[p], memories[name] = int64(is.Position), m
	}
	if len(offsets) == 0 {
		return nil
	}
	return s.with(ctx, "acknowledged positions", min(s.opts.RetryFor, asidePatience), func(cl *client) error {
		t, err := cl.Topic(ctx)
		if err != nil {
			return err
		}
		now := splitMemory{Cluster: cl.Cluster.ID, Topic: t.ID.String()}
		for _, name := range slices.Sorted(maps.Keys(memories)) {
			m := memories[name]
			m.At = int64(stored[name].Position)
			if err := m.same(s, pipeline.Split{Name: name}, now); err != nil {
				return err
			}
		}
		return cl.commit(ctx, s.opts.GroupID, t.ID, offsets)
	})
}
