package kafkasink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/pipeline"
)

// ByKey as a record's partition leaves the choice to the key: murmur2(key) mod the number of partitions, as the Java
// clients choose. Records without a key take turns.
const ByKey = -1

// Record is one record to write.
type Record struct {
	// Key and Value are the record; nil is null.
	Key, Value []byte
	// Time is the record's time, cut to milliseconds; zero: now.
	Time time.Time
	// Partition is the one to write to, or [ByKey].
	Partition int
	// Headers go with the record.
	Headers []Header
}

// Header is a named value beside a record.
type Header struct {
	Key   string
	Value []byte
}

// ProduceError says which records were not acknowledged. Some of them may have been written all the same, when only the
// answer was lost.
type ProduceError struct {
	// Records are the indexes of the records without acknowledgement, ascending.
	Records []int
	// Err is the first cause. It wraps [pipeline.ErrUnavailable] when patience ran out, [pipeline.ErrConfig] when the
	// broker refuses for good.
	Err error
}

// Error says how many records are concerned and why.
func (e *ProduceError) Error() string {
	return fmt.Sprintf("kafkasink: %d records not acknowledged, the first has index %d: %v", len(e.Records), e.Records[0], e.Err)
}

// Unwrap returns the cause.
func (e *ProduceError) Unwrap() error { return e.Err }

// Producer writes records to one topic. It is safe for concurrent use; the order of records of concurrent calls is
// undefined.
type Producer struct {
	opts   Options
	client *kafka.Client
	own    *kafka.Transport // nil when the caller brought one
	turn   atomic.Uint64    // for records without a key
	closed atomic.Bool
}

// NewProducer describes a producer; it connects with the first call. The caller calls Close. Errors:
// [pipeline.ErrConfig], all faults of the options at once.
func NewProducer(opts Options) (*Producer, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	p := &Producer{opts: opts.withDefaults()}
	p.client, p.own = p.opts.client()
	return p, nil
}

// Close gives up the producer's connections, unless the transport is the caller's. It may be called more than once.
func (p *Producer) Close() error {
	if !p.closed.Swap(true) && p.own != nil {
		p.own.CloseIdleConnections()
	}
	return nil
}

// Partitions returns the number of the topic's partitions. Errors: [pipeline.ErrConfig] when there is no such topic,
// [pipeline.ErrUnavailable].
func (p *Producer) Partitions(ctx context.Context) (int, error) {
	if p.closed.Load() {
		return 0, fmt.Errorf("kafkasink: producer of %q: %w", p.opts.Topic, pipeline.ErrClosed)
	}
	n, missing := 0, 0
	err := p.patiently(ctx, func(ctx context.Context) error {
		r, err := p.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{p.opts.Topic}})
		if err != nil {
			return err
		}
		for _, t := range r.Topics {
			if t.Name == p.opts.Topic && t.Error == nil {
				n = len(t.Partitions)
				return nil
			}
			err = cmp.Or(err, t.Error)
		}
		err = cmp.Or[error](err, kafka.UnknownTopicOrPartition)
		// The transport's picture of the cluster may be from before the topic was created.
		if errors.Is(err, kafka.UnknownTopicOrPartition) {
			if missing++; missing > 6 {
				return fmt.Errorf("%w: %w", err, pipeline.ErrConfig)
			}
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("kafkasink: topic %q: %w", p.opts.Topic, err)
	}
	return n, nil
}

// Produce writes records and returns when all replicas in sync have acknowledged each of them. Partitions are written to
// side by side, up to 16 at a time; within one the records keep their order, and after the first failure no more of them
// are sent. Their bytes belong to the producer until it returns nil; after an error they must not be changed any more, as a
// request that was given up may still be on its way. Errors: [*ProduceError]; [pipeline.ErrClosed].
func (p *Producer) Produce(ctx context.Context, records ...Record) error {
	if len(records) == 0 {
		return nil
	}
	n, err := p.Partitions(ctx)
	if err != nil {
		all := make([]int, len(records))
		for i := range all {
			all[i] = i
		}
		if errors.Is(err, pipeline.ErrClosed) {
			return err
		}
		return &ProduceError{all, err}
	}
	lanes, failed := p.lanes(records, n)
	var group errgroup.Group
	group.SetLimit(16)
	for _, l := range lanes {
		group.Go(func() error {
			failed.add(p.write(ctx, records, l))
			return nil
		})
	}
	_ = group.Wait() // the lanes report what failed themselves
	return failed.result()
}

// lane is what goes to one partition.
type lane struct {
	partition int
	index     []int
}

// failures collects what was not acknowledged.
type failures struct {
	mu    sync.Mutex
	index []int
	err   error
}

func (f *failures) add(index []int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index = append(f.index, index...)
	f.err = cmp.Or(f.err, err)
}

func (f *failures) result() error {
	if f.err == nil {
		return nil
	}
	slices.Sort(f.index)
	return &ProduceError{f.index, f.err}
}

// lanes deals records among n partitions.
func (p *Producer) lanes(records []Record, n int) ([]lane, *failures) {
	byPartition := make(map[int]int, n)
	var out []lane
	var failed failures
	for i := range records {
		part := records[i].Partition
		if part == ByKey {
			part = p.choose(records[i].Key, n)
		}
		if part < 0 || part >= n {
			failed.add([]int{i}, fmt.Errorf("topic %q has no partition %d, only 0 to %d: %w", p.opts.Topic, part, n-1, pipeline.ErrConfig))
			continue
		}
		at, ok := byPartition[part]
		if !ok {
			at = len(out)
			byPartition[part] = at
			out = append(out, lane{partition: part})
		}
		out[at].index = append(out[at].index, i)
	}
	return out, &failed
}

func (p *Producer) choose(key []byte, n int) int {
	if key == nil {
		return int(p.turn.Add(1) % uint64(n))
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return kafka.Murmur2Balancer{}.Balance(kafka.Message{Key: key}, all...)
}

// write sends one lane, a request after the other. It returns the indexes that were not acknowledged.
func (p *Producer) write(ctx context.Context, records []Record, l lane) ([]int, error) {
	for rest := l.index; len(rest) > 0; {
		n, bytes := 0, 0
		for n < len(rest) {
			size := len(records[rest[n]].Key) + len(records[rest[n]].Value)
			if n > 0 && bytes+size > p.opts.MaxBytes {
				break
			}
			bytes += size
			n++
		}
		err := p.patiently(ctx, func(ctx context.Context) error { return p.send(ctx, records, rest[:n], l.partition) })
		if err != nil {
			return rest, fmt.Errorf("topic %q partition %d: %w", p.opts.Topic, l.partition, err)
		}
		rest = rest[n:]
	}
	return nil, nil
}

func (p *Producer) send(ctx context.Context, records []Record, index []int, partition int) error {
	batch := make([]kafka.Record, len(index))
	for i, at := range index {
		r := &records[at]
		k := kafka.Record{Time: cmp.Or(r.Time, time.Now()), Key: null(r.Key), Value: null(r.Value)}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		batch[i] = k
	}
	r, err := p.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: p.opts.Topic, Partition: partition, RequiredAcks: kafka.RequireAll,
		Compression: kafka.Compression(slices.Index(codecs, p.opts.Codec)), Records: kafka.NewRecordReader(batch...),
	})
	if err != nil {
		return err
	}
	for i, err := range r.RecordErrors {
		return fmt.Errorf("record %d of %d: %w: %w", i, len(index), err, cmp.Or(r.Error, pipeline.ErrConfig))
	}
	return r.Error
}

func null(b []byte) kafka.Bytes {
	if b == nil {
		return nil
	}
	return kafka.NewBytes(b)
}

// patiently calls f until it succeeds, fails for good, or patience ends.
func (p *Producer) patiently(ctx context.Context, f func(context.Context) error) error {
	began := time.Now()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		one, cancel := context.WithTimeout(ctx, p.opts.Timeout)
		err := f(one)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case permanent(err):
			if errors.Is(err, pipeline.ErrConfig) {
				return err
			}
			return fmt.Errorf("%w: %w", err, pipeline.ErrConfig)
		}
		wait := pause/2 + rand.N(pause/2) // jitter, so that many producers do not return at once
		if lasted := time.Since(began); lasted+wait > p.opts.RetryFor {
			return fmt.Errorf("brokers %v: %w; gave up after %s: %w", p.opts.Brokers, err, lasted.Round(time.Millisecond), pipeline.ErrUnavailable)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

// permanent tells whether trying again is of no use.
func permanent(err error) bool {
	if errors.Is(err, pipeline.ErrConfig) {
		return true
	}
	var code kafka.Error
	if !errors.As(err, &code) {
		return false // the network
	}
	switch code {
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidRecord, kafka.InvalidTimestamp, kafka.InvalidTopic,
		kafka.InvalidRequiredAcks, kafka.UnsupportedForMessageFormat, kafka.UnsupportedCompressionType, kafka.UnsupportedVersion,
		kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed, kafka.SASLAuthenticationFailed,
		kafka.UnsupportedSASLMechanism, kafka.PolicyViolation, kafka.TopicAlreadyExists, kafka.InvalidPartitionNumber,
		kafka.InvalidReplicationFactor, kafka.InvalidConfiguration:
		return true
	}
	return false
}
