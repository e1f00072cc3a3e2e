package kafkawire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/internal/nearest"
)

// Client speaks to the brokers of one cluster about one topic, each call once: the caller decides about retries.
// It is not for concurrent use and starts no goroutine.
type Client struct {
	// Cluster is the last picture of the topic; nil: ask before the next use.
	Cluster *Cluster

	net     Network
	brokers []string
	name    string
	conns   map[string]*Conn // by address
	from    string           // the address that has last said which brokers there are
}

// NewClient makes a client, which connects with the first call, to brokers first that are given as host:port.
func NewClient(n Network, brokers []string, topic string) *Client {
	return &Client{net: n, brokers: brokers, name: topic, conns: map[string]*Conn{}}
}

// Close ends all connections.
func (c *Client) Close() error {
	var errs []error
	for _, cn := range c.conns {
		errs = append(errs, cn.Close())
	}
	c.conns = map[string]*Conn{}
	return errors.Join(errs...)
}

// Forget drops what is known of the cluster after an error: the next use asks again.
func (c *Client) Forget() { c.Cluster = nil }

// At returns the connection to an address.
func (c *Client) At(ctx context.Context, addr string) (*Conn, error) {
	if cn := c.conns[addr]; cn != nil {
		if !cn.broken {
			return cn, nil
		}
		_ = cn.Close() // it broke, and that was reported
		delete(c.conns, addr)
	}
	cn, err := dial(ctx, c.net, addr)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" && c.from != "" && !slices.Contains(c.brokers, addr) {
		return nil, fmt.Errorf("%s answered, and says that a broker is at %s (its advertised.listeners), where none answers from here: %w", c.from, addr, err)
	}
	if err != nil {
		return nil, err
	}
	c.conns[addr] = cn
	return cn, nil
}

// Anywhere returns a connection to any broker: first those that are open, then the others of the cluster as far as it is
// known, then those the client was made with.
func (c *Client) Anywhere(ctx context.Context) (*Conn, error) {
	var addrs []string
	for addr, cn := range c.conns {
		if !cn.broken {
			addrs = append(addrs, addr)
		}
	}
	if c.Cluster != nil {
		for _, addr := range c.Cluster.Brokers {
			addrs = append(addrs, addr)
		}
	}
	var faults []string
	var last error
	tried := map[string]bool{}
	for _, addr := range append(addrs, c.brokers...) {
		if tried[addr] {
			continue
		}
		tried[addr] = true
		cn, err := c.At(ctx, addr)
		if err == nil {
			return cn, nil
		}
		if code, ok := errors.AsType[kafka.Error](err); errors.Is(err, c.net.Config) || ok && !Passes(code) {
			return nil, err
		}
		faults, last = append(faults, err.Error()), err
	}
	if len(faults) == 1 {
		return nil, last
	}
	return nil, fmt.Errorf("no broker can be reached: %s", strings.Join(faults, "; "))
}

// Layout returns what a broker knows of the topic, or of all topics when topic is empty.
func (c *Client) Layout(ctx context.Context, topic string) (*Cluster, error) {
	cn, err := c.Anywhere(ctx)
	if err != nil {
		return nil, err
	}
	c.from = cn.Addr()
	have := cn.versions[Metadata]
	if v := min(have[1], metadataMaxForIDs); v >= max(have[0], metadataWithIDs) {
		b, err := cn.Exchange(ctx, Metadata, v, true, encodeMetadata(topic, v), 0, nil, maxAnswer)
		if err != nil {
			return nil, err
		}
		return Answer(decodeMetadata(b, v))(cn, Metadata)
	}
	b, err := cn.Call(ctx, Metadata, metadataOld, encodeOldMetadata(topic))
	if err != nil {
		return nil, err
	}
	return Answer(decodeOldMetadata(b))(cn, Metadata)
}

// ask asks a broker when the cluster's metadata is not known.
func (c *Client) ask(ctx context.Context) error {
	if c.Cluster != nil {
		return nil
	}
	l, err := c.Layout(ctx, c.name)
	if err == nil {
		c.Cluster = l
	}
	return err
}

// Controller returns a connection to the broker that takes changes of topics.
func (c *Client) Controller(ctx context.Context) (*Conn, error) {
	if err := c.ask(ctx); err != nil {
		return nil, err
	}
	addr, ok := c.Cluster.Brokers[c.Cluster.Controller]
	if !ok {
		return c.Anywhere(ctx)
	}
	return c.At(ctx, addr)
}

// Topic returns what is known of the topic, asking a broker when nothing is. Errors: kafka.UnknownTopicOrPartition, and
// any other code a broker has for the topic.
func (c *Client) Topic(ctx context.Context) (*TopicMeta, error) {
	if err := c.ask(ctx); err != nil {
		return nil, err
	}
	t := c.Cluster.Topic(c.name)
	switch {
	case t == nil:
		return nil, kafka.UnknownTopicOrPartition
	case t.Err != 0:
		return nil, t.Err
	}
	return t, nil
}

// UnknownTopic says of the topic, which does not exist, which one is nearest to it, or which there are.
func (c *Client) UnknownTopic(ctx context.Context) (string, error) {
	all, err := c.Layout(ctx, "")
	if err != nil {
		return "", err
	}
	var names []string
	for _, t := range all.Topics {
		if !t.Internal && t.Err == 0 {
			names = append(names, t.Name)
		}
	}
	if len(names) == 0 {
		return "it does not exist, and the brokers show no other", nil
	}
	slices.Sort(names)
	if near := nearest.Name(c.name, names); near != "" {
		return fmt.Sprintf("it does not exist; did you mean %q?", near), nil
	}
	return fmt.Sprintf("it does not exist, nor any with a similar name (there are %q)", names[:min(len(names), 10)]), nil
}

// Leader returns a connection to the leader of a partition, and what is known of the partition.
func (c *Client) Leader(ctx context.Context, partition int32) (*Conn, *PartitionMeta, error) {
	t, err := c.Topic(ctx)
	if err != nil {
		return nil, nil, err
	}
	p := t.Partition(partition)
	if p == nil {
		return nil, nil, kafka.UnknownTopicOrPartition
	}
	addr, ok := c.Cluster.Brokers[p.Leader]
	if !ok {
		return nil, nil, fmt.Errorf("partition %d has no leader: %w", partition, cmp.Or(p.Err, kafka.LeaderNotAvailable))
	}
	cn, err := c.At(ctx, addr)
	return cn, p, err
}

// Passes reports whether what a code says may pass without anyone changing anything.
func Passes(code kafka.Error) bool {
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
