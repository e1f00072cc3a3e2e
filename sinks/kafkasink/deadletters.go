package kafkasink

import (
	"context"
	"fmt"
	"strconv"

	"github.com/monolith-go/monolith/pipeline"
)

// DeadLetters is a policy for bad rows that writes each to a topic, with where it came from and why it is bad, and continues
// without it once that is acknowledged. It is safe for concurrent use. Each bad row costs a round trip.
//
//	key      source/split
//	value    the undecoded record; empty where there is none
//	headers  source, split, position, reason, error
type DeadLetters struct{ p *Producer }

var _ pipeline.BadRowPolicy = (*DeadLetters)(nil)

// NewDeadLetters makes a policy of a producer, which the caller closes after the last use of the policy.
func NewDeadLetters(p *Producer) *DeadLetters { return &DeadLetters{p} }

// BadRow implements [pipeline.BadRowPolicy]. It fails when the row cannot be written: then it would be lost. Errors:
// [*ProduceError], together with the row's own.
func (d *DeadLetters) BadRow(ctx context.Context, bad *pipeline.DataError, payload []byte) error {
	err := d.p.Produce(ctx, Record{
		Key: []byte(bad.Source + "/" + bad.Split), Value: notNil(payload), Partition: ByKey,
		Headers: []Header{
			{"source", []byte(bad.Source)},
			{"split", []byte(bad.Split)},
			{"position", strconv.AppendInt(nil, int64(bad.Position), 10)},
			{"reason", []byte(bad.Reason)},
			{"error", []byte(bad.Error())},
		},
	})
	if err != nil {
		return fmt.Errorf("%w; and it cannot be put aside: %w", bad, err)
	}
	return nil
}
