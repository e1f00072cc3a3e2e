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
		way := "which a program for another architecture or compiler setting has"
		if setting := simd.Setting(b); setting != "" {
			way = setting + " forces the former where the processor has them"
		}
		t.notice("the job began with the kernels %s and continues with %s: results are as good, but have other bits; %s", b, here, way)
	}
	return nil
}
