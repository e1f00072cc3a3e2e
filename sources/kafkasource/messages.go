package kafkasource

import (
	"net"
	"strconv"

	"github.com/segmentio/kafka-go"
)

// The messages of this file are encoded and decoded here and not by kafka-go: its decoder makes arrays of whatever length
// an answer names, so that 20 bytes from anything that listens could ask for more memory than there is, which no recover
// catches. Only versions of the older layout are used, which every broker from Kafka 0.11 to 4 knows; decoder allocates no
// more than the bytes it was given justify.

// apiKey numbers the kinds of requests, https://kafka.apache.org/protocol#protocol_api_keys.
type apiKey int16

const (
	apiFetch            apiKey = 1
	apiListOffsets      apiKey = 2
	apiMetadata         apiKey = 3
	apiOffsetCommit     apiKey = 8
	apiFindCoordinator  apiKey = 10
	apiSASLHandshake    apiKey = 17
	apiVersions         apiKey = 18
	apiEpochEnd         apiKey = 23
	apiDescribeConfigs  apiKey = 32
	apiSASLAuthenticate apiKey = 36
)

func (k apiKey) String() string {
	switch k {
	case apiFetch:
		return "Fetch"
	case apiListOffsets:
		return "ListOffsets"
	case apiMetadata:
		return "Metadata"
	case apiOffsetCommit:
		return "OffsetCommit"
	case apiFindCoordinator:
		return "FindCoordinator"
	case apiSASLHandshake:
		return "SaslHandshake"
	case apiVersions:
		return "ApiVersions"
	case apiEpochEnd:
		return "OffsetForLeaderEpoch"
	case apiDescribeConfigs:
		return "DescribeConfigs"
	case apiSASLAuthenticate:
		return "SaslAuthenticate"
	}
	return strconv.Itoa(int(k))
}

// Versions of requests, of which the newest that a broker has is used.
const (
	listOffsetsOld        = 2 // the first with an isolation level
	listOffsetsWithTerm   = 4
	metadataOld           = 4
	offsetCommitVersion   = 2
	findCoordinatorBy     = 1
	saslHandshakeVersion  = 1
	saslAuthenticatePlain = 0
	epochEndVersion       = 3
	describeConfigsWhy    = 1
)

// partitionTerm is a partition with the epoch of its leader as we know it, -1: unknown.
type partitionTerm struct{ partition, term int32 }

// encodeListOffsets makes the body of a request of version 2 or 4 for the offsets at a time, or at one of the places that
// have a name.
func encodeListOffsets(topic string, ps []partitionTerm, at int64, committed bool, version int16) []byte {
	var e encoder
	e.int32(-1) // no replica
	e.bool(committed)
	e.array(1)
	e.string(topic)
	e.array(len(ps))
	for _, p := range ps {
		e.int32(p.partition)
		if version >= listOffsetsWithTerm {
			e.int32(p.term)
		}
		e.int64(at)
	}
	return e.b
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
	d := decoder{b: b}
	d.int32() // throttle time
	for n := d.array(6); n > 0 && d.err == nil; n-- {
		d.string()
		for m := d.array(22); m > 0 && d.err == nil; m-- {
			p := partitionOffset{partition: d.int32(), err: kafka.Error(d.int16())}
			d.int64() // time
			p.offset, p.term = d.int64(), -1
			if version >= listOffsetsWithTerm {
				p.term = d.int32()
			}
			out = append(out, p)
		}
	}
	return out, d.err
}

// encodeEpochEnd asks where the log of a partition has the end of a leader's epoch.
func encodeEpochEnd(topic string, p partitionTerm, epoch int32) []byte {
	var e encoder
	e.int32(-1) // no replica
	e.array(1)
	e.string(topic)
	e.array(1)
	e.int32(p.partition)
	e.int32(p.term)
	e.int32(epoch)
	return e.b
}

// decodeEpochEnd returns, for each partition, the newest epoch up to the one asked for and the offset it ends at; both
// are -1 where the broker knows none.
func decodeEpochEnd(b []byte) ([]partitionOffset, error) {
	var out []partitionOffset
	d := decoder{b: b}
	d.int32() // throttle time
	for n := d.array(6); n > 0 && d.err == nil; n-- {
		d.string()
		for m := d.array(18); m > 0 && d.err == nil; m-- {
			out = append(out, partitionOffset{err: kafka.Error(d.int16()), partition: d.int32(), term: d.int32(), offset: d.int64()})
		}
	}
	return out, d.err
}

// encodeTopicConfig asks for one setting of a topic.
func encodeTopicConfig(topic, name string) []byte {
	var e encoder
	e.array(1)
	e.int8(2) // a topic
	e.string(topic)
	e.array(1)
	e.string(name)
	e.bool(false) // no synonyms
	return e.b
}

// decodeTopicConfig returns the value of a setting; empty when the answer has none.
func decodeTopicConfig(b []byte, name string) (string, kafka.Error, error) {
	value, code := "", kafka.Error(0)
	d := decoder{b: b}
	d.int32() // throttle time
	for n := d.array(11); n > 0 && d.err == nil; n-- {
		if c := kafka.Error(d.int16()); c != 0 {
			code = c
		}
		d.string() // message
		d.int8()
		d.string()
		for m := d.array(11); m > 0 && d.err == nil; m-- {
			is, v := d.string(), d.string()
			d.take(3) // read only, where it comes from, sensitive
			for s := d.array(5); s > 0 && d.err == nil; s-- {
				d.string()
				d.string()
				d.int8()
			}
			if is == name {
				value = v
			}
		}
	}
	return value, code, d.err
}

func encodeFindCoordinator(group string) []byte {
	var e encoder
	e.string(group)
	e.int8(0) // of a group
	return e.b
}

func decodeFindCoordinator(b []byte) (addr string, code kafka.Error, err error) {
	d := decoder{b: b}
	d.int32() // throttle time
	code = kafka.Error(d.int16())
	d.string() // message
	d.int32()  // node
	host, port := d.string(), d.int32()
	return net.JoinHostPort(host, strconv.Itoa(int(port))), code, d.err
}

// encodeOffsetCommit commits offsets without being a member of the group.
func encodeOffsetCommit(group, topic string, offsets []partitionOffset) []byte {
	var e encoder
	e.string(group)
	e.int32(-1) // no generation
	e.string("")
	e.int64(-1) // the broker's retention
	e.array(1)
	e.string(topic)
	e.array(len(offsets))
	for _, p := range offsets {
		e.int32(p.partition)
		e.int64(p.offset)
		e.int16(-1) // no metadata
	}
	return e.b
}

func decodeOffsetCommit(b []byte) ([]partitionOffset, error) {
	var out []partitionOffset
	d := decoder{b: b}
	for n := d.array(6); n > 0 && d.err == nil; n-- {
		d.string()
		for m := d.array(6); m > 0 && d.err == nil; m-- {
			out = append(out, partitionOffset{partition: d.int32(), err: kafka.Error(d.int16())})
		}
	}
	return out, d.err
}

func encodeSASLHandshake(mechanism string) []byte {
	var e encoder
	e.string(mechanism)
	return e.b
}

func decodeSASLHandshake(b []byte) (mechanisms []string, code kafka.Error, err error) {
	d := decoder{b: b}
	code = kafka.Error(d.int16())
	for n := d.array(2); n > 0 && d.err == nil; n-- {
		mechanisms = append(mechanisms, d.string())
	}
	return mechanisms, code, d.err
}

func encodeSASLAuthenticate(data []byte) []byte {
	var e encoder
	e.int32(int32(len(data)))
	e.bytes(data)
	return e.b
}

func decodeSASLAuthenticate(b []byte) (data []byte, message string, code kafka.Error, err error) {
	d := decoder{b: b}
	code = kafka.Error(d.int16())
	message = d.string()
	data = d.bytes()
	return data, message, code, d.err
}
