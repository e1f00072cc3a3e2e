package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/pipeline"
)

// badRows is a job's policy for records that cannot be used, with counts by reason.
type badRows struct {
	policy pipeline.BadRowPolicy
	skip   *pipeline.SkipBadRows
	closer io.Closer
	guard  *badGuard
}

// badRows makes the policy of train.on_bad_row.
func newBadRows(c *spec.Config, worker string, log *slog.Logger) (*badRows, error) {
	b := &badRows{skip: &pipeline.SkipBadRows{}}
	b.guard = &badGuard{next: b.skip, count: b.skip, share: c.Train.MaxBadShare, format: c.Parse.Format, log: log, now: time.Now, blocks: map[[2]string]int64{}}
	switch c.Train.OnBadRow {
	case "skip":
		b.policy = b.guard
	case "dead_letter":
		d := c.Train.DeadLetter
		if d == nil || d.Value() == nil {
			return nil, fmt.Errorf("job: train.on_bad_row is dead_letter, but train.dead_letter does not say where to: %w", pipeline.ErrConfig)
		}
		target, err := d.Value().Open(worker)
		if err != nil {
			return nil, err
		}
		b.guard.next = &countedPolicy{b.skip, target}
		b.policy, b.closer = b.guard, target
	default:
		b.policy = failing{}
	}
	return b, nil
}

// failing is [pipeline.FailOnBadRow] with what a user can do.
type failing struct{ pipeline.FailOnBadRow }

// BadRow implements [pipeline.BadRowPolicy].
func (f failing) BadRow(ctx context.Context, err *pipeline.DataError, payload []byte) error {
	return fault.Mark(f.FailOnBadRow.BadRow(ctx, err, payload), pipeline.ErrBadData, "train.on_bad_row: skip leaves out what cannot be read, dead_letter keeps it")
}

// flush makes the dead letters so far durable; it is called before positions after them are stored.
func (b *badRows) flush() error {
	if f, ok := b.closer.(interface{ Flush() error }); ok {
		return f.Flush()
	}
	return nil
}

func (b *badRows) close() error {
	if b.closer == nil {
		return nil
	}
	return b.closer.Close()
}

// countedPolicy counts what another policy takes.
type countedPolicy struct {
	count *pipeline.SkipBadRows
	next  pipeline.BadRowPolicy
}

// BadRow implements [pipeline.BadRowPolicy].
func (c *countedPolicy) BadRow(ctx context.Context, err *pipeline.DataError, payload []byte) error {
	return errors.Join(c.count.BadRow(ctx, err, payload), c.next.BadRow(ctx, err, payload))
}
