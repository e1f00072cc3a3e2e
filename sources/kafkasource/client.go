package kafkasource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/internal/kafkawire"
	"github.com/monolith-go/monolith/pipeline"
)

// client is a connection to the cluster of a topic with the requests that reading needs.
type client struct {
	*kafkawire.Client
	opts *Options
}

func newClient(o *Options) (*client, error) {
	tc, m, err := o.Security()
	if err != nil {
		return nil, err
	}
	n := kafkawire.Network{ClientID: o.ClientID, Timeout: o.Timeout, TLS: tc, SASL: m, Config: pipeline.ErrConfig, Keys: "source.kafka."}
	return &client{kafkawire.NewClient(n, o.Brokers, o.Topic), o}, nil
}

// offsets asks for the earliest or latest offset of partitions, or the first of a time in milliseconds or later, -1 where there is none;
// one request for each leader. The latest is the last stable one when committed is set, and otherwise the high watermark.
func (c *client) offsets(ctx context.Context, partitions []int32, at int64, committed bool) (map[int32]int64, error) {
	byLeader := map[*kafkawire.Conn][]kafkawire.PartitionTerm{}
	for _, p := range partitions {
		cn, meta, err := c.Leader(ctx, p)
		if err != nil {
			return nil, err
		}
		byLeader[cn] = append(byLeader[cn], kafkawire.PartitionTerm{Partition: p, Term: meta.LeaderTerm})
	}
	out := make(map[int32]int64, len(partitions))
	for cn, ps := range byLeader {
		version, err := cn.Version(kafkawire.ListOffsets, kafkawire.ListOffsetsOld, kafkawire.ListOffsetsWithTerm)
		if err != nil {
			return nil, err
		}
		b, err := cn.Call(ctx, kafkawire.ListOffsets, version, kafkawire.EncodeListOffsets(c.opts.Topic, ps, at, committed, version))
		if err != nil {
			return nil, err
		}
		got, err := kafkawire.Answer(kafkawire.DecodeListOffsets(b, version))(cn, kafkawire.ListOffsets)
		if err != nil {
			return nil, err
		}
		for _, p := range got {
			if p.Err != 0 {
				return nil, fmt.Errorf("offsets of partition %d: %w", p.Partition, p.Err)
			}
			out[p.Partition] = p.Offset
		}
	}
	for _, p := range partitions {
		if found, ok := out[p]; !ok || found < 0 && at < 0 {
			return nil, fmt.Errorf("offsets of partition %d: %w: none", p, kafkawire.ErrWire)
		}
	}
	return out, nil
}

// limits returns the range of offsets [first, last) that the log of a partition has.
func (c *client) limits(ctx context.Context, partition int32) (first, last int64, err error) {
	a, err := c.offsets(ctx, []int32{partition}, kafkawire.AtEarliest, false)
	if err != nil {
		return 0, 0, err
	}
	b, err := c.offsets(ctx, []int32{partition}, kafkawire.AtLatest, false)
	return a[partition], b[partition], err
}

// compacted reports whether the topic's clean-up policy may take records out of the middle of the log.
func (c *client) compacted(ctx context.Context) (bool, error) {
	const policy = "cleanup.policy"
	cn, err := c.Anywhere(ctx)
	if err != nil {
		return false, err
	}
	b, err := cn.Call(ctx, kafkawire.DescribeConfigs, describeConfigsWhy, encodeTopicConfig(c.opts.Topic, policy))
	if err != nil {
		return false, err
	}
	value, code, err := decodeTopicConfig(b, policy)
	switch {
	case err != nil:
		return false, cn.Malformed(kafkawire.DescribeConfigs, err)
	case code != 0:
		return false, fmt.Errorf("configuration of the topic: %w", code)
	}
	return strings.Contains(value, "compact"), nil
}

// epochEnd returns where the log of a partition has the end of a leader's epoch, or of the newest before it; -1 when the
// broker does not know or cannot be asked.
func (c *client) epochEnd(ctx context.Context, partition, epoch int32) (int64, error) {
	cn, meta, err := c.Leader(ctx, partition)
	if err != nil {
		return -1, err
	}
	version, err := cn.Version(kafkawire.EpochEnd, epochEndVersion)
	if err != nil {
		return -1, nil //nolint:nilerr // an older broker, which can only be trusted
	}
	b, err := cn.Call(ctx, kafkawire.EpochEnd, version, encodeEpochEnd(c.opts.Topic, kafkawire.PartitionTerm{Partition: partition, Term: meta.LeaderTerm}, epoch))
	if err != nil {
		return -1, err
	}
	got, err := kafkawire.Answer(decodeEpochEnd(b))(cn, kafkawire.EpochEnd)
	if err != nil {
		return -1, err
	}
	for _, p := range got {
		switch {
		case p.Partition != partition:
		case isDenied(p.Err):
			return -1, nil
		case p.Err != 0:
			return -1, fmt.Errorf("leader epochs of partition %d: %w", partition, p.Err)
		default:
			return p.Offset, nil
		}
	}
	return -1, nil
}

// commit stores offsets in a consumer group without being its member. Brokers from Kafka 4.1 on are told whose offsets these
// are by the topic's identity, so that a topic that is re-created at this moment does not get them.
func (c *client) commit(ctx context.Context, group string, id kafkawire.TopicID, offsets map[int32]int64) error {
	cn, err := c.Anywhere(ctx)
	if err != nil {
		return err
	}
	b, err := cn.Call(ctx, kafkawire.FindCoordinator, kafkawire.FindCoordinatorVersion, kafkawire.EncodeFindCoordinator(group, kafkawire.OfGroup))
	if err != nil {
		return err
	}
	addr, code, err := kafkawire.DecodeFindCoordinator(b)
	switch {
	case code != 0:
		return fmt.Errorf("coordinator of group %q: %w", group, code)
	case err != nil:
		return cn.Malformed(kafkawire.FindCoordinator, err)
	}
	if cn, err = c.At(ctx, addr); err != nil {
		return err
	}
	at := make([]kafkawire.PartitionOffset, 0, len(offsets))
	for p, offset := range offsets {
		at = append(at, kafkawire.PartitionOffset{Partition: p, Offset: offset})
	}
	slices.SortFunc(at, func(a, b kafkawire.PartitionOffset) int { return cmp.Compare(a.Partition, b.Partition) })
	version, err := cn.Version(kafkawire.OffsetCommit, offsetCommitVersion, offsetCommitWithID)
	if err != nil {
		return err
	}
	if id == (kafkawire.TopicID{}) {
		version = offsetCommitVersion
	}
	b, err = cn.Send(ctx, kafkawire.OffsetCommit, version, version >= offsetCommitWithID, encodeOffsetCommit(group, c.opts.Topic, id, at, version))
	if err != nil {
		return err
	}
	got, err := kafkawire.Answer(decodeOffsetCommit(b, version))(cn, kafkawire.OffsetCommit)
	if err != nil {
		return err
	}
	for _, p := range got {
		if p.Err != 0 {
			return fmt.Errorf("offset of partition %d in group %q: %w", p.Partition, group, p.Err)
		}
	}
	return nil
}

// retryable reports whether an error may pass without anyone changing anything: everything the network does, and what
// Kafka calls retriable.
func retryable(err error) bool {
	var gap *pipeline.GapError
	if errors.As(err, &gap) || errors.Is(err, pipeline.ErrConfig) || errors.Is(err, pipeline.ErrBadData) || errors.Is(err, pipeline.ErrUnavailable) {
		return false
	}
	if code, ok := errors.AsType[kafka.Error](err); ok {
		return kafkawire.Passes(code)
	}
	return true
}
