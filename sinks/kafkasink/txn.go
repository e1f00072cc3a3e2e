package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/internal/kafkawire"
	"github.com/monolith-go/monolith/pipeline"
)

// txnTimeout is after how long brokers abort a transaction by themselves. Ours take milliseconds; one that was left by a
// process that died hides what follows it in its partition from readers of committed records until its split has a
// new owner, or that long.
const txnTimeout = time.Minute

// transaction is a transactional producer to one partition. Registering it under its id fences those before it and aborts
// what they have not committed.
type transaction struct {
	p         *Producer
	by        producing
	partition int32
	addr      string // of the coordinator; empty: ask
}

// coordinated sends a request to the coordinator of the transactional id until it answers without an error. The code is what the
// answer says.
func (t *transaction) coordinated(ctx context.Context, key kafkawire.APIKey, versions []int16, body func() []byte, answer func([]byte) (kafka.Error, error)) error {
	err := t.p.patiently(ctx, func(ctx context.Context, cl *kafkawire.Client) (err error) {
		defer func() {
			if err != nil {
				t.addr = ""
			}
		}()
		if t.addr == "" {
			cn, err := cl.Anywhere(ctx)
			if err != nil {
				return err
			}
			b, err := cn.Call(ctx, kafkawire.FindCoordinator, kafkawire.FindCoordinatorVersion, kafkawire.EncodeFindCoordinator(t.by.txn, kafkawire.OfTransaction))
			if err != nil {
				return err
			}
			addr, code, err := kafkawire.DecodeFindCoordinator(b)
			switch {
			case err != nil:
				return cn.Malformed(kafkawire.FindCoordinator, err)
			case code != 0:
				return code
			}
			t.addr = addr
		}
		cn, err := cl.At(ctx, t.addr)
		if err != nil {
			return err
		}
		version, err := cn.Version(key, versions...)
		if err != nil {
			return err
		}
		b, err := cn.Call(ctx, key, version, body())
		if err != nil {
			return err
		}
		code, err := answer(b)
		if err != nil {
			return cn.Malformed(key, err)
		}
		return fault(code)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// fault makes an error of a code: [pipeline.ErrFenced] where another producer has the id, or where the brokers have given this
// one up. Either way its owner is to begin again from what is stored.
func fault(code kafka.Error) error {
	switch code {
	case 0:
		return nil
	case kafka.ProducerFenced, kafka.InvalidProducerEpoch, kafka.InvalidProducerIDMapping, kafka.UnknownProducerId,
		kafka.InvalidTransactionState, kafka.OutOfOrderSequenceNumber:
		return fmt.Errorf("%w: %w", code, pipeline.ErrFenced)
	}
	return code
}

// register takes the transactional id over. When it returns, everything that earlier holders have begun is committed or
// aborted for good.
func (t *transaction) register(ctx context.Context) error {
	return t.coordinated(ctx, kafkawire.InitProducerID, []int16{initProducerOld, initProducerNew},
		func() []byte { return encodeInitProducer(t.by.txn, txnTimeout) },
		func(b []byte) (code kafka.Error, err error) {
			id, epoch, code, err := decodeInitProducer(b)
			if code == 0 && err == nil {
				t.by.id, t.by.epoch, t.by.seq = id, epoch, 0
			}
			return code, err
		})
}

// commit writes records within one transaction: readers of committed records see all of them or none. After an error it is
// not known which, until the id is registered again.
func (t *transaction) commit(ctx context.Context, records []Record) error {
	err := t.coordinated(ctx, kafkawire.AddToTxn, []int16{addToTxnOld, addToTxnNew},
		func() []byte { return encodeAddToTxn(t.by, t.p.opts.Topic, t.partition) }, decodeAddToTxn)
	if err != nil {
		return err
	}
	index := make([]int, len(records))
	for i := range index {
		index[i] = i
	}
	for len(index) > 0 {
		n := t.p.fits(records, index)
		// The sequence number makes a request that is repeated, because its answer was lost, one that is known already.
		err := t.p.patiently(ctx, func(ctx context.Context, cl *kafkawire.Client) error {
			err := t.p.send(ctx, cl, records, index[:n], t.partition, t.by)
			if code, ok := errors.AsType[kafka.Error](err); ok {
				if code == kafka.DuplicateSequenceNumber {
					return nil
				}
				if f := fault(code); errors.Is(f, pipeline.ErrFenced) {
					return f
				}
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", kafkawire.Produce, err)
		}
		t.by.seq = next(t.by.seq, n)
		index = index[n:]
	}
	return t.coordinated(ctx, kafkawire.EndTxn, []int16{endTxnOld, endTxnNew},
		func() []byte { return encodeEndTxn(t.by, true) }, decodeEndTxn)
}

// next is the sequence number n records on; after the greatest comes 0.
func next(seq int32, n int) int32 { return int32((int64(seq) + int64(n)) % (1 << 31)) }
