package kafkasource

import (
	"net"
	"strconv"

	"github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/internal/kafkawire"
)

// The messages of this file are of the older layout, in versions that every broker from Kafka 0.11 to 4 knows.

// Versions of requests, of which the newest that a broker has is used.
const (
	listOffsetsOld      = 2 // the first with an isolation level
	listOffsetsWithTerm = 4
	offsetCommitVersion = 2
	findCoordinatorBy   = 1
	epochEndVersion     = 3
	describeConfigsWhy  = 1
)

// partitionTerm is a partition with the epoch of its leader as we know it, -1: unknown.
type partitionTerm struct{ partition, term int32 }

// encodeListOffsets makes the body of a request of version 2 or 4 for the offsets at a time, or at one of the places that
// have a name.
func encodeListOffsets(topic string, ps []partitionTerm, at int64, committed bool, version int16) []byte {
	var e kafkawire.Encoder
	e.Int32(-1) // no replica
	e.Bool(committed)
	e.Array(1)
	e.Text(topic)
	e.Array(len(ps))
	for _, p := range ps {
		e.Int32(p.partition)
		if version >= listOffsetsWithTerm {
			e.Int32(p.term)
		}
		e.Int64(at)
	}
	return e.B
}

// partitionOffset is what an answer says of a partition.
type partitionOffset struct {
	partition int32
	err       kafka.Error
	offset    int64
	term      int32
}

func decodeListOffsets(b []byte, version int16) ([]partitionOffset, error) {
	var out []partitionOffset
	d := kafkawire.Decoder{B: b}
	d.Int32() // throttle time
	for n := d.Array(6); n > 0 && d.Err == nil; n-- {
		d.Text()
		for m := d.Array(22); m > 0 && d.Err == nil; m-- {
			p := partitionOffset{partition: d.Int32(), err: kafka.Error(d.Int16())}
			d.Int64() // time
			p.offset, p.term = d.Int64(), -1
			if version >= listOffsetsWithTerm {
				p.term = d.Int32()
			}
			out = append(out, p)
		}
	}
	return out, d.Err
}

// encodeEpochEnd asks where the log of a partition has the end of a leader's epoch.
func encodeEpochEnd(topic string, p partitionTerm, epoch int32) []byte {
	var e kafkawire.Encoder
	e.Int32(-1) // no replica
	e.Array(1)
	e.Text(topic)
	e.Array(1)
	e.Int32(p.partition)
	e.Int32(p.term)
	e.Int32(epoch)
	return e.B
}

// decodeEpochEnd returns, for each partition, the newest epoch up to the one asked for and the offset it ends at; both
// are -1 where the broker knows none.
func decodeEpochEnd(b []byte) ([]partitionOffset, error) {
	var out []partitionOffset
	d := kafkawire.Decoder{B: b}
	d.Int32() // throttle time
	for n := d.Array(6); n > 0 && d.Err == nil; n-- {
		d.Text()
		for m := d.Array(18); m > 0 && d.Err == nil; m-- {
			out = append(out, partitionOffset{err: kafka.Error(d.Int16()), partition: d.Int32(), term: d.Int32(), offset: d.Int64()})
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

func encodeFindCoordinator(group string) []byte {
	var e kafkawire.Encoder
	e.Text(group)
	e.Int8(0) // of a group
	return e.B
}

func decodeFindCoordinator(b []byte) (addr string, code kafka.Error, err error) {
	d := kafkawire.Decoder{B: b}
	d.Int32() // throttle time
	code = kafka.Error(d.Int16())
	d.Text()  // message
	d.Int32() // node
	host, port := d.Text(), d.Int32()
	return net.JoinHostPort(host, strconv.Itoa(int(port))), code, d.Err
}

// encodeOffsetCommit commits offsets without being a member of the group.
func encodeOffsetCommit(group, topic string, offsets []partitionOffset) []byte {
	var e kafkawire.Encoder
	e.Text(group)
	e.Int32(-1) // no generation
	e.Text("")
	e.Int64(-1) // the broker's retention
	e.Array(1)
	e.Text(topic)
	e.Array(len(offsets))
	for _, p := range offsets {
		e.Int32(p.partition)
		e.Int64(p.offset)
		e.Int16(-1) // no metadata
	}
	return e.B
}

func decodeOffsetCommit(b []byte) ([]partitionOffset, error) {
	var out []partitionOffset
	d := kafkawire.Decoder{B: b}
	for n := d.Array(6); n > 0 && d.Err == nil; n-- {
		d.Text()
		for m := d.Array(6); m > 0 && d.Err == nil; m-- {
			out = append(out, partitionOffset{partition: d.Int32(), err: kafka.Error(d.Int16())})
		}
	}
	return out, d.Err
}
