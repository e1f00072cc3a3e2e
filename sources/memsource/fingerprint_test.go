package memsource_test

import (
	"testing"

	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/memsource"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	type options struct {
		Splits  map[string][][]byte
		Options memsource.Options
	}
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[options]{
		Options: options{Splits: map[string][][]byte{"a": {[]byte("x"), []byte("y")}}, Options: memsource.Options{MaxRows: 1}},
		New: func(_ *testing.T, o options) interface{ Fingerprint() string } {
			return memsource.Records(o.Splits, o.Options)
		},
		Other: map[string]any{"Splits": map[string][][]byte{"a": {[]byte("x")}}},
		Free:  map[string]string{"Options.MaxRows": "rows and positions are the same however they are cut into batches"},
	})
}
