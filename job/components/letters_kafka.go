package components

import (
	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/sinks/kafkasink"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// KafkaLetters is a topic for bad records; the reason is in the message.
type KafkaLetters struct {
	// Brokers are host:port addresses to begin with.
	Brokers []string `yaml:"brokers" required:"true"`
	// Topic must exist.
	Topic string `yaml:"topic" required:"true"`
	// TLS encrypts the connections; absent: plain text.
	TLS *secure.TLS `yaml:"tls"`
	// SASL logs in; absent: no log-in.
	SASL *SASL `yaml:"sasl"`
}

// Open implements [component.DeadLetterConfig].
func (k *KafkaLetters) Open(string) (component.LetterBox, error) {
	sasl, err := saslOptions(k.SASL)
	if err != nil {
		return nil, err
	}
	tc, mechanism, err := kafkasource.Options{TLS: k.TLS, SASL: sasl}.Security()
	if err != nil {
		return nil, err
	}
	p, err := kafkasink.NewProducer(kafkasink.Options{Brokers: k.Brokers, Topic: k.Topic, TLS: tc, SASL: mechanism, Keys: "train.dead_letter.kafka."})
	if err != nil {
		return nil, err
	}
	return topicBox{kafkasink.NewDeadLetters(p), p}, nil
}

// CanOpen implements [component.DeadLetterConfig].
func (k *KafkaLetters) CanOpen(string) (key string, err error) {
	_, err = saslOptions(k.SASL)
	return "sasl", err
}

// Shared implements [component.DeadLetterConfig].
func (*KafkaLetters) Shared() (ok bool, key, hint string) { return true, "", "" }

// Topics implements [component.Topics].
func (k *KafkaLetters) Topics() []component.Topic {
	return writtenTopic(k.Brokers, k.Topic, k.TLS, k.SASL)
}

// Check implements [component.Checker].
func (k *KafkaLetters) Check(report component.Report) {
	checkBrokers(k.Brokers, report)
	checkTLS(k.TLS, report)
}

// topicBox publishes bad rows to a Kafka topic.
type topicBox struct {
	*kafkasink.DeadLetters
	p *kafkasink.Producer
}

// Close implements [io.Closer].
func (b topicBox) Close() error { return b.p.Close() }
