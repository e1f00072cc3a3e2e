package spec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/conf"
)

// Source is exactly one place examples come from. Short form: the name alone, as in `source: synthetic`.
type Source struct {
	// Kafka reads the partitions of a topic; each is a split.
	Kafka *KafkaSource `yaml:"kafka"`
	// TFRecord reads TFRecord files; each is a split.
	TFRecord *TFRecordSource `yaml:"tfrecord"`
	// Parquet reads the row groups of Parquet files; each is a split.
	Parquet *ParquetSource `yaml:"parquet"`
	// Text reads the lines of text files (libfm, csv, tsv, jsonl); each file is a split.
	Text *TextSource `yaml:"text"`
	// Synthetic makes a stream of clicks whose best possible AUC is known.
	Synthetic *SyntheticSource `yaml:"synthetic"`
}

// KafkaSource reads a Kafka topic. Where to go on is stored with the parameters, not in the consumer group.
type KafkaSource struct {
	// Brokers are host:port addresses to begin with; the others are learnt from them.
	Brokers []string `yaml:"brokers" required:"true"`
	// Topic is the topic to read.
	Topic string `yaml:"topic" required:"true"`
	// Name is what positions are stored under; empty: the topic. Under a new name the topic is read from start on, with the
	// parameters as they are: for a topic that was deleted and made again, or moved to another cluster.
	Name string `yaml:"name" default:""`
	// Start is where a partition without a stored position begins: earliest, latest, or {partition: offset}. It is stored
	// when it is first looked up, so restarts before the first snapshot lose nothing. A partition that is added later begins
	// with its first record.
	Start KafkaOffsets `yaml:"start" default:"earliest" enum:"earliest|latest"`
	// End is where reading ends: empty for never, latest for the end as it is at the start, or {partition: offset}. A
	// source with an end is bounded.
	End KafkaOffsets `yaml:"end" default:"" enum:"latest"`
	// Isolation is read_committed to leave out what transactions have not committed, or read_uncommitted.
	Isolation string `yaml:"isolation" default:"read_committed" enum:"read_committed|read_uncommitted"`
	// OnGap says what happens when stored positions lie outside the log: fail, or skip (counted and logged).
	OnGap string `yaml:"on_gap" default:"fail" enum:"fail|skip"`
	// GroupID is a consumer group to which the positions of each snapshot are committed, for lag tools. It is never read.
	GroupID string `yaml:"group_id" default:""`
	// ClientID names this client in the broker's logs and quotas.
	ClientID string `yaml:"client_id" default:"monolith"`
	// MaxWait is how long a fetch waits for data at the broker.
	MaxWait Duration `yaml:"max_wait" default:"500ms" above:"0"`
	// MaxBytes is the size of a fetch response. The larger, the fewer round trips and the more memory.
	MaxBytes Size `yaml:"max_bytes" default:"4MiB" min:"1024" max:"1073741824"`
	// MaxBatchBytes is the size above which one record batch, compressed or not, is a bad row. At least max_bytes.
	MaxBatchBytes Size `yaml:"max_batch_bytes" default:"128MiB" min:"1024" max:"1073741824"`
	// MaxRows is the number of records of a block.
	MaxRows int `yaml:"max_rows" default:"4096" min:"1"`
	// DiscoverEvery is how often to look for partitions that are added to a topic that is read without an end.
	DiscoverEvery Duration `yaml:"discover_every" default:"30s" min:"1ms"`
	// RetryFor is how long an unreachable broker is tried before the run ends with exit code 3.
	RetryFor Duration `yaml:"retry_for" default:"1m" min:"0"`
	// TLS encrypts the connections; absent: plain text.
	TLS *TLS `yaml:"tls"`
	// SASL logs in; absent: no log-in.
	SASL *SASL `yaml:"sasl"`
}

// TLS is how connections are encrypted and who is trusted. An empty section uses the system's authorities.
type TLS struct {
	// CA is a PEM file of authorities; empty: the system's.
	CA string `yaml:"ca" default:""`
	// Cert is the PEM file of a client certificate; it needs a key.
	Cert string `yaml:"cert" default:""`
	// Key is the PEM file of the client certificate's key.
	Key string `yaml:"key" default:""`
	// ServerName is checked against the server's certificate; empty: the host of the address.
	ServerName string `yaml:"server_name" default:""`
}

// SASL is a log-in with user and password.
type SASL struct {
	// Mechanism is plain, scram-256 or scram-512.
	Mechanism string `yaml:"mechanism" required:"true" enum:"plain|scram-256|scram-512"`
	// User is the user's name.
	User string `yaml:"user" required:"true"`
	// Password is {env: VARIABLE} or {file: PATH}; it never stands in the job itself.
	Password Secret `yaml:"password" required:"true"`
}

// FileSet are the options all file sources share.
type FileSet struct {
	// Files are paths or patterns (*, ?, [...]). Each file is a split, named by its path behind the folder that its pattern
	// begins with, and known again by its bytes: files that are moved, renamed or appended to go on where they were. A
	// pattern without a match is an error.
	Files []string `yaml:"files" required:"true"`
	// BlockRows is the number of records of a block.
	BlockRows int `yaml:"block_rows" default:"4096" min:"1"`
}

// TFRecordSource reads TFRecord files and checks both checksums of each record.
type TFRecordSource struct {
	FileSet `yaml:",inline"`
	// Compression is that of the files; auto goes by their first bytes.
	Compression string `yaml:"compression" default:"auto" enum:"auto|none|gzip"`
	// BlockBytes ends a block early.
	BlockBytes Size `yaml:"block_bytes" default:"4MiB" min:"1"`
	// MaxRecordBytes is the size above which a record is a bad row.
	MaxRecordBytes Size `yaml:"max_record_bytes" default:"64MiB" min:"1"`
}

// ParquetSource reads the columns that parse.features, parse.label and parse.weight name.
type ParquetSource struct {
	FileSet `yaml:",inline"`
	// MaxPageBytes bounds a page of a column, compressed and not: a row group with a larger one is not read. Reading a row
	// group takes at worst six times that for each column.
	MaxPageBytes Size `yaml:"max_page_bytes" default:"128MiB" min:"1" max:"1073741824"`
}

// TextSource reads lines. What they hold is parse.format's.
type TextSource struct {
	FileSet `yaml:",inline"`
	// Compression is that of the files; auto goes by their first bytes.
	Compression string `yaml:"compression" default:"auto" enum:"auto|none|gzip"`
	// BlockBytes ends a block early.
	BlockBytes Size `yaml:"block_bytes" default:"4MiB" min:"1"`
	// MaxLineBytes is the length above which a line is a bad row. Where a quote of csv is not closed by then, or within
	// 1,000 lines, its line is the bad row and the lines behind it are read.
	MaxLineBytes Size `yaml:"max_line_bytes" default:"1MiB" min:"1"`
}

// SyntheticSource makes clicks from a drifting world whose click probabilities it knows.
type SyntheticSource struct {
	// Examples is the length of the stream; 0 never ends.
	Examples int64 `yaml:"examples" default:"200000" min:"0"`
	// Splits is the number of splits the stream is dealt to.
	Splits int `yaml:"splits" default:"1" min:"1" max:"1024"`
	// Seed makes the world; 0 takes the job's seed.
	Seed uint64 `yaml:"seed" default:"0"`
	// Rate is how many examples come a second, over all splits; 0 is as fast as they are read.
	Rate float64 `yaml:"rate" default:"0" min:"0"`
	// BlockRows is the number of examples of a block.
	BlockRows int `yaml:"block_rows" default:"1024" min:"1"`
}

// Name is the chosen source: "kafka", "tfrecord", "parquet", "text" or "synthetic"; empty when none is.
func (s *Source) Name() string { return conf.Chosen(s) }

// Bounded tells whether the source ends.
func (s *Source) Bounded() bool {
	switch {
	case s.Kafka != nil:
		return !s.Kafka.End.IsZero()
	case s.Synthetic != nil:
		return s.Synthetic.Examples > 0
	}
	return true
}

// FileList returns the patterns of a file source, nil for others.
func (s *Source) FileList() []string {
	switch {
	case s.TFRecord != nil:
		return s.TFRecord.Files
	case s.Parquet != nil:
		return s.Parquet.Files
	case s.Text != nil:
		return s.Text.Files
	}
	return nil
}

func (*Source) OneOf() {}

// KafkaOffsets is a place in every partition of a topic: a word for all of them, or an offset for each.
type KafkaOffsets struct {
	// At is "earliest", "latest" or empty.
	At string
	// Partitions holds an offset for each partition; nil when At says it.
	Partitions map[int32]int64
}

// IsZero tells that no place is named.
func (o KafkaOffsets) IsZero() bool { return o.At == "" && o.Partitions == nil }

// String renders the word, or {0: 12, 1: 40}.
func (o KafkaOffsets) String() string {
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
func (o KafkaOffsets) Written() string { return "word or {partition: offset}" }

// DecodeNode implements [conf.Custom].
func (o *KafkaOffsets) DecodeNode(n *conf.Node, report func(at Where, below, message string)) {
	if word, ok := n.Text(); ok {
		o.At = word
		return
	}
	pairs, ok := n.Pairs()
	if !ok {
		report(n.At(), "", fmt.Sprintf("wants a word or {partition: offset}, not %s", n.Describe()))
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
