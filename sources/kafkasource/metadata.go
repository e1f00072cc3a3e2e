package kafkasource

import (
	"net"
	"strconv"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// topicID is the identity of a topic: a topic that is deleted and re-created under its old name has another one. Zero
// where brokers are older than Kafka 2.8 and have none.
type topicID [16]byte

// cluster is what a metadata response tells.
type cluster struct {
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

// Versions 10 to 12 of the metadata messages carry topic ids; kafka-go's own types end at 8.
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
	for n := d.array(11); n > 0; n-- {
		id, host, port := d.int32(), d.string(), d.int32()
		d.string() // rack
		d.tags(nil)
		c.brokers[id] = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	d.string() // cluster id
	d.int32()  // controller
	for n := d.array(26); n > 0; n-- {
		t := topicMeta{err: kafka.Error(d.int16()), name: d.string()}
		copy(t.id[:], d.take(len(t.id)))
		t.internal = d.int8() != 0
		for m := d.array(18); m > 0; m-- {
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

// oldMetadata asks a broker that knows no topic ids.
func oldMetadata(topic string) protocol.Message {
	q := &metadata.Request{}
	if topic != "" {
		q.TopicNames = []string{topic}
	}
	return q
}

func fromOldMetadata(r *metadata.Response) *cluster {
	c := &cluster{brokers: map[int32]string{}}
	for _, b := range r.Brokers {
		c.brokers[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	for _, rt := range r.Topics {
		t := topicMeta{err: kafka.Error(rt.ErrorCode), name: rt.Name, internal: rt.IsInternal}
		for _, p := range rt.Partitions {
			// A leader epoch is only told from version 7 on; sending none is always right.
			t.partitions = append(t.partitions, partitionMeta{kafka.Error(p.ErrorCode), p.PartitionIndex, p.LeaderID, -1})
		}
		c.topics = append(c.topics, t)
	}
	return c
}
