package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/internal/kafkawire"
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
	var config []setting
	for k, v := range topic.Config {
		if len(k)+len(v) > math.MaxInt16 {
			return fmt.Errorf("kafkasink: create topic %q: the value of %.40q has %d bytes, more than fit into a request: %w", opts.Topic, k, len(v), pipeline.ErrConfig)
		}
		config = append(config, setting{k, v})
	}
	slices.SortFunc(config, func(a, b setting) int { return strings.Compare(a.key, b.key) })
	body := encodeCreateTopic(opts.Topic, orUnset(topic.Partitions), orUnset(topic.Replication), config, p.opts.Timeout)
	tries := 0
	err = p.patiently(ctx, func(ctx context.Context, cl *kafkawire.Client) error {
		tries++
		err := create(ctx, cl, opts.Topic, body)
		if tries > 1 && errors.Is(err, kafka.TopicAlreadyExists) {
			return nil // an earlier try, whose answer was lost, has created it
		}
		return err
	})
	if err == nil {
		err = p.patiently(ctx, func(ctx context.Context, cl *kafkawire.Client) error {
			return led(ctx, cl, max(topic.Partitions, 1))
		})
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

// create sends the body of a request for a topic to the controller, which alone creates topics where the cluster is old.
func create(ctx context.Context, cl *kafkawire.Client, topic string, body []byte) error {
	cn, err := cl.Controller(ctx)
	if err != nil {
		return err
	}
	version, err := cn.Version(kafkawire.CreateTopics, createTopicsOld, createTopicsUnset)
	if err != nil {
		return err
	}
	b, err := cn.Call(ctx, kafkawire.CreateTopics, version, body)
	if err != nil {
		return err
	}
	code, message, err := decodeCreateTopic(b, topic)
	switch {
	case err != nil:
		return cn.Malformed(kafkawire.CreateTopics, err)
	case code == 0:
		return nil
	case message != "":
		return fmt.Errorf("%w: %s", code, message)
	}
	return code
}

// led returns nil when at least n partitions are known and all of them have leaders.
func led(ctx context.Context, cl *kafkawire.Client, n int) error {
	cl.Forget()
	t, err := cl.Topic(ctx)
	if errors.Is(err, kafka.UnknownTopicOrPartition) || err == nil && len(t.Partitions) < n {
		return kafka.LeaderNotAvailable
	}
	if err != nil {
		return err
	}
	for _, part := range t.Partitions {
		if _, ok := cl.Cluster.Brokers[part.Leader]; !ok || part.Err != 0 {
			return fmt.Errorf("partition %d: %w", part.Partition, kafka.LeaderNotAvailable)
		}
	}
	return nil
}
