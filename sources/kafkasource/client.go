package kafkasource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/pipeline"
)

// client speaks to the brokers of one cluster about one topic, each call once: whoever calls decides about repeating it.
// It is not for concurrent use and starts no goroutine.
type client struct {
	opts  *Options
	net   network
	conns map[string]*conn // by address
	// cluster is the last picture of the topic; nil: ask before the next use.
	cluster *cluster
}

func newClient(o *Options) (*client, error) {
	tc, err := o.TLS.config()
	if err != nil {
		return nil, err
	}
	m, err := o.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	return &client{opts: o, net: network{o.ClientID, o.Timeout, tc, m}, conns: map[string]*conn{}}, nil
}

func (c *client) close() error {
	var errs []error
	for _, cn := range c.conns {
		errs = append(errs, cn.close())
	}
	c.conns = map[string]*conn{}
	return errors.Join(errs...)
}

// forget drops what is known of the cluster after an error: the next use asks again.
func (c *client) forget() { c.cluster = nil }

// at returns the connection to an address.
func (c *client) at(ctx context.Context, addr string) (*conn, error) {
	if cn := c.conns[addr]; cn != nil {
		if !cn.broken {
			return cn, nil
		}
		_ = cn.close() // it broke, and that was reported
		delete(c.conns, addr)
	}
	cn, err := dial(ctx, c.net, addr)
	if err != nil {
		return nil, err
	}
	c.conns[addr] = cn
	return cn, nil
}

// anywhere returns a connection to any broker: first those that are open, then the others of the cluster as far as it is
// known, then those of the options.
func (c *client) anywhere(ctx context.Context) (*conn, error) {
	var addrs []string
	for addr, cn := range c.conns {
		if !cn.broken {
			addrs = append(addrs, addr)
		}
	}
	if c.cluster != nil {
		for _, addr := range c.cluster.brokers {
			addrs = append(addrs, addr)
		}
	}
	var faults []string
	var last error
	tried := map[string]bool{}
	for _, addr := range append(addrs, c.opts.Brokers...) {
		if tried[addr] {
			continue
		}
		tried[addr] = true
		cn, err := c.at(ctx, addr)
		if err == nil {
			return cn, nil
		}
		if !retryable(err) {
			return nil, err
		}
		faults, last = append(faults, err.Error()), err
	}
	if len(faults) == 1 {
		return nil, last
	}
	return nil, fmt.Errorf("no broker can be reached: %s", strings.Join(faults, "; "))
}

// layout returns what a broker knows of the topic, or of all topics when topic is empty.
func (c *client) layout(ctx context.Context, topic string) (*cluster, error) {
	cn, err := c.anywhere(ctx)
	if err != nil {
		return nil, err
	}
	have := cn.versions[apiMetadata]
	if v := min(have[1], metadataMaxForIDs); v >= max(have[0], metadataWithIDs) {
		b, err := cn.exchange(ctx, apiMetadata, v, true, encodeMetadata(topic, v), 0, nil, maxAnswer)
		if err != nil {
			return nil, err
		}
		return answer(decodeMetadata(b, v))(cn, apiMetadata)
	}
	b, err := cn.call(ctx, apiMetadata, metadataOld, encodeOldMetadata(topic))
	if err != nil {
		return nil, err
	}
	return answer(decodeOldMetadata(b))(cn, apiMetadata)
}

// topic returns what is known of the topic, asking a broker when nothing is. Errors: kafka.UnknownTopicOrPartition, and
// any other code a broker has for the topic.
func (c *client) topic(ctx context.Context) (*topicMeta, error) {
	if c.cluster == nil {
		l, err := c.layout(ctx, c.opts.Topic)
		if err != nil {
			return nil, err
		}
		c.cluster = l
	}
	t := c.cluster.topic(c.opts.Topic)
	switch {
	case t == nil:
		return nil, kafka.UnknownTopicOrPartition
	case t.err != 0:
		return nil, t.err
	}
	return t, nil
}

// leader returns a connection to the leader of a partition, and what is known of the partition.
func (c *client) leader(ctx context.Context, partition int32) (*conn, *partitionMeta, error) {
	t, err := c.topic(ctx)
	if err != nil {
		return nil, nil, err
	}
	p := t.partition(partition)
	if p == nil {
		return nil, nil, kafka.UnknownTopicOrPartition
	}
	addr, ok := c.cluster.brokers[p.leader]
	if !ok {
		return nil, nil, fmt.Errorf("partition %d has no leader: %w", partition, cmp.Or(p.err, kafka.LeaderNotAvailable))
	}
	cn, err := c.at(ctx, addr)
	return cn, p, err
}

// Timestamps that ListOffsets takes as names of places.
const (
	atLatest   = -1
	atEarliest = -2
)

// offsets asks for the earliest or latest offset of partitions; one request for each leader. The latest is the last
// stable one when committed is set, and otherwise the high watermark.
func (c *client) offsets(ctx context.Context, partitions []int32, at int64, committed bool) (map[int32]int64, error) {
	byLeader := map[*conn][]partitionTerm{}
	for _, p := range partitions {
		cn, meta, err := c.leader(ctx, p)
		if err != nil {
			return nil, err
		}
		byLeader[cn] = append(byLeader[cn], partitionTerm{p, meta.leaderTerm})
	}
	out := make(map[int32]int64, len(partitions))
	for cn, ps := range byLeader {
		version, err := cn.version(apiListOffsets, listOffsetsOld, listOffsetsWithTerm)
		if err != nil {
			return nil, err
		}
		b, err := cn.call(ctx, apiListOffsets, version, encodeListOffsets(c.opts.Topic, ps, at, committed, version))
		if err != nil {
			return nil, err
		}
		got, err := answer(decodeListOffsets(b, version))(cn, apiListOffsets)
		if err != nil {
			return nil, err
		}
		for _, p := range got {
			if p.err != 0 {
				return nil, fmt.Errorf("offsets of partition %d: %w", p.partition, p.err)
			}
			out[p.partition] = p.offset
		}
	}
	for _, p := range partitions {
		if at, ok := out[p]; !ok || at < 0 {
			return nil, fmt.Errorf("offsets of partition %d: %w: none", p, errWire)
		}
	}
	return out, nil
}

// limits returns the range of offsets [first, last) that the log of a partition has.
func (c *client) limits(ctx context.Context, partition int32) (first, last int64, err error) {
	a, err := c.offsets(ctx, []int32{partition}, atEarliest, false)
	if err != nil {
		return 0, 0, err
	}
	b, err := c.offsets(ctx, []int32{partition}, atLatest, false)
	return a[partition], b[partition], err
}

// compacted tells whether the topic's clean-up policy may take records out of the middle of the log.
func (c *client) compacted(ctx context.Context) (bool, error) {
	const policy = "cleanup.policy"
	cn, err := c.anywhere(ctx)
	if err != nil {
		return false, err
	}
	b, err := cn.call(ctx, apiDescribeConfigs, describeConfigsWhy, encodeTopicConfig(c.opts.Topic, policy))
	if err != nil {
		return false, err
	}
	value, code, err := decodeTopicConfig(b, policy)
	switch {
	case err != nil:
		return false, cn.malformed(apiDescribeConfigs, err)
	case code != 0:
		return false, fmt.Errorf("configuration of the topic: %w", code)
	}
	return strings.Contains(value, "compact"), nil
}

// epochEnd returns where the log of a partition has the end of a leader's epoch, or of the newest before it; -1 when the
// broker does not know or cannot be asked.
func (c *client) epochEnd(ctx context.Context, partition, epoch int32) (int64, error) {
	cn, meta, err := c.leader(ctx, partition)
	if err != nil {
		return -1, err
	}
	version, err := cn.version(apiEpochEnd, epochEndVersion)
	if err != nil {
		return -1, nil //nolint:nilerr // an older broker, which can only be trusted
	}
	b, err := cn.call(ctx, apiEpochEnd, version, encodeEpochEnd(c.opts.Topic, partitionTerm{partition, meta.leaderTerm}, epoch))
	if err != nil {
		return -1, err
	}
	got, err := answer(decodeEpochEnd(b))(cn, apiEpochEnd)
	if err != nil {
		return -1, err
	}
	for _, p := range got {
		switch {
		case p.partition != partition:
		case isDenied(p.err):
			return -1, nil
		case p.err != 0:
			return -1, fmt.Errorf("leader epochs of partition %d: %w", partition, p.err)
		default:
			return p.offset, nil
		}
	}
	return -1, nil
}

// commit stores offsets in a consumer group without being its member.
func (c *client) commit(ctx context.Context, group string, offsets map[int32]int64) error {
	cn, err := c.anywhere(ctx)
	if err != nil {
		return err
	}
	b, err := cn.call(ctx, apiFindCoordinator, findCoordinatorBy, encodeFindCoordinator(group))
	if err != nil {
		return err
	}
	addr, code, err := decodeFindCoordinator(b)
	switch {
	case code != 0:
		return fmt.Errorf("coordinator of group %q: %w", group, code)
	case err != nil:
		return cn.malformed(apiFindCoordinator, err)
	}
	if cn, err = c.at(ctx, addr); err != nil {
		return err
	}
	at := make([]partitionOffset, 0, len(offsets))
	for p, offset := range offsets {
		at = append(at, partitionOffset{partition: p, offset: offset})
	}
	slices.SortFunc(at, func(a, b partitionOffset) int { return cmp.Compare(a.partition, b.partition) })
	if b, err = cn.call(ctx, apiOffsetCommit, offsetCommitVersion, encodeOffsetCommit(group, c.opts.Topic, at)); err != nil {
		return err
	}
	got, err := answer(decodeOffsetCommit(b))(cn, apiOffsetCommit)
	if err != nil {
		return err
	}
	for _, p := range got {
		if p.err != 0 {
			return fmt.Errorf("offset of partition %d in group %q: %w", p.partition, group, p.err)
		}
	}
	return nil
}

// retryable tells whether an error may pass without anyone changing anything: everything the network does, and what
// Kafka calls retriable.
func retryable(err error) bool {
	var gap *pipeline.GapError
	if errors.As(err, &gap) || errors.Is(err, pipeline.ErrConfig) || errors.Is(err, pipeline.ErrBadData) || errors.Is(err, pipeline.ErrUnavailable) {
		return false
	}
	if code, ok := errors.AsType[kafka.Error](err); ok {
		switch code {
		case kafka.TopicAuthorizationFailed, kafka.GroupAuthorizationFailed, kafka.ClusterAuthorizationFailed,
			kafka.SASLAuthenticationFailed, kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState, kafka.SecurityDisabled,
			kafka.InvalidTopic, kafka.InvalidGroupId, kafka.UnsupportedVersion, kafka.InvalidRequest,
			kafka.UnknownMemberId, kafka.IllegalGeneration, kafka.FencedInstanceID, kafka.OffsetMetadataTooLarge:
			return false
		}
		// The rest passes by itself (no leader, an election, a disk that fails over), or is answered elsewhere.
		return true
	}
	return true
}
