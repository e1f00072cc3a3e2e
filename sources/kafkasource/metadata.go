package kafkasource

import (
	"net"
	"strconv"

	"github.com/segmentio/kafka-go"
)

// topicID is the identity of a topic: a topic that is deleted and re-created under its old name has another one. Zero
// where brokers are older than Kafka 2.8 and have none.
type topicID [16]byte

// cluster is what a metadata response tells.
type cluster struct {
	id      string           // empty: not told
	brokers map[int32]string // addresses by node id
	topics  []topicMeta
}

type topicMeta struct {
	err        kafka.Error
	name       string
	id         topicID
	internal   bool
	partitions []partitionMeta
}

type partitionMeta struct {
	err        kafka.Error
	partition  int32
	leader     int32
	leaderTerm int32 // the leader's epoch; -1 when the broker does not tell
}

func (c *cluster) topic(name string) *topicMeta {
	for i := range c.topics {
		if c.topics[i].name == name {
			return &c.topics[i]
		}
	}
	return nil
}

func (t *topicMeta) partition(p int32) *partitionMeta {
	for i := range t.partitions {
		if t.partitions[i].partition == p {
			return &t.partitions[i]
		}
	}
	return nil
}

// Versions 10 to 12 of the metadata messages carry topic ids; brokers before Kafka 2.8 have none.
const (
	metadataWithIDs   = 10
	metadataMaxForIDs = 12
)

// encodeMetadata makes the body of a metadata request of version 10 to 12 for one topic, or for all when topic is empty.
func encodeMetadata(topic string, version int16) []byte {
	e := encoder{flex: true}
	if topic == "" {
		e.array(-1)
	} else {
		e.array(1)
		var none topicID
		e.bytes(none[:])
		e.string(topic)
		e.tags()
	}
	e.bool(false) // never create topics by asking for them
	if version <= 10 {
		e.bool(false) // cluster operations
	}
	e.bool(false) // topic operations
	e.tags()
	return e.b
}

// decodeMetadata reads the body of a metadata response of version 10 to 12.
func decodeMetadata(b []byte, version int16) (*cluster, error) {
	d := decoder{b: b, flex: true}
	c := &cluster{brokers: map[int32]string{}}
	d.int32() // throttle time
	for n := d.array(11); n > 0 && d.err == nil; n-- {
		id, host, port := d.int32(), d.string(), d.int32()
		d.string() // rack
		d.tags(nil)
		c.brokers[id] = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	c.id = d.string()
	d.int32() // controller
	for n := d.array(26); n > 0 && d.err == nil; n-- {
		t := topicMeta{err: kafka.Error(d.int16()), name: d.string()}
		copy(t.id[:], d.take(len(t.id)))
		t.internal = d.int8() != 0
		for m := d.array(18); m > 0 && d.err == nil; m-- {
			p := partitionMeta{err: kafka.Error(d.int16()), partition: d.int32(), leader: d.int32(), leaderTerm: d.int32()}
			for range 3 { // replicas, in-sync replicas, offline replicas
				d.take(4 * d.array(4))
			}
			d.tags(nil)
			t.partitions = append(t.partitions, p)
		}
		d.int32() // operations
		d.tags(nil)
		c.topics = append(c.topics, t)
	}
	if version <= 10 {
		d.int32() // cluster operations
	}
	d.tags(nil)
	return c, d.err
}

// encodeOldMetadata makes the body of a request of version 4, for brokers that know no topic ids.
func encodeOldMetadata(topic string) []byte {
	var e encoder
	if topic == "" {
		e.array(-1)
	} else {
		e.array(1)
		e.string(topic)
	}
	e.bool(false) // never create topics by asking for them
	return e.b
}

// decodeOldMetadata reads the body of a response of version 4.
func decodeOldMetadata(b []byte) (*cluster, error) {
	d := decoder{b: b}
	c := &cluster{brokers: map[int32]string{}}
	d.int32() // throttle time
	for n := d.array(12); n > 0 && d.err == nil; n-- {
		id, host, port := d.int32(), d.string(), d.int32()
		d.string() // rack
		c.brokers[id] = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	c.id = d.string()
	d.int32() // controller
	for n := d.array(9); n > 0 && d.err == nil; n-- {
		t := topicMeta{err: kafka.Error(d.int16()), name: d.string()}
		t.internal = d.int8() != 0
		for m := d.array(18); m > 0 && d.err == nil; m-- {
			// A leader epoch is only told from version 7 on; sending none is always right.
			p := partitionMeta{err: kafka.Error(d.int16()), partition: d.int32(), leader: d.int32(), leaderTerm: -1}
			for range 2 { // replicas, in-sync replicas
				d.take(4 * d.array(4))
			}
			t.partitions = append(t.partitions, p)
		}
		c.topics = append(c.topics, t)
	}
	return c, d.err
}
