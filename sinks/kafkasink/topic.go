package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/pipeline"
)

// Topic describes a topic to create.
type Topic struct {
	// Partitions and Replication are how many; 0: what the brokers are configured for.
	Partitions, Replication int
	// Config are settings such as retention.ms or cleanup.policy.
	Config map[string]string
}

// CreateTopic creates the topic of the options and returns once all its partitions can be written to. Errors: one that
// wraps kafka.TopicAlreadyExists of kafka-go when it exists, other [pipeline.ErrConfig] when the brokers refuse,
// [pipeline.ErrUnavailable].
func CreateTopic(ctx context.Context, opts Options, topic Topic) (err error) {
	if topic.Partitions < 0 || topic.Replication < 0 {
		return fmt.Errorf("kafkasink: create topic %q: %d partitions, replication %d: %w", opts.Topic, topic.Partitions, topic.Replication, pipeline.ErrConfig)
	}
	p, err := NewProducer(opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	spec := kafka.TopicConfig{Topic: opts.Topic, NumPartitions: orUnset(topic.Partitions), ReplicationFactor: orUnset(topic.Replication)}
	for k, v := range topic.Config {
		spec.ConfigEntries = append(spec.ConfigEntries, kafka.ConfigEntry{ConfigName: k, ConfigValue: v})
	}
	slices.SortFunc(spec.ConfigEntries, func(a, b kafka.ConfigEntry) int { return strings.Compare(a.ConfigName, b.ConfigName) })
	tries := 0
	err = p.patiently(ctx, func(ctx context.Context) error {
		tries++
		r, err := p.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{spec}})
		if err != nil {
			return err
		}
		if err := r.Errors[opts.Topic]; tries == 1 || !errors.Is(err, kafka.TopicAlreadyExists) {
			return err
		}
		return nil // an earlier try, whose answer was lost, has created it
	})
	if err == nil {
		err = p.patiently(ctx, func(ctx context.Context) error { return p.led(ctx, max(topic.Partitions, 1)) })
	}
	if err != nil {
		return fmt.Errorf("kafkasink: create topic %q: %w", opts.Topic, err)
	}
	return nil
}

func orUnset(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// led returns nil when at least n partitions are known and all of them have leaders.
func (p *Producer) led(ctx context.Context, n int) error {
	r, err := p.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{p.opts.Topic}})
	if err != nil {
		return err
	}
	for _, t := range r.Topics {
		if t.Name != p.opts.Topic || t.Error != nil || len(t.Partitions) < n {
			continue
		}
		for _, part := range t.Partitions {
			if part.Error != nil || part.Leader.Host == "" {
				return fmt.Errorf("partition %d: %w", part.ID, kafka.LeaderNotAvailable)
			}
		}
		return nil
	}
	return kafka.LeaderNotAvailable
}
