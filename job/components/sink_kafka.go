package components

import (
	"context"
	"errors"
	"time"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/kafkasink"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// KafkaSink is a topic, whose records are JSON objects. Rows are written in transactions: consumers that read committed
// records see each once. The topic must not be compacted, and its retention must be longer than the job may rest.
type KafkaSink struct {
	// Brokers are host:port addresses to begin with.
	Brokers []string `yaml:"brokers" required:"true"`
	// Topic must exist. How far a split is its last row there says: examples behind it that gave none (held out, or left out as bad) are read again
	// by the next run, which writes nothing twice.
	Topic string `yaml:"topic" required:"true"`
	// CommitEvery is how long a row waits for its transaction at most.
	CommitEvery conf.Duration `yaml:"commit_every" min:"1ms"`
	// Compression is that of record batches.
	Compression string `yaml:"compression" enum:"zstd|lz4|snappy|gzip|none"`
	// TLS encrypts the connections; absent: plain text.
	TLS *secure.TLS `yaml:"tls"`
	// SASL logs in; absent: no log-in.
	SASL *SASL `yaml:"sasl"`
}

// Defaults implements [conf.Defaulted].
func (*KafkaSink) Defaults() map[string]string {
	o := kafkasink.Options{}.WithDefaults()
	return map[string]string{"commit_every": written(conf.Duration(o.CommitEvery)), "compression": kafkasink.SinkCodec}
}

// Sink implements [component.SinkConfig].
func (k *KafkaSink) Sink(w component.Writing) (component.OutputSink, error) {
	o, err := k.options()
	if err != nil {
		return nil, err
	}
	o.Output, o.Keys = w.Output, w.Keys
	if w.Part != "" {
		o.Output += "/" + w.Part
	}
	return outputOf(kafkasink.NewRows(o))
}

func (k *KafkaSink) options() (kafkasink.Options, error) {
	sasl, err := saslOptions(k.SASL)
	if err != nil {
		return kafkasink.Options{}, err
	}
	tc, mechanism, err := kafkasource.Options{TLS: k.TLS, SASL: sasl}.Security()
	return kafkasink.Options{
		Brokers: k.Brokers, Topic: k.Topic, Codec: k.Compression, CommitEvery: time.Duration(k.CommitEvery), TLS: tc, SASL: mechanism,
	}, err
}

// probeFor is how long CanOpen waits for brokers.
const probeFor = 3 * time.Second

// CanOpen implements [component.SinkConfig]: it asks the brokers for the topic.
func (k *KafkaSink) CanOpen() (key string, err error) {
	o, err := k.options()
	if err != nil {
		return "sasl", err
	}
	o.RetryFor, o.Timeout = probeFor, probeFor
	p, err := kafkasink.NewProducer(o)
	if err != nil {
		return "brokers", err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if _, err := p.Partitions(context.Background()); errors.Is(err, pipeline.ErrUnavailable) {
		return "brokers", err
	} else if err != nil {
		return "topic", err
	}
	return "", nil
}

// Topics implements [component.Topics].
func (k *KafkaSink) Topics() []component.Topic {
	return writtenTopic(k.Brokers, k.Topic, k.TLS, k.SASL)
}

// writtenTopic is a topic that a section writes.
func writtenTopic(brokers []string, topic string, tls *secure.TLS, sasl *SASL) []component.Topic {
	return []component.Topic{{
		Key: "topic", Brokers: brokers, Topic: topic, Written: true,
		Cluster: func(ctx context.Context) (string, error) {
			o := kafkasource.Options{Brokers: brokers, Topic: topic, TLS: tls}
			var err error
			if o.SASL, err = saslOptions(sasl); err != nil {
				return "", err
			}
			return clusterOf(ctx, o)
		},
	}}
}

// clusterOf asks brokers for their cluster, as long as a probe may take.
func clusterOf(ctx context.Context, o kafkasource.Options) (string, error) {
	o.RetryFor, o.Timeout = probeFor, probeFor
	s, err := kafkasource.New(o)
	if err != nil {
		return "", err
	}
	return s.Cluster(ctx)
}

// Place implements [component.SinkConfig].
func (*KafkaSink) Place() (key, place string) { return "", "" }

// Check implements [component.Checker].
func (k *KafkaSink) Check(report component.Report) {
	checkBrokers(k.Brokers, report)
	checkTLS(k.TLS, report)
}
