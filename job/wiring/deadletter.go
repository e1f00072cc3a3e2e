package wiring

import (
	"fmt"
	"io"
	"strings"

	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/deadletter"
	"github.com/monolith-go/monolith/sinks/kafkasink"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// LetterBox is a policy that keeps bad rows somewhere.
type LetterBox interface {
	pipeline.BadRowPolicy
	io.Closer
}

// OpenDeadLetter opens the place for bad rows of a worker.
func OpenDeadLetter(d *spec.DeadLetter, worker string) (LetterBox, error) {
	switch {
	case d == nil:
		return nil, fmt.Errorf("job: train.on_bad_row is dead_letter, but train.dead_letter does not say where to: %w", pipeline.ErrConfig)
	case d.File != nil:
		return deadletter.OpenFile(strings.ReplaceAll(d.File.Path, "{worker}", worker), deadletter.FileOptions{MaxBytes: int64(d.File.MaxBytes)})
	default:
		k := d.Kafka
		sasl, err := SASLOptions(k.SASL)
		if err != nil {
			return nil, err
		}
		tc, mechanism, err := kafkasource.Options{TLS: tlsOptions(k.TLS), SASL: sasl}.Security()
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
