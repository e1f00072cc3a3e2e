package broker

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Record is one record to produce. A nil Key or Value is null in Kafka.
type Record struct {
	Key, Value []byte
	// Time is cut to milliseconds; zero: now.
	Time time.Time
}

// Values makes records of texts, without keys.
func Values(texts ...string) []Record {
	out := make([]Record, len(texts))
	for i, s := range texts {
		out[i].Value = []byte(s)
	}
	return out
}

// Batch is how [Produce] sends records.
type Batch struct {
	// Codec compresses: none, gzip, snappy, lz4 or zstd; empty: none.
	Codec string
	// Size is the number of records in a record batch; 0: as many as fit.
	Size int
}

// Produce writes records to a partition, in order and outside of transactions, and returns when all are acknowledged.
func Produce(ctx context.Context, addrs []string, topic string, partition int, how Batch, records ...Record) error {
	codec, err := codec(how.Codec)
	if err != nil {
		return err
	}
	s, err := newSender(addrs, kgo.ProducerBatchCompression(codec))
	if err != nil {
		return err
	}
	defer s.c.Close()
	size := how.Size
	if size == 0 {
		size = len(records)
	}
	for len(records) > 0 {
		n := min(size, len(records))
		if err := s.send(ctx, topic, partition, records[:n]); err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

// sender sends records as one record batch, or as many as they fit in: its client sends nothing before it is told to, and has the partitions of a topic before
// it is given records for them, since it may send the first of those alone that wait for that.
type sender struct {
	c     *kgo.Client
	known map[string]bool
}

func newSender(addrs []string, opts ...kgo.Opt) (*sender, error) {
	c, err := NewClient(addrs, append(opts, kgo.ManualFlushing(), kgo.MaxBufferedRecords(math.MaxInt32))...)
	if err != nil {
		return nil, err
	}
	return &sender{c, map[string]bool{}}, nil
}

func (s *sender) send(ctx context.Context, topic string, partition int, records []Record) error {
	if !s.known[topic] {
		// There is no such partition. The client finds that, or that there is no such topic, once it has asked for the topic.
		asked := make(chan struct{})
		s.c.Produce(ctx, &kgo.Record{Topic: topic, Partition: -1}, func(*kgo.Record, error) { close(asked) })
		<-asked
		s.known[topic] = true
	}
	var failed error
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, r := range records {
		wg.Add(1)
		s.c.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(partition), Key: r.Key, Value: r.Value, Timestamp: r.Time}, func(_ *kgo.Record, err error) {
			defer wg.Done()
			mu.Lock()
			defer mu.Unlock()
			failed = cmp.Or(failed, err)
		})
	}
	err := s.c.Flush(ctx)
	wg.Wait()
	if err = cmp.Or(failed, err); err != nil {
		return fmt.Errorf("broker: produce to %s/%d: %w", topic, partition, err)
	}
	return nil
}

func codec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "", "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.NoCompression(), fmt.Errorf("broker: codec %q is none of none, gzip, snappy, lz4, zstd", name)
}

// Producer writes within transactions, one at a time. It is not for concurrent use.
type Producer struct{ s *sender }

// NewProducer registers a transactional producer. An open transaction of an earlier one with the same id is aborted. The
// caller calls Close.
func NewProducer(addrs []string, id string) (*Producer, error) {
	s, err := newSender(addrs, kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
	if err != nil {
		return nil, err
	}
	return &Producer{s}, nil
}

// Begin begins a transaction.
func (p *Producer) Begin() error {
	if err := p.s.c.BeginTransaction(); err != nil {
		return fmt.Errorf("broker: begin transaction: %w", err)
	}
	return nil
}

// Produce writes records within the transaction, as one record batch, and returns when all are acknowledged.
func (p *Producer) Produce(ctx context.Context, topic string, partition int, records ...Record) error {
	return p.s.send(ctx, topic, partition, records)
}

// End commits or aborts the transaction. A marker of one offset follows its records in every partition it wrote to.
func (p *Producer) End(ctx context.Context, commit bool) error {
	how := kgo.TryAbort
	if commit {
		how = kgo.TryCommit
	}
	if err := p.s.c.EndTransaction(ctx, how); err != nil {
		return fmt.Errorf("broker: end transaction: %w", err)
	}
	return nil
}

// Close ends the producer; an open transaction stays open until it times out.
func (p *Producer) Close() { p.s.c.Close() }
