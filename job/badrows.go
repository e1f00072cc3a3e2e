package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/deadletter"
	"github.com/monolith-go/monolith/sinks/kafkasink"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// badRows is a job's policy for records that cannot be used, with counts by reason.
type badRows struct {
	policy pipeline.BadRowPolicy
	skip   *pipeline.SkipBadRows
	closer io.Closer
	guard  *badGuard
}

// badRows makes the policy of train.on_bad_row.
func (c *Config) badRows(worker string, log *slog.Logger) (*badRows, error) {
	b := &badRows{skip: &pipeline.SkipBadRows{}}
	b.guard = &badGuard{next: b.skip, count: b.skip, share: c.Train.MaxBadShare, format: c.Parse.Format, log: log, now: time.Now, blocks: map[[2]string]int64{}}
	switch c.Train.OnBadRow {
	case "skip":
		b.policy = b.guard
	case "dead_letter":
		target, err := c.Train.DeadLetter.open(worker)
		if err != nil {
			return nil, err
		}
		b.guard.next = &countedPolicy{b.skip, target}
		b.policy, b.closer = b.guard, target
	default:
		b.policy = pipeline.FailOnBadRow{}
	}
	return b, nil
}

func (b *badRows) counts() map[string]int64 { return b.skip.Counts() }

// flush makes the dead letters so far durable; it is called before positions behind them are stored.
func (b *badRows) flush() error {
	if f, ok := b.closer.(interface{ Flush() error }); ok {
		return f.Flush()
	}
	return nil
}

func (b *badRows) close() error {
	if b.closer == nil {
		return nil
	}
	return b.closer.Close()
}

// countedPolicy counts what another policy takes.
type countedPolicy struct {
	count *pipeline.SkipBadRows
	next  pipeline.BadRowPolicy
}

// BadRow implements [pipeline.BadRowPolicy].
func (c *countedPolicy) BadRow(ctx context.Context, err *pipeline.DataError, payload []byte) error {
	return errors.Join(c.count.BadRow(ctx, err, payload), c.next.BadRow(ctx, err, payload))
}

// letterBox is a policy that keeps bad rows somewhere.
type letterBox interface {
	pipeline.BadRowPolicy
	io.Closer
}

func (d *DeadLetter) open(worker string) (letterBox, error) {
	switch {
	case d == nil:
		return nil, fmt.Errorf("job: train.on_bad_row is dead_letter, but train.dead_letter does not say where to: %w", pipeline.ErrConfig)
	case d.File != nil:
		return deadletter.OpenFile(strings.ReplaceAll(d.File.Path, "{worker}", worker), deadletter.FileOptions{MaxBytes: int64(d.File.MaxBytes)})
	default:
		k := d.Kafka
		sasl, err := k.SASL.options()
		if err != nil {
			return nil, err
		}
		tc, mechanism, err := kafkasource.Options{TLS: k.TLS.options(), SASL: sasl}.Security()
		if err != nil {
			return nil, err
		}
		p, err := kafkasink.NewProducer(kafkasink.Options{Brokers: k.Brokers, Topic: k.Topic, TLS: tc, SASL: mechanism, Keys: "train.dead_letter.kafka."})
		if err != nil {
			return nil, err
		}
		return topicBox{kafkasink.NewDeadLetters(p), p}, nil
	}
}

// topicBox publishes bad rows to a Kafka topic.
type topicBox struct {
	*kafkasink.DeadLetters
	p *kafkasink.Producer
}

// Close implements [io.Closer].
func (b topicBox) Close() error { return b.p.Close() }
