package epochsource_test

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/epochsource"
	"github.com/monolith-go/monolith/sources/memsource"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	inner := memsource.Records(map[string][][]byte{"a": {[]byte("x")}}, memsource.Options{})
	build := func(t *testing.T, o epochsource.Options) *epochsource.Source[*pipeline.Block] {
		t.Helper()
		s, err := epochsource.New[*pipeline.Block](inner, o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[epochsource.Options]{
		Options: epochsource.Options{Epochs: 2, ShuffleRows: 10, Seed: 1, BlockRows: 10, MaxWindowBytes: 100, WindowAdvice: "fewer", KeepBytes: 100, SplitName: "x"},
		New: func(t *testing.T, o epochsource.Options) interface{ Fingerprint() string } {
			t.Helper()
			return build(t, o)
		},
		Free: map[string]string{
			"BlockRows":      "rows and positions are the same however they are cut into blocks",
			"MaxWindowBytes": "a bound that fails the run",
			"WindowAdvice":   "words of that failure",
			"KeepBytes":      "memory against reading again",
			"Orders":         "how earlier runs began, which a worker reads where the others do",
			"Starts":         "as Orders",
			"SplitName":      "what the split is called",
		},
	})
	if got := build(t, epochsource.Options{}).Fingerprint(); !strings.Contains(got, inner.Fingerprint()) {
		t.Errorf("%s has nothing of the source, %s", got, inner.Fingerprint())
	}
}
