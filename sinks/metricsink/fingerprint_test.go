package metricsink_test

import (
	"testing"

	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sinks/metricsink"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[struct{}]{
		New: func(*testing.T, struct{}) interface{ Fingerprint() string } {
			return metricsink.New[*trainstep.Scored]()
		},
	})
}
