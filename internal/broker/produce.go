package broker

import (
	"context"
	"fmt"
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
	c, err := NewClient(addrs, kgo.ProducerBatchCompression(codec))
	if err != nil {
		return err
	}
	defer c.Close()
	size := how.Size
	if size == 0 {
		size = len(records)
	}
	for len(records) > 0 {
		n := min(size, len(records))
		if err := send(ctx, c, topic, partition, records[:n]); err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

func send(ctx context.Context, c *kgo.Client, topic string, partition int, records []Record) error {
	batch := make([]*kgo.Record, len(records))
	for i, r := range records {
		batch[i] = &kgo.Record{Topic: topic, Partition: int32(partition), Key: r.Key, Value: r.Value, Timestamp: r.Time}
	}
	if err := c.ProduceSync(ctx, batch...).FirstErr(); err != nil {
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
type Producer struct{ c *kgo.Client }

// NewProducer registers a transactional producer. An open transaction of an earlier one with the same id is aborted. The
// caller calls Close.
func NewProducer(addrs []string, id string) (*Producer, error) {
	c, err := NewClient(addrs, kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
	if err != nil {
		return nil, err
	}
	return &Producer{c}, nil
}

// Begin begins a transaction.
func (p *Producer) Begin() error {
	if err := p.c.BeginTransaction(); err != nil {
		return fmt.Errorf("broker: begin transaction: %w", err)
	}
	return nil
}

// Produce writes records within the transaction, as one record batch, and returns when all are acknowledged.
func (p *Producer) Produce(ctx context.Context, topic string, partition int, records ...Record) error {
	return send(ctx, p.c, topic, partition, records)
}

// End commits or aborts the transaction. A marker of one offset follows its records in every partition it wrote to.
func (p *Producer) End(ctx context.Context, commit bool) error {
	how := kgo.TryAbort
	if commit {
		how = kgo.TryCommit
	}
	if err := p.c.EndTransaction(ctx, how); err != nil {
		return fmt.Errorf("broker: end transaction: %w", err)
	}
	return nil
}

// Close ends the producer; an open transaction stays open until it times out.
func (p *Producer) Close() { p.c.Close() }
