package components

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// Kafka reads a Kafka topic. Where to continue is stored with the parameters, not in the consumer group.
type Kafka struct {
	// Brokers are host:port addresses to begin with; the others are learnt from them.
	Brokers []string `yaml:"brokers" required:"true"`
	// Topic is the topic to read.
	Topic string `yaml:"topic" required:"true"`
	// Name is what positions are stored under; empty: the topic. Under a new name the topic is read from start on, with the
	// parameters as they are: for a topic that was deleted and made again, or moved to another cluster.
	Name string `yaml:"name" default:""`
	// Start is where a partition without a stored position begins: earliest, latest, a time, or {partition: offset}. A time
	// is 2026-11-28, 2026-11-28T06:30:00Z or milliseconds since 1970; reading begins with the first record of that time or a
	// later one, or at the end where there is none. The place is stored when it is first looked up, so restarts before the
	// first snapshot lose nothing. A partition that is added later begins with its first record.
	Start KafkaOffsets `yaml:"start" default:"earliest" enum:"earliest|latest"`
	// End is where reading ends: empty for never, latest for the end as it is at the start, a time (as in start: in front of the
	// first record of that time or a later one), or {partition: offset}. A source with an end is bounded. Under
	// read_committed, latest lies in front of a transaction that is open.
	End KafkaOffsets `yaml:"end" default:"" enum:"latest"`
	// Isolation is read_committed to leave out what transactions have not committed, or read_uncommitted.
	Isolation string `yaml:"isolation" enum:"read_committed|read_uncommitted"`
	// OnGap chooses what happens when stored positions lie outside the log: fail, or skip (counted and logged).
	OnGap string `yaml:"on_gap" enum:"fail|skip"`
	// GroupID is a consumer group to which the positions of each snapshot are committed, for lag tools. It is never read.
	GroupID string `yaml:"group_id" default:""`
	// ClientID names this client in the broker's logs and quotas.
	ClientID string `yaml:"client_id"`
	// MaxWait is how long a fetch waits for data at the broker.
	MaxWait conf.Duration `yaml:"max_wait" above:"0"`
	// MaxBytes is the size of a fetch response. The larger, the fewer round trips and the more memory.
	MaxBytes conf.Size `yaml:"max_bytes" min:"1024" max:"1073741824"`
	// MaxBatchBytes is the size above which one record batch, compressed or not, is a bad row. At least max_bytes.
	MaxBatchBytes conf.Size `yaml:"max_batch_bytes" min:"1024" max:"1073741824"`
	// MaxRows is the number of records of a block.
	MaxRows int `yaml:"max_rows" min:"1"`
	// DiscoverEvery is how often to look for partitions that are added to a topic that is read without an end.
	DiscoverEvery conf.Duration `yaml:"discover_every" min:"1ms"`
	// RetryFor is how long an unreachable broker is tried before the run ends with exit code 3.
	RetryFor conf.Duration `yaml:"retry_for" min:"0"`
	// TLS encrypts the connections; absent: plain text.
	TLS *secure.TLS `yaml:"tls"`
	// SASL logs in; absent: no log-in.
	SASL *SASL `yaml:"sasl"`
}

// Defaults implements [conf.Defaulted].
func (*Kafka) Defaults() map[string]string {
	o := kafkasource.Options{}.WithDefaults()
	return map[string]string{
		"isolation": written(o.Isolation), "on_gap": written(o.OnGap), "client_id": o.ClientID, "max_wait": written(conf.Duration(o.MaxWait)),
		"max_bytes": written(size(o.MaxBytes)), "max_batch_bytes": written(size(o.MaxBatchBytes)), "max_rows": written(o.MaxRows),
		"discover_every": written(conf.Duration(o.DiscoverEvery)), "retry_for": written(conf.Duration(o.RetryFor)),
	}
}

// Begins implements [component.Beginning].
func (k *Kafka) Begins() (where, not string) {
	if k.GroupID != "" {
		not = fmt.Sprintf("offsets of group %s are not read", k.GroupID)
	}
	return "at " + k.Start.String(), not
}

// KafkaOffsets is a place in every partition of a topic: a word for all of them, or an offset for each.
type KafkaOffsets struct {
	// At is "earliest", "latest" or empty.
	At string
	// Partitions holds an offset for each partition; nil when At says it.
	Partitions map[int32]int64
	// Time, if not zero, is the place in all partitions.
	Time time.Time
}

// IsZero reports whether no place is named.
func (o KafkaOffsets) IsZero() bool { return o.At == "" && o.Partitions == nil && o.Time.IsZero() }

// String renders the word, the time, or {0: 12, 1: 40}.
func (o KafkaOffsets) String() string {
	if !o.Time.IsZero() {
		return o.Time.UTC().Format(time.RFC3339Nano)
	}
	if o.Partitions == nil {
		return o.At
	}
	parts := make([]string, 0, len(o.Partitions))
	for _, p := range slices.Sorted(maps.Keys(o.Partitions)) {
		parts = append(parts, fmt.Sprintf("%d: %d", p, o.Partitions[p]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// Word implements [conf.Word].
func (o KafkaOffsets) Word() string { return o.At }

// Written implements [conf.Described].
func (o KafkaOffsets) Written() string { return "word, time or {partition: offset}" }

// DecodeNode implements [conf.Custom].
func (o *KafkaOffsets) DecodeNode(n *conf.Node, report func(at conf.Where, below, message string)) {
	if word, ok := n.Text(); ok {
		if at, err := timeOf(word); err != nil {
			report(n.At(), "", err.Error())
		} else if o.Time = at; at.IsZero() {
			o.At = word
		}
		return
	}
	pairs, ok := n.Pairs()
	if !ok {
		report(n.At(), "", fmt.Sprintf("wants a word, a time or {partition: offset}, not %s", n.Describe()))
		return
	}
	o.Partitions = make(map[int32]int64, len(pairs))
	for _, e := range pairs {
		p, err := strconv.ParseInt(e.Key, 10, 32)
		if err != nil || p < 0 {
			report(e.At, "", fmt.Sprintf("%q is not a partition number", e.Key))
			continue
		}
		text, ok := e.Value.Text()
		off, err := strconv.ParseInt(text, 10, 64)
		if err != nil || off < 0 || !ok {
			report(e.Value.At(), e.Key, fmt.Sprintf("%s is not an offset from 0 up", e.Value.Describe()))
			continue
		}
		o.Partitions[int32(p)] = off
	}
}

// timeOf reads a time; zero for a word. Errors: digits that are no milliseconds of our age, and what begins like a time.
func timeOf(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02T15", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	const firstDay, lastDay = 100_000_000_000, 10_000_000_000_000 // 1973 and 2286
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err == nil && n >= firstDay && n < lastDay:
		return time.UnixMilli(n).UTC(), nil
	case err == nil && n >= firstDay/1000 && n < lastDay/1000:
		return time.Time{}, fmt.Errorf("is %d: as a time in seconds it is %s; write that, or %d000, as milliseconds", n, time.Unix(n, 0).UTC().Format(time.RFC3339), n)
	case err == nil && n >= firstDay*1000 && n < lastDay*1000:
		return time.Time{}, fmt.Errorf("is %d: as a time in microseconds it is %s; write that, or %d, as milliseconds", n, time.UnixMicro(n).UTC().Format(time.RFC3339Nano), n/1000)
	case err == nil && n >= firstDay*1_000_000: // of the years up to 2262
		return time.Time{}, fmt.Errorf("is %d: as a time in nanoseconds it is %s; write that, or %d, as milliseconds", n, time.Unix(0, n).UTC().Format(time.RFC3339Nano), n/1_000_000)
	case err == nil:
		return time.Time{}, fmt.Errorf("is %d, no time in milliseconds since 1970; an offset is written with its partition, such as {0: %d}", n, n)
	case text != "" && text[0] >= '0' && text[0] <= '9':
		return time.Time{}, fmt.Errorf("is %q, no time such as 2026-11-28, 2026-11-28T06:30:00Z or 1795824000000 (milliseconds)", text)
	}
	return time.Time{}, nil
}

func bound(o KafkaOffsets) kafkasource.Bound {
	b := kafkasource.Bound{Place: kafkasource.Place(o.At), Time: o.Time}
	if o.Partitions != nil {
		b.Offsets = make(map[int]int64, len(o.Partitions))
		for p, at := range o.Partitions {
			b.Offsets[int(p)] = at
		}
	}
	return b
}

// OpenBlocks implements [component.Blocks]. Secrets are read here, which is the only I/O.
func (k *Kafka) OpenBlocks(o component.Opening) (pipeline.Source[*pipeline.Block], error) {
	opts, err := k.options()
	if err != nil {
		return nil, err
	}
	opts.Logger = o.Log
	return kafkasource.New(opts)
}

func (k *Kafka) options() (kafkasource.Options, error) {
	opts := kafkasource.Options{
		Brokers: k.Brokers, Topic: k.Topic, Name: k.Name, DiscoverEvery: time.Duration(k.DiscoverEvery), Start: bound(k.Start), End: bound(k.End),
		Isolation: kafkasource.Isolation(k.Isolation), OnGap: kafkasource.GapPolicy(k.OnGap), GroupID: k.GroupID, ClientID: k.ClientID,
		MaxWait: time.Duration(k.MaxWait), MaxBytes: int(k.MaxBytes), MaxBatchBytes: int(k.MaxBatchBytes), MaxRows: k.MaxRows,
		RetryFor: max(time.Duration(k.RetryFor), time.Millisecond),
		TLS:      k.TLS,
	}
	var err error
	opts.SASL, err = saslOptions(k.SASL)
	return opts, err
}

// Formats implements [component.SourceConfig].
func (*Kafka) Formats() []string { return []string{"tf_example", "libfm", "csv", "tsv", "jsonl"} }

// UsualFormat implements [component.SourceConfig].
func (*Kafka) UsualFormat() string { return "" }

// Bounded implements [component.SourceConfig].
func (k *Kafka) Bounded() bool { return !k.End.IsZero() }

// StreamName implements [component.Stream].
func (k *Kafka) StreamName() string { return cmp.Or(k.Name, k.Topic) }

// Topics implements [component.Topics].
func (k *Kafka) Topics() []component.Topic {
	return []component.Topic{{
		Key: "topic", Brokers: k.Brokers, Topic: k.Topic,
		Cluster: func(ctx context.Context) (string, error) {
			o, err := k.options()
			if err != nil {
				return "", err
			}
			return clusterOf(ctx, o)
		},
	}}
}

// WithoutEnd implements [component.Endless].
func (k *Kafka) WithoutEnd() component.SourceConfig {
	on := *k
	on.End = KafkaOffsets{}
	return &on
}

// Check implements [component.Checker].
func (k *Kafka) Check(report component.Report) {
	checkBrokers(k.Brokers, report)
	checkTLS(k.TLS, report)
}

// Brief implements [component.Brief].
func (k *Kafka) Brief(rows int, patience time.Duration) component.SourceConfig {
	brief := *k
	brief.RetryFor = min(k.RetryFor, conf.Duration(patience))
	if rows == 0 {
		return &brief
	}
	if k.End.IsZero() {
		brief.End = KafkaOffsets{At: "latest"}
	}
	if k.Start.At == "latest" || !k.Start.Time.IsZero() {
		brief.Start = KafkaOffsets{At: "earliest"} // after the end there is nothing to see
	}
	brief.MaxRows = min(k.MaxRows, rows)
	return &brief
}

// Written implements [component.Written].
func (k *Kafka) Written() []string {
	brokers := make([]string, len(k.Brokers))
	for i, b := range k.Brokers {
		brokers[i] = strconv.Quote(b)
	}
	lines := []string{
		"source:",
		"  kafka:",
		"    brokers: [" + strings.Join(brokers, ", ") + "]",
		"    topic: " + strconv.Quote(k.Topic),
		"    start: earliest              # latest: only what comes from now on",
		"    # end: latest                # what is there now, and then the job ends; without it training continues for ever",
	}
	if k.TLS != nil || k.SASL != nil {
		lines = append(lines, "    # tls and sasl are as they were given to init: put them here, or give them to every command with --set")
	}
	return lines
}

// kafkaTarget reads kafka://host:port[,host:port]/topic.
func kafkaTarget(target string) (keys [][2]string, ok bool, err error) {
	rest, ok := strings.CutPrefix(target, "kafka://")
	if !ok {
		return nil, false, nil
	}
	brokers, topic, _ := strings.Cut(rest, "/")
	topic, err = url.PathUnescape(topic)
	if err != nil || brokers == "" || topic == "" {
		return nil, true, fmt.Errorf("job: %q is not kafka://host:port/topic: %w", target, pipeline.ErrConfig)
	}
	return [][2]string{{"brokers", brokers}, {"topic", topic}}, true, nil
}

// checkBrokers checks addresses.
func checkBrokers(brokers []string, report component.Report) {
	for i, b := range brokers {
		host, port, err := net.SplitHostPort(b)
		if n, perr := strconv.Atoi(port); err != nil || host == "" || perr != nil || n < 0 || n > 65535 {
			report(fmt.Sprintf("brokers[%d]", i), "is %q, not host:port", b)
		}
	}
}
