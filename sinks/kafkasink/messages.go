package kafkasink

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"

	"github.com/monolith-go/monolith/internal/kafkawire"
)

// Versions of requests, of which the newest that a broker has is used. All have the older layout.
const (
	produceOld        = 3 // the first with batches of format 2; every broker from Kafka 0.11 on has it
	produceZstd       = 7 // the first that may hold zstd
	produceWithErrors = 8 // the first whose answer says which record is wrong
	createTopicsOld   = 2
	createTopicsUnset = 4 // the first that leaves numbers to the broker; its layout is the older one's
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Where things are in a batch, https://kafka.apache.org/documentation/#recordbatch.
const (
	batchLengthAt = 8
	batchPrefix   = 12 // base offset and length, which the length does not count
	batchCRCAt    = 17
	batchAttrsAt  = 21 // what the checksum covers begins here
)

// attrTransactional marks a batch whose records count once its producer's transaction is committed.
const attrTransactional = 1 << 4

// producing is who sends a batch. The zero value is nobody in particular: not idempotent.
type producing struct {
	txn   string // transactional id; empty: none
	id    int64
	epoch int16
	seq   int32 // of the first record
}

// maxBatch is what a request can hold, whose length is of 31 bits.
const maxBatch = math.MaxInt32 - 1<<20

// encodeBatch makes a record batch of format 2 of the records with the given indexes, compressed with the codec of the
// given number. There is at least one. Records without a time get now.
func encodeBatch(records []Record, index []int, codec int, now time.Time, by producing) ([]byte, error) {
	millis := func(i int) int64 {
		if t := records[i].Time; !t.IsZero() {
			return t.UnixMilli()
		}
		return now.UnixMilli()
	}
	first, last := millis(index[0]), int64(math.MinInt64)
	size := 0
	for _, at := range index {
		size += len(records[at].Key) + len(records[at].Value) + 32 // lengths, time and offset
	}
	body, one := make([]byte, 0, size), []byte(nil)
	for i, at := range index {
		r := &records[at]
		last = max(last, millis(at))
		one = append(one[:0], 0) // attributes
		one = binary.AppendVarint(one, millis(at)-first)
		one = binary.AppendVarint(one, int64(i))
		one = appendNullable(one, r.Key)
		one = appendNullable(one, r.Value)
		one = binary.AppendVarint(one, int64(len(r.Headers)))
		for _, h := range r.Headers {
			one = append(binary.AppendVarint(one, int64(len(h.Key))), h.Key...)
			one = appendNullable(one, h.Value)
		}
		body = append(binary.AppendVarint(body, int64(len(one))), one...)
	}
	if codec > 0 {
		var buf bytes.Buffer
		w := compress.Compression(codec).Codec().NewWriter(&buf)
		if _, err := w.Write(body); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		body = buf.Bytes()
	}
	if len(body) > maxBatch {
		return nil, fmt.Errorf("%d bytes: %w", len(body), kafka.MessageSizeTooLarge)
	}
	e := kafkawire.Encoder{B: make([]byte, 0, 61+len(body))}
	e.Int64(0)  // the broker knows the offset
	e.Int32(0)  // length
	e.Int32(-1) // the leader's epoch, which the broker knows too
	e.Int8(2)   // format
	e.Int32(0)  // checksum
	if by.txn == "" {
		by.id, by.epoch, by.seq = -1, -1, -1
		e.Int16(int16(codec))
	} else {
		e.Int16(int16(codec) | attrTransactional)
	}
	e.Int32(int32(len(index) - 1))
	e.Int64(first)
	e.Int64(last)
	e.Int64(by.id)
	e.Int16(by.epoch)
	e.Int32(by.seq)
	e.Int32(int32(len(index)))
	e.Bytes(body)
	binary.BigEndian.PutUint32(e.B[batchLengthAt:], uint32(len(e.B)-batchPrefix))
	binary.BigEndian.PutUint32(e.B[batchCRCAt:], crc32.Checksum(e.B[batchAttrsAt:], castagnoli))
	return e.B, nil
}

// appendNullable writes bytes of a record; nil is null.
func appendNullable(b, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(b, -1)
	}
	return append(binary.AppendVarint(b, int64(len(v))), v...)
}

// encodeProduce makes the body of a request that all replicas in sync acknowledge, within the time given.
func encodeProduce(txn, topic string, partition int32, within time.Duration, batch []byte) []byte {
	e := kafkawire.Encoder{B: make([]byte, 0, 64+len(txn)+len(topic)+len(batch))}
	if txn == "" {
		e.Int16(-1) // no transaction
	} else {
		e.Text(txn)
	}
	e.Int16(-1) // acknowledged by all
	e.Int32(int32(min(within.Milliseconds(), math.MaxInt32)))
	e.Array(1)
	e.Text(topic)
	e.Array(1)
	e.Int32(partition)
	e.Int32(int32(len(batch)))
	e.Bytes(batch)
	return e.B
}

// produced is what an answer says of a partition.
type produced struct {
	partition int32
	err       kafka.Error
	message   string // of the broker about err; empty: none
	record    int32  // the first that is wrong; -1: none is named
}

func decodeProduce(b []byte, version int16) ([]produced, error) {
	var out []produced
	d := kafkawire.Decoder{B: b}
	for n := d.Array(6); n > 0 && d.Err == nil; n-- {
		d.Text()
		for m := d.Array(22); m > 0 && d.Err == nil; m-- {
			p := produced{partition: d.Int32(), err: kafka.Error(d.Int16()), record: -1}
			d.Int64() // offset
			d.Int64() // time of appending
			if version >= produceZstd {
				d.Int64() // beginning of the log
			}
			if version >= produceWithErrors {
				for k := d.Array(6); k > 0 && d.Err == nil; k-- {
					at, message := d.Int32(), d.Text()
					if p.record < 0 {
						p.record, p.message = at, message
					}
				}
				if message := d.Text(); p.message == "" {
					p.message = message
				}
			}
			out = append(out, p)
		}
	}
	return out, d.Err
}

// fault returns an answer's error for a request of n records, nil: all are written.
func (p *produced) fault(n int) error {
	var err error = p.err
	switch {
	case p.err == 0:
		return nil
	case p.message != "":
		err = fmt.Errorf("%w: %s", p.err, p.message)
	}
	if p.record >= 0 {
		err = fmt.Errorf("record %d of %d: %w", p.record, n, err)
	}
	return err
}

// setting is a key of a topic's configuration with its value.
type setting struct{ key, value string }

// encodeCreateTopic makes the body of a request for one topic; numbers of -1 leave the choice to the broker.
func encodeCreateTopic(topic string, partitions, replication int, config []setting, within time.Duration) []byte {
	var e kafkawire.Encoder
	e.Array(1)
	e.Text(topic)
	e.Int32(int32(partitions))
	e.Int16(int16(replication))
	e.Array(0) // brokers choose where replicas are
	e.Array(len(config))
	for _, s := range config {
		e.Text(s.key)
		e.Text(s.value)
	}
	e.Int32(int32(min(within.Milliseconds(), math.MaxInt32)))
	e.Bool(false) // not only to see whether it would do
	return e.B
}

// decodeCreateTopic returns what the answer says of the topic, and the broker's own words about it.
func decodeCreateTopic(b []byte, topic string) (code kafka.Error, message string, err error) {
	d := kafkawire.Decoder{B: b}
	d.Int32() // throttle time
	code = kafka.UnknownTopicOrPartition
	for n := d.Array(6); n > 0 && d.Err == nil; n-- {
		name, c, m := d.Text(), kafka.Error(d.Int16()), d.Text()
		if name == topic {
			code, message = c, m
		}
	}
	return code, message, d.Err
}

// Versions of the requests about transactions, of the older layout.
const (
	initProducerOld = 0
	initProducerNew = 1
	addToTxnOld     = 0
	addToTxnNew     = 2
	endTxnOld       = 0
	endTxnNew       = 2
)

func encodeInitProducer(txn string, timeout time.Duration) []byte {
	var e kafkawire.Encoder
	e.Text(txn)
	e.Int32(int32(min(timeout.Milliseconds(), math.MaxInt32)))
	return e.B
}

func decodeInitProducer(b []byte) (id int64, epoch int16, code kafka.Error, err error) {
	d := kafkawire.Decoder{B: b}
	d.Int32() // throttle time
	code = kafka.Error(d.Int16())
	id, epoch = d.Int64(), d.Int16()
	return id, epoch, code, d.Err
}

func encodeAddToTxn(by producing, topic string, partition int32) []byte {
	var e kafkawire.Encoder
	e.Text(by.txn)
	e.Int64(by.id)
	e.Int16(by.epoch)
	e.Array(1)
	e.Text(topic)
	e.Array(1)
	e.Int32(partition)
	return e.B
}

// decodeAddToTxn returns the first code that is not 0.
func decodeAddToTxn(b []byte) (code kafka.Error, err error) {
	d := kafkawire.Decoder{B: b}
	d.Int32() // throttle time
	for n := d.Array(6); n > 0 && d.Err == nil; n-- {
		d.Text()
		for m := d.Array(6); m > 0 && d.Err == nil; m-- {
			d.Int32()
			if c := kafka.Error(d.Int16()); code == 0 {
				code = c
			}
		}
	}
	return code, d.Err
}

func encodeEndTxn(by producing, commit bool) []byte {
	var e kafkawire.Encoder
	e.Text(by.txn)
	e.Int64(by.id)
	e.Int16(by.epoch)
	e.Bool(commit)
	return e.B
}

func decodeEndTxn(b []byte) (kafka.Error, error) {
	d := kafkawire.Decoder{B: b}
	d.Int32() // throttle time
	return kafka.Error(d.Int16()), d.Err
}
