package kafkasource

import (
	"github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/internal/kafkawire"
)

// The messages of this file are of the older layout, in versions that every broker from Kafka 0.11 to 4 knows, but for
// offsetCommitWithID.

// Versions of requests, of which the newest that a broker has is used.
const (
	offsetCommitVersion = 2
	offsetCommitWithID  = 10 // Kafka 4.1, KIP-848
	epochEndVersion     = 3
	describeConfigsWhy  = 1
)

// encodeEpochEnd asks where the log of a partition has the end of a leader's epoch.
func encodeEpochEnd(topic string, p kafkawire.PartitionTerm, epoch int32) []byte {
	var e kafkawire.Encoder
	e.Int32(-1) // no replica
	e.Array(1)
	e.Text(topic)
	e.Array(1)
	e.Int32(p.Partition)
	e.Int32(p.Term)
	e.Int32(epoch)
	return e.B
}

// decodeEpochEnd returns, for each partition, the newest epoch up to the one asked for and the offset it ends at; both
// are -1 where the broker knows none.
func decodeEpochEnd(b []byte) ([]kafkawire.PartitionOffset, error) {
	var out []kafkawire.PartitionOffset
	d := kafkawire.Decoder{B: b}
	d.Int32() // throttle time
	for n := d.Array(6); n > 0 && d.Err == nil; n-- {
		d.Text()
		for m := d.Array(18); m > 0 && d.Err == nil; m-- {
			out = append(out, kafkawire.PartitionOffset{Err: kafka.Error(d.Int16()), Partition: d.Int32(), Term: d.Int32(), Offset: d.Int64()})
		}
	}
	return out, d.Err
}

// encodeTopicConfig asks for one setting of a topic.
func encodeTopicConfig(topic, name string) []byte {
	var e kafkawire.Encoder
	e.Array(1)
	e.Int8(2) // a topic
	e.Text(topic)
	e.Array(1)
	e.Text(name)
	e.Bool(false) // no synonyms
	return e.B
}

// decodeTopicConfig returns the value of a setting; empty when the answer has none.
func decodeTopicConfig(b []byte, name string) (string, kafka.Error, error) {
	value, code := "", kafka.Error(0)
	d := kafkawire.Decoder{B: b}
	d.Int32() // throttle time
	for n := d.Array(11); n > 0 && d.Err == nil; n-- {
		if c := kafka.Error(d.Int16()); c != 0 {
			code = c
		}
		d.Text() // message
		d.Int8()
		d.Text()
		for m := d.Array(11); m > 0 && d.Err == nil; m-- {
			is, v := d.Text(), d.Text()
			d.Take(3) // read only, where it comes from, sensitive
			for s := d.Array(5); s > 0 && d.Err == nil; s-- {
				d.Text()
				d.Text()
				d.Int8()
			}
			if is == name {
				value = v
			}
		}
	}
	return value, code, d.Err
}

// encodeOffsetCommit commits offsets without being a member of the group. The newer version names the topic by its identity.
func encodeOffsetCommit(group, topic string, id kafkawire.TopicID, offsets []kafkawire.PartitionOffset, version int16) []byte {
	e := kafkawire.Encoder{Flex: version >= offsetCommitWithID}
	e.Text(group)
	e.Int32(-1) // no generation
	e.Text("")  // no member
	if e.Flex {
		e.None() // no instance
	} else {
		e.Int64(-1) // the broker's retention
	}
	e.Array(1)
	if e.Flex {
		e.Bytes(id[:])
	} else {
		e.Text(topic)
	}
	e.Array(len(offsets))
	for _, p := range offsets {
		e.Int32(p.Partition)
		e.Int64(p.Offset)
		if e.Flex {
			e.Int32(-1) // no leader epoch
		}
		e.None() // no metadata
		e.Tags()
	}
	e.Tags()
	e.Tags()
	return e.B
}

func decodeOffsetCommit(b []byte, version int16) ([]kafkawire.PartitionOffset, error) {
	var out []kafkawire.PartitionOffset
	d := kafkawire.Decoder{B: b, Flex: version >= offsetCommitWithID}
	if d.Flex {
		d.Int32() // throttle time
	}
	for n := d.Array(6); n > 0 && d.Err == nil; n-- {
		if d.Flex {
			d.Take(len(kafkawire.TopicID{}))
		} else {
			d.Text()
		}
		for m := d.Array(6); m > 0 && d.Err == nil; m-- {
			out = append(out, kafkawire.PartitionOffset{Partition: d.Int32(), Err: kafka.Error(d.Int16())})
			d.Tags(nil)
		}
		d.Tags(nil)
	}
	d.Tags(nil)
	return out, d.Err
}
