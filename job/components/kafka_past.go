package components

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

var _ component.Dated = (*Kafka)(nil)

// From implements [component.Dated].
func (k *Kafka) From(at time.Time) component.SourceConfig { return &kafkaFrom{*k, at} }

// Between implements [component.Dated]. Errors: [pipeline.ErrConfig] also for offsets that are too large to be read more than once.
func (k *Kafka) Between(from, to map[string]pipeline.Position) (component.SourceConfig, error) {
	past := &kafkaPast{of: *k, start: map[int]int64{}, end: map[int]int64{}}
	for split, at := range from {
		p, ok := kafkasource.PartitionOf(k.StreamName(), split)
		end, has := to[split]
		switch {
		case !ok || !has || at < 0 || end < at || len(to) != len(from):
			return nil, fmt.Errorf("job: split %q from %d to %d is none of topic %q: %w", split, at, end, k.Topic, pipeline.ErrConfig)
		case end >= 1<<position.EpochBits:
			return nil, fmt.Errorf("job: partition %d ends at offset %d, and history can be read up to %d: %w", p, end, int64(math.MaxInt64)>>(63-position.EpochBits), pipeline.ErrConfig)
		}
		past.start[p], past.end[p] = int64(at), int64(end)
	}
	return past, nil
}

// kafkaFrom is a topic from a time on.
type kafkaFrom struct {
	Kafka
	at time.Time
}

// OpenBlocks implements [component.Blocks].
func (k *kafkaFrom) OpenBlocks(component.Opening) (pipeline.Source[*pipeline.Block], error) {
	opts, err := k.options()
	if err != nil {
		return nil, err
	}
	opts.Start, opts.End = kafkasource.Bound{Time: k.at}, kafkasource.Bound{}
	return kafkasource.New(opts)
}

// kafkaPast is what lies between offsets of a topic. It is no stream: it may have epochs and an order.
type kafkaPast struct {
	of         Kafka
	start, end map[int]int64
}

// Formats implements [component.SourceConfig].
func (k *kafkaPast) Formats() []string { return k.of.Formats() }

// UsualFormat implements [component.SourceConfig].
func (k *kafkaPast) UsualFormat() string { return k.of.UsualFormat() }

// Bounded implements [component.SourceConfig].
func (*kafkaPast) Bounded() bool { return true }

// OpenBlocks implements [component.Blocks].
func (k *kafkaPast) OpenBlocks(component.Opening) (pipeline.Source[*pipeline.Block], error) {
	opts, err := k.of.options()
	if err != nil {
		return nil, err
	}
	opts.Partitions = slices.Sorted(maps.Keys(k.start))
	opts.Start, opts.End = kafkasource.Bound{Offsets: k.start}, kafkasource.Bound{Offsets: k.end}
	return kafkasource.New(opts)
}

// Topics implements [component.Topics].
func (k *kafkaPast) Topics() []component.Topic { return k.of.Topics() }
