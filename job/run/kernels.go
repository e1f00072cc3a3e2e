package run

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/job/stored"
)

// recordKernels stores, with everything that snapshots have, which family of kernels a job began with. Families round differently: a
// deterministic job that continues with another is notified of it.
func (t *trainer) recordKernels(ctx context.Context) error {
	here := simd.Active().String()
	began, err := t.shards.InitState(ctx, stored.KernelsKey, []byte(here))
	if err != nil {
		return fmt.Errorf("job: storing the family of kernels: %w", err)
	}
	if b := string(began); b != here && t.cfg.Deterministic && !t.otherKernels {
		t.otherKernels = true
		t.notice("the job began with the kernels %s and continues with %s: results are as good, but have other bits; %s=%s forces the former where the processor has them", b, here, simd.Env, b)
	}
	return nil
}
