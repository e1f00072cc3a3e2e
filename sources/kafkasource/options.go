package kafkasource

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/pipeline"
)

// Place is a place in a partition that a broker knows by name.
type Place string

// Places.
const (
	// Earliest is the oldest record a partition still has.
	Earliest Place = "earliest"
	// Latest is the end of a partition when the splits are listed: the last stable offset under [ReadCommitted], the
	// high watermark under [ReadUncommitted].
	Latest Place = "latest"
)

// Bound describes where reading begins or ends in the partitions of a topic.
type Bound struct {
	// Place holds for all partitions that Offsets does not name.
	Place Place
	// Offsets are explicit, by partition: of the first record to read, or the one after the last.
	Offsets map[int]int64
	// Time, if not zero, is the place of partitions that Offsets does not name: the first record with this time or a later one,
	// to the millisecond, when the splits are listed; where there is none, [Latest].
	Time time.Time
}

// Isolation describes which records of transactions are read.
type Isolation string

// Isolation levels.
const (
	// ReadCommitted reads records of committed transactions only, and nothing behind the last stable offset: what
	// follows the beginning of a transaction waits until that has ended.
	ReadCommitted Isolation = "read_committed"
	// ReadUncommitted reads everything but control records, also what is aborted before or afterwards.
	ReadUncommitted Isolation = "read_uncommitted"
)

// GapPolicy describes what becomes of a position whose records are gone.
type GapPolicy string

// Gap policies.
const (
	// FailOnGap ends reading with a [*pipeline.GapError].
	FailOnGap GapPolicy = "fail"
	// SkipGap continues with the oldest record after the gap, logs how many offsets were lost and reports one dropped row
	// with the reason «gap» for each gap. It cannot help where a position follows the end of the log or the topic was
	// re-created: going back to smaller offsets would make the parameter servers take new records for known ones. These
	// always fail.
	SkipGap GapPolicy = "skip"
)

// Options describe a topic and how to read it. Brokers and Topic are required; the zero value of everything else works.
type Options struct {
	// Brokers are addresses host:port to ask for the cluster's layout; one that is alive is enough.
	Brokers []string
	// Topic is the topic's name.
	Topic string
	// Name is what splits are named after, so that positions are stored under it; empty: the topic. Under another name the
	// topic is read from Start: for one that was deleted and made again.
	Name string
	// Partitions are those to read; nil: all that the topic has when the splits are listed.
	Partitions []int
	// Start is where a split begins that has never been read. Default [Earliest].
	Start Bound
	// End makes the source bounded: [Latest], or an explicit offset for every partition. A reader waits for records up to
	// an explicit end that do not exist yet. The default is no end.
	End Bound
	// Isolation is [ReadCommitted] by default.
	Isolation Isolation
	// OnGap is [FailOnGap] by default.
	OnGap GapPolicy
	// GroupID is the consumer group that stored positions are committed to, for tools that show lag; nothing is ever read
	// from it. Empty: none.
	GroupID string
	// ClientID is the name the brokers log and meter. Default "monolith".
	ClientID string
	// MaxWait is how long a broker holds a request back while there is nothing to read. Default 500ms.
	MaxWait time.Duration
	// MaxBytes is the size of an answer to ask for, and of a block's keys and values at most, unless a single record is
	// larger. A reader holds up to two answers: one that is read from and one ahead. Default 4 MiB.
	MaxBytes int
	// MaxBatchBytes bounds one record batch, compressed or not; a larger one is a data error. Default 128 MiB.
	MaxBatchBytes int
	// MaxRows bounds the rows of a block. Default 4096.
	MaxRows int
	// RetryFor is the patience with a broker that cannot be reached, a partition without a leader and the like, at the start
	// as well as while reading; acknowledging has at most 5s of it. Default 1m.
	RetryFor time.Duration
	// DiscoverEvery is how often to look for partitions that are added while the topic is read without an end. Default 30s.
	DiscoverEvery time.Duration
	// Timeout bounds connecting, and every answer beyond what MaxWait allows. Default 10s.
	Timeout time.Duration
	// TLS encrypts connections; nil: plain text.
	TLS *TLS
	// SASL authenticates; nil: anonymous.
	SASL *SASL
	// Logger is told when [Source.Splits] waits for brokers, which has no [pipeline.Env]; nil: nobody.
	Logger *slog.Logger
}

// WithDefaults returns the options with defaults in place of zero values.
func (o Options) WithDefaults() Options {
	set := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	if o.Start.Place == "" && o.Start.Time.IsZero() {
		o.Start.Place = Earliest
	}
	if o.Isolation == "" {
		o.Isolation = ReadCommitted
	}
	if o.OnGap == "" {
		o.OnGap = FailOnGap
	}
	set(&o.ClientID, "monolith")
	set(&o.Name, o.Topic)
	number := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	number(&o.MaxBytes, 4<<20)
	number(&o.MaxBatchBytes, 128<<20)
	number(&o.MaxRows, 4096)
	duration := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	duration(&o.MaxWait, 500*time.Millisecond)
	duration(&o.RetryFor, time.Minute)
	duration(&o.Timeout, 10*time.Second)
	duration(&o.DiscoverEvery, 30*time.Second)
	return o
}

// Validate returns all faults of the options at once, each an [pipeline.ErrConfig]. It opens nothing. Messages here and
// elsewhere in the package name options as the keys of a job file do: max_bytes for MaxBytes.
func (o Options) Validate() error {
	o = o.WithDefaults()
	var faults []error
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("kafkasource: "+format+": %w", append(args, pipeline.ErrConfig)...))
	}
	if len(o.Brokers) == 0 {
		bad("source.kafka.brokers is empty")
	}
	for _, b := range o.Brokers {
		host, port, err := net.SplitHostPort(b)
		if n, perr := strconv.Atoi(port); err != nil || perr != nil || n < 1 || n > math.MaxUint16 || host == "" {
			bad("broker %q is not host:port", b)
		}
	}
	if !validTopic(o.Topic) {
		bad("%q is no topic name (1 to 249 letters, digits, dots, underscores and hyphens)", o.Topic)
	}
	if !validTopic(o.Name) && o.Name != o.Topic {
		bad("source.kafka.name %q is not of 1 to 249 letters, digits, dots, underscores and hyphens", o.Name)
	}
	seen := map[int]bool{}
	for _, p := range o.Partitions {
		if p < 0 || p > maxPartition || seen[p] {
			bad("partition %d is outside of [0,%d] or named twice", p, maxPartition)
		}
		seen[p] = true
	}
	for what, b := range map[string]Bound{"start": o.Start, "end": o.End} {
		if b.Place != "" && b.Place != Latest && (b.Place != Earliest || what == "end") {
			bad("source.kafka.%s %q", what, b.Place)
		}
		if b.Place != "" && !b.Time.IsZero() {
			bad("source.kafka.%s is both %q and a time", what, b.Place)
		}
		for p, at := range b.Offsets {
			if p < 0 || p > maxPartition || at < 0 {
				bad("source.kafka.%s of partition %d is %d", what, p, at)
			}
		}
	}
	for p, end := range o.End.Offsets {
		if start, ok := o.Start.Offsets[p]; ok && start > end {
			bad("partition %d ends at %d, before its start %d", p, end, start)
		}
	}
	if o.Isolation != ReadCommitted && o.Isolation != ReadUncommitted {
		bad("source.kafka.isolation %q is neither %q nor %q", o.Isolation, ReadCommitted, ReadUncommitted)
	}
	if o.OnGap != FailOnGap && o.OnGap != SkipGap {
		bad("source.kafka.on_gap %q is neither %q nor %q", o.OnGap, FailOnGap, SkipGap)
	}
	for what, n := range map[string]int{"max_bytes": o.MaxBytes, "max_batch_bytes": o.MaxBatchBytes, "max_rows": o.MaxRows} {
		if n < 1 || n > 1<<30 {
			bad("source.kafka.%s is %d, outside of [1,%d]", what, n, 1<<30)
		}
	}
	if o.MaxBatchBytes < o.MaxBytes {
		bad("source.kafka.max_batch_bytes %d is less than max_bytes %d", o.MaxBatchBytes, o.MaxBytes)
	}
	for what, d := range map[string]time.Duration{"max_wait": o.MaxWait, "retry_for": o.RetryFor, "timeout": o.Timeout, "discover_every": o.DiscoverEvery} {
		if d < time.Millisecond || d > 24*time.Hour {
			bad("source.kafka.%s is %s, outside of [1ms,24h]", what, d)
		}
	}
	faults = append(faults, checkTLS(o.TLS), o.SASL.validate())
	slices.SortFunc(faults, func(a, b error) int { // maps have no order, messages should
		return strings.Compare(message(a), message(b))
	})
	return errors.Join(faults...)
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// bounded reports whether every partition has an end.
func (o *Options) bounded() bool {
	return o.End.Place != "" || len(o.End.Offsets) > 0 || !o.End.Time.IsZero()
}

// maxPartition bounds partition numbers, so that names of one width sort by number. Clusters stay far below it.
const maxPartition = 99999

// splitName is the stable name of a partition: positions are stored under it. The width does not depend on the number of
// partitions, which may grow.
func splitName(name string, partition int32) string { return fmt.Sprintf("%s-%05d", name, partition) }

// PartitionOf returns the partition that a split of the source of this name ([Options].Name) is; ok is false for splits of others.
func PartitionOf(name, split string) (partition int, ok bool) {
	p, ok := partitionOf(name, split)
	return int(p), ok
}

// partitionOf is the inverse of splitName.
func partitionOf(name, split string) (int32, bool) {
	digits, ok := strings.CutPrefix(split, name+"-")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 0 || n > maxPartition || splitName(name, int32(n)) != split {
		return 0, false
	}
	return int32(n), true
}

func validTopic(s string) bool {
	if s == "" || len(s) > 249 || s == "." || s == ".." {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}) < 0
}
