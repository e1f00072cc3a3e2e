package kafkasource

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/internal/kafkawire"
	"github.com/monolith-go/monolith/pipeline"
)

// splitMemory is what is remembered of a split beside its position, because an offset alone does not say in which log it counts.
type splitMemory struct {
	// Cluster and Topic are the identities that brokers report; empty where they report none.
	Cluster string `json:"cluster,omitempty"`
	Topic   string `json:"topic_id,omitempty"`
	// Start is where the split was first taken up, Partitions how many the topic had then.
	Start      int64 `json:"start"`
	Partitions int   `json:"partitions"`
	// Exact reports whether Start is the place of a time, which something else was read up to: records that have gone from there on
	// are a gap, though none was read.
	Exact bool `json:"exact,omitempty"`
	// Added reports whether the partition was added to a topic that was being read: all of its records are new.
	Added bool `json:"added,omitempty"`
	// Term is the leader epoch of a batch that ends at or before At; -1: nothing was read yet. It holds for as long as the
	// log is what it was, wherever positions are: a log whose end of that epoch lies before At, and before a position too,
	// was cut back.
	Term int32 `json:"leader_epoch"`
	At   int64 `json:"at"`
}

func (m splitMemory) text() string {
	js, err := json.Marshal(m)
	if err != nil {
		panic("kafkasource: a split's memory does not marshal: " + err.Error()) // text and numbers only
	}
	return string(js)
}

// recollect reads a memory; one without anything in it for empty text.
func recollect(split, text string) (splitMemory, error) {
	m := splitMemory{Term: -1}
	if text == "" {
		return m, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.Start < 0 {
		return m, fmt.Errorf("kafkasource: what is stored about split %q cannot be read: %q: %w", split, text, cmp.Or(err, pipeline.ErrConfig))
	}
	return m, nil
}

// idOf is the inverse of kafkawire.TopicID.String; zero for what is none.
func idOf(text string) (id kafkawire.TopicID) {
	if b, err := hex.DecodeString(text); err == nil && len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}

var (
	_ pipeline.Rememberer = (*Source)(nil)
	_ pipeline.Growing    = (*Source)(nil)
)

const (
	// otherRecords is what to do when the topic's records are not those that stored positions count.
	otherRecords = "give source.kafka.name a new name to read the topic from source.kafka.start on with the parameters as they are, or start over with --resume=false"
	recreated    = "the topic was deleted and re-created"
)

// Recall implements [pipeline.Rememberer]. A split that was taken up before begins where it began then. A partition that
// was added since begins with its first record, also where Start is [Latest]: everything in it came while the topic was
// read. Errors: a [*pipeline.GapError] for a topic that was re-created, or one of another cluster.
func (s *Source) Recall(splits []pipeline.Split, known map[string]string) ([]pipeline.Split, error) {
	had := 0 // partitions, when the first of them was taken up: a topic never has fewer later
	for name, text := range known {
		if _, ok := partitionOf(s.opts.Name, name); ok {
			m, err := recollect(name, text)
			if err != nil {
				return nil, err
			}
			if m.Partitions > 0 && (had == 0 || m.Partitions < had) {
				had = m.Partitions
			}
		}
	}
	out := make([]pipeline.Split, len(splits))
	for i, split := range splits {
		now, err := recollect(split.Name, split.Memory)
		if err != nil {
			return nil, err
		}
		p, ok := partitionOf(s.opts.Name, split.Name)
		if !ok {
			return nil, fmt.Errorf("kafkasource: split %q is none of %q: %w", split.Name, s.opts.Name, pipeline.ErrConfig)
		}
		m := now
		if text, ok := known[split.Name]; ok {
			if m, err = recollect(split.Name, text); err != nil {
				return nil, err
			}
			if err := m.same(s, split, now); err != nil {
				return nil, err
			}
			m.Cluster, m.Topic = cmp.Or(m.Cluster, now.Cluster), cmp.Or(m.Topic, now.Topic)
		} else if _, explicit := s.opts.Start.Offsets[int(p)]; !explicit && had > 0 && int(p) >= had {
			m.Start, m.Added = 0, true
		}
		split.Start, split.Memory = pipeline.Position(m.Start), m.text()
		if split.End != pipeline.NoPosition {
			split.End = max(split.End, split.Start)
		}
		out[i] = split
	}
	return out, nil
}

// same reports whether a topic is the one that is remembered.
func (m splitMemory) same(s *Source, split pipeline.Split, now splitMemory) error {
	gap := &pipeline.GapError{
		Source: s.String(), Split: split.Name, Want: pipeline.Position(max(m.At, m.Start)), First: pipeline.NoPosition, Last: pipeline.NoPosition, Hint: otherRecords,
	}
	switch {
	case m.Cluster != "" && now.Cluster != "" && m.Cluster != now.Cluster:
		gap.Other = fmt.Sprintf("it was read from the cluster %s, and source.kafka.brokers are of the cluster %s, which has a topic of the same name", m.Cluster, now.Cluster)
	case m.Topic != "" && now.Topic != "" && m.Topic != now.Topic:
		gap.Other = recreated
	default:
		return nil
	}
	return gap
}

// GrowsEvery implements [pipeline.Growing]: a topic may get partitions while it is read without an end, unless
// [Options.Partitions] says which to read.
func (s *Source) GrowsEvery() time.Duration {
	if s.Bounded() || s.opts.Partitions != nil {
		return 0
	}
	return s.opts.DiscoverEvery
}
