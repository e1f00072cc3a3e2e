package kafkawire

import (
	"encoding/hex"
	"net"
	"strconv"

	"github.com/segmentio/kafka-go"
)

// TopicID is the identity of a topic: a topic that is deleted and re-created under its old name has another one. Zero
// where brokers are older than Kafka 2.8 and have none.
type TopicID [16]byte

// String returns the identity in hexadecimal digits; empty where there is none.
func (id TopicID) String() string {
	if id == (TopicID{}) {
		return ""
	}
	return hex.EncodeToString(id[:])
}

// Cluster is what a metadata response has.
type Cluster struct {
	ID      string           // empty: not sent
	Brokers map[int32]string // addresses by node id
	// Controller is the node id of the broker to send changes of topics to; -1: not known.
	Controller int32
	Topics     []TopicMeta
}

// TopicMeta is what it has of a topic.
type TopicMeta struct {
	Err        kafka.Error
	Name       string
	ID         TopicID
	Internal   bool
	Partitions []PartitionMeta
}

// PartitionMeta is what it has of a partition.
type PartitionMeta struct {
	Err        kafka.Error
	Partition  int32
	Leader     int32 // a node id; -1: none
	LeaderTerm int32 // the leader's epoch; -1 when the broker does not send it
}

// Topic returns what is known of a topic, nil: nothing.
func (c *Cluster) Topic(name string) *TopicMeta {
	for i := range c.Topics {
		if c.Topics[i].Name == name {
			return &c.Topics[i]
		}
	}
	return nil
}

// Partition returns what is known of a partition, nil: nothing.
func (t *TopicMeta) Partition(p int32) *PartitionMeta {
	for i := range t.Partitions {
		if t.Partitions[i].Partition == p {
			return &t.Partitions[i]
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
	e := Encoder{Flex: true}
	if topic == "" {
		e.Array(-1)
	} else {
		e.Array(1)
		var none TopicID
		e.Bytes(none[:])
		e.Text(topic)
		e.Tags()
	}
	e.Bool(false) // never create topics by asking for them
	if version <= 10 {
		e.Bool(false) // Cluster operations
	}
	e.Bool(false) // topic operations
	e.Tags()
	return e.B
}

// decodeMetadata reads the body of a metadata response of version 10 to 12.
func decodeMetadata(b []byte, version int16) (*Cluster, error) {
	d := Decoder{B: b, Flex: true}
	c := &Cluster{Brokers: map[int32]string{}}
	d.Int32() // throttle time
	for n := d.Array(11); n > 0 && d.Err == nil; n-- {
		id, host, port := d.Int32(), d.Text(), d.Int32()
		d.Text() // rack
		d.Tags(nil)
		c.Brokers[id] = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	c.ID = d.Text()
	c.Controller = d.Int32()
	for n := d.Array(26); n > 0 && d.Err == nil; n-- {
		t := TopicMeta{Err: kafka.Error(d.Int16()), Name: d.Text()}
		copy(t.ID[:], d.Take(len(t.ID)))
		t.Internal = d.Int8() != 0
		for m := d.Array(18); m > 0 && d.Err == nil; m-- {
			p := PartitionMeta{Err: kafka.Error(d.Int16()), Partition: d.Int32(), Leader: d.Int32(), LeaderTerm: d.Int32()}
			for range 3 { // replicas, in-sync replicas, offline replicas
				d.Take(4 * d.Array(4))
			}
			d.Tags(nil)
			t.Partitions = append(t.Partitions, p)
		}
		d.Int32() // operations
		d.Tags(nil)
		c.Topics = append(c.Topics, t)
	}
	if version <= 10 {
		d.Int32() // Cluster operations
	}
	d.Tags(nil)
	return c, d.Err
}

// encodeOldMetadata makes the body of a request of version 4, for brokers that know no topic ids.
func encodeOldMetadata(topic string) []byte {
	var e Encoder
	if topic == "" {
		e.Array(-1)
	} else {
		e.Array(1)
		e.Text(topic)
	}
	e.Bool(false) // never create topics by asking for them
	return e.B
}

// decodeOldMetadata reads the body of a response of version 4.
func decodeOldMetadata(b []byte) (*Cluster, error) {
	d := Decoder{B: b}
	c := &Cluster{Brokers: map[int32]string{}}
	d.Int32() // throttle time
	for n := d.Array(12); n > 0 && d.Err == nil; n-- {
		id, host, port := d.Int32(), d.Text(), d.Int32()
		d.Text() // rack
		c.Brokers[id] = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	c.ID = d.Text()
	c.Controller = d.Int32()
	for n := d.Array(9); n > 0 && d.Err == nil; n-- {
		t := TopicMeta{Err: kafka.Error(d.Int16()), Name: d.Text()}
		t.Internal = d.Int8() != 0
		for m := d.Array(18); m > 0 && d.Err == nil; m-- {
			// A leader epoch is only sent from version 7 on; sending none is always right.
			p := PartitionMeta{Err: kafka.Error(d.Int16()), Partition: d.Int32(), Leader: d.Int32(), LeaderTerm: -1}
			for range 2 { // replicas, in-sync replicas
				d.Take(4 * d.Array(4))
			}
			t.Partitions = append(t.Partitions, p)
		}
		c.Topics = append(c.Topics, t)
	}
	return c, d.Err
}
