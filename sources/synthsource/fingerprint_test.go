package synthsource_test

import (
	"testing"
	"time"

	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/synthsource"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	options, err := synthsource.NewStream(synthsource.Options{Start: time.Unix(1e9, 0), Rate: 10}) // all defaults filled in
	if err != nil {
		t.Fatal(err)
	}
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[synthsource.Options]{
		Options: options.Options(),
		New: func(t *testing.T, o synthsource.Options) interface{ Fingerprint() string } {
			t.Helper()
			s, err := synthsource.New(o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Other: map[string]any{"Start": time.Unix(1e9+1, 0), "Drift": &synthsource.Drift{Turnover: 0.1}},
		Free: map[string]string{
			"Rate":      "when examples come, not which",
			"BlockRows": "rows and positions are the same however they are cut into blocks",
		},
	})
}
