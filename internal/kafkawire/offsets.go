package kafkawire

import (
	"net"
	"strconv"

	"github.com/segmentio/kafka-go"
)

// Versions of requests of the older layout, which every broker from Kafka 0.11 to 4 knows.
const (
	// ListOffsetsOld is the first with an isolation level, ListOffsetsWithTerm the first with epochs of leaders.
	ListOffsetsOld      = 2
	ListOffsetsWithTerm = 4
	// FindCoordinatorVersion is the first that distinguishes groups from transactions.
	FindCoordinatorVersion = 1
)

// What a coordinator is of.
const (
	OfGroup       = 0
	OfTransaction = 1
)

// Times that stand for places in [EncodeListOffsets].
const (
	AtLatest   = -1
	AtEarliest = -2
)

// PartitionTerm is a partition with the epoch of its leader as we know it, -1: unknown.
type PartitionTerm struct{ Partition, Term int32 }

// EncodeListOffsets makes the body of a request of version 2 or 4 for the offsets at a time, or at one of the places that
// have a name.
func EncodeListOffsets(topic string, ps []PartitionTerm, at int64, committed bool, version int16) []byte {
	var e Encoder
	e.Int32(-1) // no replica
	e.Bool(committed)
	e.Array(1)
	e.Text(topic)
	e.Array(len(ps))
	for _, p := range ps {
		e.Int32(p.Partition)
		if version >= ListOffsetsWithTerm {
			e.Int32(p.Term)
		}
		e.Int64(at)
	}
	return e.B
}

// PartitionOffset is what an answer says of a partition.
type PartitionOffset struct {
	Partition int32
	Err       kafka.Error
	Offset    int64
	Term      int32
}

// DecodeListOffsets reads the answer of that version.
func DecodeListOffsets(b []byte, version int16) ([]PartitionOffset, error) {
	var out []PartitionOffset
	d := Decoder{B: b}
	d.Int32() // throttle time
	for n := d.Array(6); n > 0 && d.Err == nil; n-- {
		d.Text()
		for m := d.Array(22); m > 0 && d.Err == nil; m-- {
			p := PartitionOffset{Partition: d.Int32(), Err: kafka.Error(d.Int16())}
			d.Int64() // time
			p.Offset, p.Term = d.Int64(), -1
			if version >= ListOffsetsWithTerm {
				p.Term = d.Int32()
			}
			out = append(out, p)
		}
	}
	return out, d.Err
}

// EncodeFindCoordinator asks which broker keeps the state of a consumer group or a transactional id.
func EncodeFindCoordinator(name string, of int8) []byte {
	var e Encoder
	e.Text(name)
	e.Int8(of)
	return e.B
}

// DecodeFindCoordinator returns the broker's address.
func DecodeFindCoordinator(b []byte) (addr string, code kafka.Error, err error) {
	d := Decoder{B: b}
	d.Int32() // throttle time
	code = kafka.Error(d.Int16())
	d.Text()  // message
	d.Int32() // node
	host, port := d.Text(), d.Int32()
	return net.JoinHostPort(host, strconv.Itoa(int(port))), code, d.Err
}
