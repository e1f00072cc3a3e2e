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

	"github.com/monolith-go/monolith/internal/kafkawire"
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

// ProduceError describes which records were not acknowledged. Some of them may have been written all the same, when only the
// answer was lost.
type ProduceError struct {
	// Records are the indexes of the records without acknowledgement, ascending.
	Records []int
	// Err is the first cause. It wraps [pipeline.ErrUnavailable] when patience ran out, [pipeline.ErrConfig] when the
	// broker refuses for good.
	Err error
}

// Error describes how many records are concerned and why.
func (e *ProduceError) Error() string {
	return fmt.Sprintf("kafkasink: %d records not acknowledged, the first has index %d: %v", len(e.Records), e.Records[0], e.Err)
}

// Unwrap returns the cause.
func (e *ProduceError) Unwrap() error { return e.Err }

// Producer writes records to one topic. It is safe for concurrent use; the order of records of concurrent calls is
// undefined.
type Producer struct {
	opts Options
	turn atomic.Uint64 // for records without a key
	mu   struct {
		sync.Mutex

		idle       []*kafkawire.Client
		closed     bool
		partitions int       // of the topic, by the last answer
		told       time.Time // when; zero: never
	}
}

// Bounds on what a producer keeps.
const (
	maxLanes  = 16          // partitions that a call writes to side by side, and clients kept for the next ones
	layoutTTL = time.Second // how long the number of partitions is believed
)

// NewProducer describes a producer; it connects with the first call. The caller calls Close. Errors:
// [pipeline.ErrConfig], all faults of the options at once.
func NewProducer(opts Options) (*Producer, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return &Producer{opts: opts.WithDefaults()}, nil
}

// Close releases the producer's connections; those in use end with the calls that use them. It may be called more than
// once.
func (p *Producer) Close() error {
	p.mu.Lock()
	idle := p.mu.idle
	p.mu.idle, p.mu.closed = nil, true
	p.mu.Unlock()
	for _, cl := range idle {
		_ = cl.Close() // everything written is acknowledged
	}
	return nil
}

// take returns a client that nobody else uses until it is put back.
func (p *Producer) take() *kafkawire.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.mu.idle); n > 0 {
		cl := p.mu.idle[n-1]
		p.mu.idle = p.mu.idle[:n-1]
		return cl
	}
	return kafkawire.NewClient(p.opts.network(), p.opts.Brokers, p.opts.Topic)
}

func (p *Producer) put(cl *kafkawire.Client) {
	p.mu.Lock()
	keep := !p.mu.closed && len(p.mu.idle) < maxLanes
	if keep {
		p.mu.idle = append(p.mu.idle, cl)
	}
	p.mu.Unlock()
	if !keep {
		_ = cl.Close() // everything written is acknowledged
	}
}

// Partitions returns the number of the topic's partitions. Errors: [pipeline.ErrConfig] when there is no such topic,
// [pipeline.ErrUnavailable].
func (p *Producer) Partitions(ctx context.Context) (int, error) {
	p.mu.Lock()
	closed, n, told := p.mu.closed, p.mu.partitions, p.mu.told
	p.mu.Unlock()
	switch {
	case closed:
		return 0, fmt.Errorf("kafkasink: producer of %q: %w", p.opts.Topic, pipeline.ErrClosed)
	case !told.IsZero() && time.Since(told) < layoutTTL:
		return n, nil
	}
	missing := 0
	err := p.patiently(ctx, func(ctx context.Context, cl *kafkawire.Client) error {
		cl.Forget()
		t, err := cl.Topic(ctx)
		if errors.Is(err, kafka.UnknownTopicOrPartition) {
			// A broker may not know yet a topic that was just created.
			if missing++; missing > 6 {
				unknown, err := cl.UnknownTopic(ctx)
				if err != nil {
					return err
				}
				return fmt.Errorf("%s: create it, or name another in %stopic: %w", unknown, p.opts.Keys, pipeline.ErrConfig)
			}
		}
		if err != nil {
			return err
		}
		if n = len(t.Partitions); n == 0 {
			return fmt.Errorf("no partitions: %w", kafka.LeaderNotAvailable)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("kafkasink: topic %q: %w", p.opts.Topic, err)
	}
	p.mu.Lock()
	p.mu.partitions, p.mu.told = n, time.Now()
	p.mu.Unlock()
	return n, nil
}

// Produce writes records and returns when all replicas in sync have acknowledged each of them. Partitions are written to
// side by side, up to 16 at a time; within one the records keep their order, and after the first failure no more of them
// are sent. Their bytes are the caller's again when it returns. Errors: [*ProduceError]; [pipeline.ErrClosed].
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
	group.SetLimit(maxLanes)
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

// fits returns how many of the first records go into one request.
func (p *Producer) fits(records []Record, index []int) (n int) {
	for bytes := 0; n < len(index); n++ {
		r := &records[index[n]]
		size := len(r.Key) + len(r.Value)
		for _, h := range r.Headers {
			size += len(h.Key) + len(h.Value)
		}
		if bytes += size; n > 0 && bytes > p.opts.MaxBytes {
			break
		}
	}
	return n
}

// write sends one lane, a request after the other. It returns the indexes that were not acknowledged.
func (p *Producer) write(ctx context.Context, records []Record, l lane) ([]int, error) {
	for rest := l.index; len(rest) > 0; {
		n := p.fits(records, rest)
		err := p.patiently(ctx, func(ctx context.Context, cl *kafkawire.Client) error {
			return p.send(ctx, cl, records, rest[:n], int32(l.partition), producing{})
		})
		if err != nil {
			return rest, fmt.Errorf("topic %q partition %d: %w", p.opts.Topic, l.partition, err)
		}
		rest = rest[n:]
	}
	return nil, nil
}

// send writes records to a partition with one request.
func (p *Producer) send(ctx context.Context, cl *kafkawire.Client, records []Record, index []int, partition int32, by producing) error {
	codec := slices.Index(codecs, p.opts.Codec)
	cn, _, err := cl.Leader(ctx, partition)
	if err != nil {
		return err
	}
	versions := []int16{produceOld, produceZstd, produceWithErrors}
	if p.opts.Codec == "zstd" {
		versions = versions[1:]
	}
	version, err := cn.Version(kafkawire.Produce, versions...)
	if err != nil {
		return err
	}
	batch, err := encodeBatch(records, index, codec, time.Now(), by)
	if err != nil {
		return err
	}
	b, err := cn.Call(ctx, kafkawire.Produce, version, encodeProduce(by.txn, p.opts.Topic, partition, p.opts.Timeout, batch))
	if err != nil {
		return err
	}
	got, err := decodeProduce(b, version)
	if err != nil {
		return cn.Malformed(kafkawire.Produce, err)
	}
	for i := range got {
		if got[i].partition == partition {
			return tooLarge(got[i].fault(len(index)), len(index), len(batch))
		}
	}
	return cn.Malformed(kafkawire.Produce, fmt.Errorf("%w: no word of partition %d", kafkawire.ErrWire, partition))
}

// tooLarge says what to do about records that the topic does not take for their size; other errors stay as they are.
func tooLarge(err error, records, bytes int) error {
	if !errors.Is(err, kafka.MessageSizeTooLarge) && !errors.Is(err, kafka.RecordListTooLarge) {
		return err
	}
	return fmt.Errorf("%d record(s) in %d bytes: %w; raise the topic's max.message.bytes, or the brokers' message.max.bytes", records, bytes, err)
}

// patiently calls f until it succeeds, fails for good, or patience ends. The client is f's for that time; after an error it
// asks again where partitions are.
func (p *Producer) patiently(ctx context.Context, f func(context.Context, *kafkawire.Client) error) error {
	began := time.Now()
	cl := p.take()
	defer func() { p.put(cl) }()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		one, cancel := context.WithTimeout(ctx, p.opts.Timeout)
		err := f(one, cl)
		cancel()
		if err != nil {
			cl.Forget()
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, pipeline.ErrFenced):
			return err
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

// permanent reports whether trying again is of no use.
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
		kafka.InvalidReplicationFactor, kafka.InvalidConfiguration, kafka.TransactionalIDAuthorizationFailed,
		kafka.InvalidTransactionTimeout:
		return true
	}
	return false
}
