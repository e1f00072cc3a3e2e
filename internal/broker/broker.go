// Package broker is a Kafka broker inside the process, for tests and for the demo: it speaks Kafka's protocol on a real
// port, keeps transactions, consumer groups, compaction and retention, and needs no Java. It is kfake of the franz-go
// project with the few operations a test of a reader wants.
//
// What is promised: clients of any language can connect; with [Options.Dir] what a clean Close or, with [Options.Sync], a
// killed process had acknowledged is there again after [Start] on the same folder. What is not: replication, quotas, and
// a production broker's throughput under many clients. Where kfake and Apache Kafka differ is noted at the tests that run
// against both.
package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Options describe a broker. The zero value is one broker in memory on a free port, without topics.
type Options struct {
	// Port of the first broker on 127.0.0.1, the others use free ones; 0: any free port.
	Port int
	// Brokers is their number; default 1.
	Brokers int
	// Topics to create when they do not exist, with their numbers of partitions.
	Topics map[string]int
	// Dir keeps topics, records and groups over restarts; empty: in memory.
	Dir string
	// Sync makes every write durable before it is acknowledged, so that nothing is lost when the process is killed.
	Sync bool
	// TLS encrypts connections; nil: plain text.
	TLS *tls.Config
	// Users may log in, as mechanism (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512), name and password; none: no authentication.
	Users []User
	// ClusterID is the cluster's identity. Default "monolith".
	ClusterID string
	// MaxVersions makes the broker speak like an older one; nil: the newest kfake knows.
	MaxVersions *kversion.Versions
	// Logger gets what kfake has to say from warnings up; nil: discard.
	Logger *slog.Logger
}

// User may log in.
type User struct{ Mechanism, Name, Password string }

// Broker is a running broker. Its methods may be called from several goroutines at once, but for Restart and Close.
type Broker struct {
	// Cluster gives access to faults, controls and all else kfake offers. Restart replaces it.
	Cluster *kfake.Cluster

	opts Options
	addr []string
}

// Start starts a broker. It is ready when Start returns. The caller calls Close.
func Start(opts Options) (*Broker, error) {
	b := &Broker{opts: opts}
	if err := b.start(); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Broker) start() error {
	o := b.opts
	n := max(o.Brokers, 1)
	ports := make([]int, n)
	ports[0] = o.Port
	kopts := []kfake.Opt{kfake.Ports(ports...), kfake.WithLogger(logger{o.Logger}), kfake.DefaultNumPartitions(1), kfake.ClusterID(cmp.Or(o.ClusterID, "monolith"))}
	if o.Dir != "" {
		kopts = append(kopts, kfake.DataDir(o.Dir))
	}
	if o.Sync {
		kopts = append(kopts, kfake.SyncWrites())
	}
	if o.MaxVersions != nil {
		kopts = append(kopts, kfake.MaxVersions(o.MaxVersions))
	}
	if o.TLS != nil {
		kopts = append(kopts, kfake.TLS(o.TLS))
	}
	if len(o.Users) > 0 {
		kopts = append(kopts, kfake.EnableSASL())
	}
	for _, u := range o.Users {
		kopts = append(kopts, kfake.Superuser(u.Mechanism, u.Name, u.Password))
	}
	c, err := kfake.NewCluster(kopts...)
	if err != nil {
		return fmt.Errorf("broker: start on port %d with folder %q: %w", o.Port, o.Dir, err)
	}
	b.Cluster, b.addr = c, c.ListenAddrs()
	for topic, partitions := range o.Topics {
		if c.TopicInfo(topic) != nil { // from an earlier run
			continue
		}
		if err := b.CreateTopic(topic, partitions, nil); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	return nil
}

// Addrs returns the brokers' addresses, host:port.
func (b *Broker) Addrs() []string { return b.addr }

// Close stops the broker and writes what it keeps to its folder. It may be called more than once.
func (b *Broker) Close() error {
	b.Cluster.Close()
	return nil
}

// Restart starts a closed broker again on the same port and folder. Several brokers get new ports but for the first.
func (b *Broker) Restart(ctx context.Context) error {
	_, port, err := net.SplitHostPort(b.addr[0])
	if err != nil {
		return fmt.Errorf("broker: restart: %w", err)
	}
	if _, err := fmt.Sscan(port, &b.opts.Port); err != nil {
		return fmt.Errorf("broker: restart: port %q: %w", port, err)
	}
	// The port may be in use for a moment more, by connections that are being closed.
	for {
		err := b.start()
		if err == nil || !strings.Contains(err.Error(), "address already in use") {
			return err
		}
		t := time.NewTimer(10 * time.Millisecond)
		select {
		case <-ctx.Done():
			t.Stop()
			return errors.Join(err, context.Cause(ctx))
		case <-t.C:
		}
	}
}

// CreateTopic creates a topic; configs are those of Kafka (cleanup.policy ...), nil: none.
func (b *Broker) CreateTopic(topic string, partitions int, configs map[string]string) error {
	if err := b.Cluster.CreateTopic(topic, int32(partitions), configs); err != nil {
		return fmt.Errorf("broker: create topic %q: %w", topic, err)
	}
	return nil
}

// AddPartitions makes a topic one of that many partitions.
func (b *Broker) AddPartitions(ctx context.Context, topic string, partitions int) error {
	c, err := NewClient(b.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	q := kmsg.NewPtrCreatePartitionsRequest()
	q.TimeoutMillis = 10_000
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = topic, int32(partitions)
	q.Topics = append(q.Topics, t)
	r, err := q.RequestWith(ctx, c)
	if err == nil {
		err = kerr.ErrorForCode(r.Topics[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("broker: partitions of topic %q: %w", topic, err)
	}
	return nil
}

// DeleteTopic deletes a topic with its records.
func (b *Broker) DeleteTopic(topic string) error {
	if err := b.Cluster.DeleteTopic(topic); err != nil {
		return fmt.Errorf("broker: delete topic %q: %w", topic, err)
	}
	return nil
}

// DeleteRecords moves the log's start to offset, as retention does in time.
func (b *Broker) DeleteRecords(topic string, partition int, offset int64) error {
	if err := b.Cluster.DeleteRecords(topic, int32(partition), offset); err != nil {
		return fmt.Errorf("broker: delete records of %s/%d before %d: %w", topic, partition, offset, err)
	}
	return nil
}

// logger hands kfake's lines on.
type logger struct{ to *slog.Logger }

// Logf implements kfake.Logger.
func (l logger) Logf(level kfake.LogLevel, format string, args ...any) {
	if l.to == nil || level > kfake.LogLevelWarn || level == kfake.LogLevelNone {
		return
	}
	l.to.Warn("embedded kafka broker", "detail", fmt.Sprintf(format, args...))
}

// NewClient returns a client of franz-go that produces to the partition each record names. The caller closes it.
func NewClient(addrs []string, opts ...kgo.Opt) (*kgo.Client, error) {
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
	}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("broker: client: %w", err)
	}
	return c, nil
}
