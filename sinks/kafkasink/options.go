package kafkasink

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/monolith-go/monolith/internal/kafkawire"
	"github.com/monolith-go/monolith/pipeline"
)

// Options describe where to write and how. Brokers and Topic are required; the zero value of everything else works.
type Options struct {
	// Brokers are addresses host:port to ask for the cluster's layout; one that is alive is enough.
	Brokers []string
	// Topic must exist, see [CreateTopic].
	Topic string
	// Codec compresses record batches: none (default), gzip, snappy, lz4 or zstd. A [Sink] has [SinkCodec] as its default.
	Codec string
	// MaxBytes bounds the keys and values of a request. It must leave room below the topic's max.message.bytes, which is
	// 1 MiB unless changed. A single record may be larger; the broker decides. Default 512 KiB.
	MaxBytes int
	// RetryFor is the patience with brokers that do not answer, a partition without a leader and the like. Default 30s.
	RetryFor time.Duration
	// Timeout bounds one request. Default 10s.
	Timeout time.Duration
	// ClientID is the name the brokers log and meter. Default "monolith".
	ClientID string
	// TLS encrypts connections, and is asked for each, which may change what it gets; nil: plain text. SASL authenticates, nil: anonymous. The source for Kafka makes both from its
	// options.
	TLS  func() *tls.Config
	SASL sasl.Mechanism
	// Output distinguishes what a [Sink] writes from what others write to the topic: its own rows are looked for under this name when it
	// resumes. It is the beginning of its transactional ids. Default "monolith".
	Output string
	// CommitEvery is how long a row that a [Sink] has taken waits until its transaction is committed, so that readers see it,
	// with CommitRows of its split at most. Default 1s and 10,000.
	CommitEvery time.Duration
	CommitRows  int
	// Keys is what errors put before the names tls and brokers where they say which key of a configuration to change.
	// Default "kafka.".
	Keys string
}

// WithDefaults returns the options with defaults in place of zero values.
func (o Options) WithDefaults() Options {
	if o.Codec == "" {
		o.Codec = "none"
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 512 << 10
	}
	o.ClientID = cmp.Or(o.ClientID, "monolith")
	o.Output = cmp.Or(o.Output, "monolith")
	if o.CommitEvery == 0 {
		o.CommitEvery = time.Second
	}
	if o.CommitRows == 0 {
		o.CommitRows = 10_000
	}
	o.Keys = cmp.Or(o.Keys, "kafka.")
	if o.RetryFor == 0 {
		o.RetryFor = 30 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	return o
}

// SinkCodec compresses the record batches of a [Sink] whose [Options] name no Codec.
const SinkCodec = "zstd"

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"} // in the order of Kafka's numbers

// Validate returns all faults of the options at once, each an [pipeline.ErrConfig]. It opens nothing.
func (o Options) Validate() error {
	o = o.WithDefaults()
	var faults []error
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("kafkasink: "+format+": %w", append(args, pipeline.ErrConfig)...))
	}
	if len(o.Brokers) == 0 {
		bad("no Brokers")
	}
	for _, b := range o.Brokers {
		if host, port, err := net.SplitHostPort(b); err != nil || host == "" || port == "" {
			bad("broker %q is not host:port", b)
		}
	}
	if o.Topic == "" {
		bad("no Topic")
	}
	if len(o.Topic) > 249 {
		bad("Topic %.20q... has %d characters, more than 249", o.Topic, len(o.Topic))
	}
	if !slices.Contains(codecs, o.Codec) {
		bad("Codec %q is none of %s", o.Codec, strings.Join(codecs, ", "))
	}
	if o.MaxBytes < 1 || o.MaxBytes > 1<<30 {
		bad("MaxBytes is %d, outside of [1,%d]", o.MaxBytes, 1<<30)
	}
	if o.RetryFor < time.Millisecond || o.Timeout < time.Millisecond {
		bad("RetryFor is %s and Timeout %s, at least 1ms is needed", o.RetryFor, o.Timeout)
	}
	if o.CommitEvery < time.Millisecond || o.CommitRows < 1 {
		bad("CommitEvery is %s and CommitRows %d, at least 1ms and 1 are needed", o.CommitEvery, o.CommitRows)
	}
	if len(o.Output) > 200 {
		bad("Output %.20q... has %d characters, more than 200", o.Output, len(o.Output))
	}
	return errors.Join(faults...)
}

func (o *Options) network() kafkawire.Network {
	return kafkawire.Network{ClientID: o.ClientID, Timeout: o.Timeout, TLS: o.TLS, SASL: o.SASL, Config: pipeline.ErrConfig, Keys: o.Keys}
}
