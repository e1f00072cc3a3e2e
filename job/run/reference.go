package run

import (
	"context"
	"fmt"
	"strconv"

	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
)

// refer finds what the gradients of rows are sums over a batch divided by: train.reference_batch, and without it what the job, or the
// one whose parameters it began with, began with; a new job has [spec.ReferenceBatch]. That is kept with everything that snapshots have. set stores another one where the job has changed
// it; nil: that is not for this worker to do.
func (t *trainer) refer(ctx context.Context, set stored.SetState) error {
	t.reference = t.cfg.Train.ReferenceBatch
	if t.reference == 0 {
		t.reference = spec.ReferenceBatch
	}
	b, err := t.shards.InitState(ctx, stored.ReferenceBatchKey, strconv.AppendInt(nil, int64(t.reference), 10))
	if err != nil {
		return fmt.Errorf("job: storing the reference batch size: %w", err)
	}
	began := stored.ReferenceBatch(map[string][]byte{stored.ReferenceBatchKey: b})
	if began == 0 {
		return fmt.Errorf("job: the snapshot's reference batch size is %q; set train.reference_batch to what it is to be", b)
	}
	if t.cfg.Train.ReferenceBatch == 0 {
		t.reference = began
	} else if began != t.reference && set != nil {
		t.notice("gradients of rows are sums over a batch divided by %d from now on (train.reference_batch); until now they were by %d", t.reference, began)
		if err := set(ctx, stored.ReferenceBatchKey, strconv.AppendInt(nil, int64(t.reference), 10)); err != nil {
			return fmt.Errorf("job: storing the reference batch size: %w", err)
		}
	}
	return nil
}
