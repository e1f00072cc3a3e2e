package batch_test

import (
	"testing"

	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/transforms/batch"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[batch.Options]{
		Options: batch.Options{Rows: 10},
		New:     func(_ *testing.T, o batch.Options) interface{ Fingerprint() string } { return batch.New(o) },
	})
}
