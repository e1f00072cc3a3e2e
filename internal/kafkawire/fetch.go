package kafkawire

import (
	"errors"
	"math"
	"time"

	"github.com/segmentio/kafka-go"
)

// The fetch messages are encoded here and not taken from kafka-go, because kafka-go's Decoder drops what correctness
// needs: the last offset of a batch (without it a reader stays for ever at a batch whose last record was compacted
// away), and errors after the first good batch of a response. From version 13 on a fetch names the topic by its id, so
// a broker refuses to read a re-created topic to us.
const (
	FetchMinVersion  = 4  // the first that returns v2 batches and aborted transactions
	FetchNameVersion = 11 // the newest of the older layout, with topic names
	FetchIDVersion   = 13 // flexible layout, with topic ids
)

// FetchVersion chooses among the versions [low, high] of a broker.
func FetchVersion(low, high int16, id TopicID) (int16, error) {
	switch {
	case id != (TopicID{}) && low <= FetchIDVersion && high >= FetchIDVersion:
		return FetchIDVersion, nil
	case low <= FetchNameVersion && high >= FetchMinVersion:
		return min(high, FetchNameVersion), nil
	default:
		return 0, errors.New("no common version of the fetch request: Kafka 0.11 or newer is needed")
	}
}

// FetchRequest asks for records of one partition.
type FetchRequest struct {
	Topic     string
	ID        TopicID
	Partition int32
	Term      int32 // leader epoch as we know it, -1: unknown
	LastTerm  int32 // leader epoch of the last batch read, -1: none; the broker compares it with its own history
	Offset    int64
	MaxWait   time.Duration
	MaxBytes  int32
	Committed bool // hide what is not decided yet, and name what was aborted
}

// Encode makes the body of the request in a version that [FetchVersion] returns.
func (q *FetchRequest) Encode(version int16) []byte {
	e := Encoder{Flex: version >= 12}
	e.Int32(-1) // no replica
	e.Int32(int32(q.MaxWait.Milliseconds()))
	e.Int32(1) // smallest answer worth sending: one byte
	// The bound of the only partition below is what counts. kfake leaves the aborted transactions out when the bound of the
	// whole answer cuts it.
	e.Int32(math.MaxInt32)
	e.Bool(q.Committed)
	if version >= 7 {
		e.Int32(0)  // no fetch session: one request asks for one partition
		e.Int32(-1) // and no session epoch
	}
	e.Array(1)
	if version >= 13 {
		e.Bytes(q.ID[:])
	} else {
		e.Text(q.Topic)
	}
	e.Array(1)
	e.Int32(q.Partition)
	if version >= 9 {
		e.Int32(q.Term)
	}
	e.Int64(q.Offset)
	if version >= 12 {
		e.Int32(q.LastTerm)
	}
	if version >= 5 {
		e.Int64(-1) // log start: for followers only
	}
	e.Int32(q.MaxBytes)
	e.Tags()
	e.Tags()
	if version >= 7 {
		e.Array(0) // nothing to forget
	}
	if version >= 11 {
		e.Text("") // rack
	}
	e.Tags()
	return e.B
}

// AbortedTxn is a transaction that was aborted: its producer and first offset.
type AbortedTxn struct{ Producer, First int64 }

// FetchResponse is what an answer says of a partition.
type FetchResponse struct {
	// Present is false when the answer is about no partition at all, as from a broker that throttles us.
	Present       bool
	Throttle      time.Duration
	Err           kafka.Error
	HighWatermark int64
	Stable        int64 // last stable offset: every transaction before it has ended
	LogStart      int64 // -1: not sent
	Aborted       []AbortedTxn
	// Diverges: the broker's history of leader epochs and ours part at DivergedAt, so records we have read do not
	// exist any more.
	Diverges   bool
	DivergedAt int64
	Records    []byte // whole batches, and perhaps the beginning of one more
}

// DecodeFetch reads the body of a response that answers a request for one partition.
func DecodeFetch(b []byte, version int16, partition int32) (FetchResponse, error) {
	d := Decoder{B: b, Flex: version >= 12}
	r := decodeFetchFrom(&d, version, partition)
	return r, d.Err
}

// PeekFetch reads the beginning of a response of which the rest is missing: its records are those that are there.
func PeekFetch(b []byte, version int16, partition int32) FetchResponse {
	d := Decoder{B: b, Flex: version >= 12, Part: true}
	return decodeFetchFrom(&d, version, partition)
}

func decodeFetchFrom(d *Decoder, version int16, partition int32) FetchResponse {
	r := FetchResponse{Throttle: time.Duration(d.Int32()) * time.Millisecond}
	if version >= 7 {
		r.Err = kafka.Error(d.Int16())
		d.Int32() // session
	}
	for n := d.Array(6); n > 0 && d.Err == nil; n-- {
		if version >= 13 {
			d.Take(len(TopicID{}))
		} else {
			d.Text()
		}
		for m := d.Array(20); m > 0 && d.Err == nil; m-- {
			r.partition(d, version, partition)
		}
		d.Tags(nil)
	}
	d.Tags(nil)
	return r
}

func (r *FetchResponse) partition(d *Decoder, version int16, partition int32) {
	p := FetchResponse{Present: true, Throttle: r.Throttle, LogStart: -1, DivergedAt: -1}
	index := d.Int32()
	p.Err = kafka.Error(d.Int16())
	p.HighWatermark, p.Stable = d.Int64(), d.Int64()
	if version >= 5 {
		p.LogStart = d.Int64()
	}
	for n := d.Array(16); n > 0 && d.Err == nil; n-- {
		p.Aborted = append(p.Aborted, AbortedTxn{Producer: d.Int64(), First: d.Int64()})
		d.Tags(nil)
	}
	if version >= 11 {
		d.Int32() // preferred replica: only sent to clients with a rack
	}
	p.Records = d.Bytes()
	d.Tags(func(tag uint64, field *Decoder) {
		if tag == 0 { // diverging epoch: {epoch, end offset}
			field.Int32()
			p.DivergedAt = field.Int64()
			p.Diverges = p.DivergedAt >= 0
			field.Tags(nil)
		}
	})
	if index == partition {
		*r = p
	}
}
