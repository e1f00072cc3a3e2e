package kafkasource

import (
	"errors"
	"math"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/internal/kafkawire"
)

// The fetch messages are encoded here and not taken from kafka-go, because kafka-go's kafkawire.Decoder drops what correctness
// needs: the last offset of a batch (without it a reader stays for ever at a batch whose last record was compacted
// away), and errors behind the first good batch of a response. From version 13 on a fetch names the topic by its id, so
// a broker refuses to read a re-created topic to us.
const (
	fetchMinVersion  = 4  // the first that returns v2 batches and aborted transactions
	fetchNameVersion = 11 // the newest of the older layout, with topic names
	fetchIDVersion   = 13 // flexible layout, with topic ids
)

// fetchVersion chooses among the versions [low, high] of a broker.
func fetchVersion(low, high int16, id kafkawire.TopicID) (int16, error) {
	switch {
	case id != (kafkawire.TopicID{}) && low <= fetchIDVersion && high >= fetchIDVersion:
		return fetchIDVersion, nil
	case low <= fetchNameVersion && high >= fetchMinVersion:
		return min(high, fetchNameVersion), nil
	default:
		return 0, errors.New("no common version of the fetch request: Kafka 0.11 or newer is needed")
	}
}

type fetchRequest struct {
	topic     string
	id        kafkawire.TopicID
	partition int32
	term      int32 // leader epoch as we know it, -1: unknown
	lastTerm  int32 // leader epoch of the last batch read, -1: none; the broker compares it with its own history
	offset    int64
	maxWait   time.Duration
	maxBytes  int32
	committed bool
}

func (q *fetchRequest) encode(version int16) []byte {
	e := kafkawire.Encoder{Flex: version >= 12}
	e.Int32(-1) // no replica
	e.Int32(int32(q.maxWait.Milliseconds()))
	e.Int32(1) // smallest answer worth sending: one byte
	// The bound of the only partition below is what counts. kfake leaves the aborted transactions out when the bound of the
	// whole answer cuts it.
	e.Int32(math.MaxInt32)
	e.Bool(q.committed)
	if version >= 7 {
		e.Int32(0)  // no fetch session: one request asks for one partition
		e.Int32(-1) // and no session epoch
	}
	e.Array(1)
	if version >= 13 {
		e.Bytes(q.id[:])
	} else {
		e.Text(q.topic)
	}
	e.Array(1)
	e.Int32(q.partition)
	if version >= 9 {
		e.Int32(q.term)
	}
	e.Int64(q.offset)
	if version >= 12 {
		e.Int32(q.lastTerm)
	}
	if version >= 5 {
		e.Int64(-1) // log start: for followers only
	}
	e.Int32(q.maxBytes)
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

type abortedTxn struct{ producer, first int64 }

type fetchResponse struct {
	// present is false when the answer is about no partition at all, as from a broker that throttles us.
	present       bool
	throttle      time.Duration
	err           kafka.Error
	highWatermark int64
	stable        int64 // last stable offset: every transaction before it has ended
	logStart      int64 // -1: not told
	aborted       []abortedTxn
	// diverges: the broker's history of leader epochs and ours part at divergedAt, so records we have read do not
	// exist any more.
	diverges   bool
	divergedAt int64
	records    []byte // whole batches, and perhaps the beginning of one more
}

// decodeFetch reads the body of a response that answers a request for one partition.
func decodeFetch(b []byte, version int16, partition int32) (fetchResponse, error) {
	d := kafkawire.Decoder{B: b, Flex: version >= 12}
	r := decodeFetchFrom(&d, version, partition)
	return r, d.Err
}

// peekFetch reads the beginning of a response of which the rest is missing: its records are those that are there.
func peekFetch(b []byte, version int16, partition int32) fetchResponse {
	d := kafkawire.Decoder{B: b, Flex: version >= 12, Part: true}
	return decodeFetchFrom(&d, version, partition)
}

func decodeFetchFrom(d *kafkawire.Decoder, version int16, partition int32) fetchResponse {
	r := fetchResponse{throttle: time.Duration(d.Int32()) * time.Millisecond}
	if version >= 7 {
		r.err = kafka.Error(d.Int16())
		d.Int32() // session
	}
	for n := d.Array(6); n > 0 && d.Err == nil; n-- {
		if version >= 13 {
			d.Take(len(kafkawire.TopicID{}))
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

func (r *fetchResponse) partition(d *kafkawire.Decoder, version int16, partition int32) {
	p := fetchResponse{present: true, throttle: r.throttle, logStart: -1, divergedAt: -1}
	index := d.Int32()
	p.err = kafka.Error(d.Int16())
	p.highWatermark, p.stable = d.Int64(), d.Int64()
	if version >= 5 {
		p.logStart = d.Int64()
	}
	for n := d.Array(16); n > 0 && d.Err == nil; n-- {
		p.aborted = append(p.aborted, abortedTxn{producer: d.Int64(), first: d.Int64()})
		d.Tags(nil)
	}
	if version >= 11 {
		d.Int32() // preferred replica: only told to clients with a rack
	}
	p.records = d.Bytes()
	d.Tags(func(tag uint64, field *kafkawire.Decoder) {
		if tag == 0 { // diverging epoch: {epoch, end offset}
			field.Int32()
			p.divergedAt = field.Int64()
			p.diverges = p.divergedAt >= 0
			field.Tags(nil)
		}
	})
	if index == partition {
		*r = p
	}
}
