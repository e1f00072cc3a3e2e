package kafkasink

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/pipeline"
)

// Sink writes the records of blocks to a topic: payload, key and time as far as the block has them, to the partition
// that the key chooses. It is safe for concurrent use.
type Sink struct{ opts Options }

var _ pipeline.Sink[*pipeline.Block] = (*Sink)(nil)

// New describes a sink. It opens nothing. Errors: [pipeline.ErrConfig], all faults of the options at once.
func New(opts Options) (*Sink, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return &Sink{opts}, nil
}

// String implements [pipeline.Sink].
func (s *Sink) String() string { return "kafka " + s.opts.Topic }

// Fingerprint implements [pipeline.Sink]: where the records go, not over which broker, how they travel and how long is
// tried.
func (s *Sink) Fingerprint() string {
	return pipeline.Fingerprint("kafka", s.opts, "Brokers", "ClientID", "Codec", "Keys", "MaxBytes", "RetryFor", "SASL", "TLS", "Timeout")
}

// Open implements [pipeline.Sink]. It makes sure that the topic exists. Errors: [pipeline.ErrConfig] when it does not,
// [pipeline.ErrUnavailable].
func (s *Sink) Open(ctx context.Context, _ *pipeline.Env) (pipeline.Writer[*pipeline.Block], error) {
	p, err := NewProducer(s.opts)
	if err != nil {
		return nil, err
	}
	if _, err := p.Partitions(ctx); err != nil {
		_ = p.Close() // never fails
		return nil, err
	}
	return &Writer{p: p}, nil
}

// Writer writes blocks. It is not for concurrent use.
type Writer struct {
	p       *Producer
	records []Record
}

var _ pipeline.Writer[*pipeline.Block] = (*Writer)(nil)

// Write implements [pipeline.Writer]: nil means that every record is acknowledged, so Flush has nothing to do. Errors:
// [*ProduceError] with the rows that are not.
func (w *Writer) Write(ctx context.Context, blk *pipeline.Block) error {
	defer blk.Release()
	payload := blk.Payload()
	keys, _ := blk.Column(pipeline.ColKey).(*array.Binary)
	times, _ := blk.Column(pipeline.ColTime).(*array.Int64)
	w.records = w.records[:0]
	for i := range blk.NumRows() {
		r := Record{Value: notNil(payload.Value(i)), Partition: ByKey}
		if keys != nil && keys.IsValid(i) {
			r.Key = notNil(keys.Value(i))
		}
		if times != nil && times.Value(i) != 0 {
			r.Time = time.UnixMicro(times.Value(i))
		}
		w.records = append(w.records, r)
	}
	if err := w.p.Produce(ctx, w.records...); err != nil {
		return fmt.Errorf("%s: %w", blk.Origin(), err)
	}
	return nil
}

// notNil makes an empty record of one without bytes: it is not null, which would be a tombstone.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Flush implements [pipeline.Writer].
func (w *Writer) Flush(context.Context) error { return nil }

// Close implements [pipeline.Writer].
func (w *Writer) Close() error { return w.p.Close() }
