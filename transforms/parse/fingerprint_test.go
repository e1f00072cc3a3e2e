package parse_test

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/transforms/parse"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	options := parse.Options{
		Format: parse.CSV, Columns: []string{"user", "y"}, Fields: []string{"f"},
		Features: []parse.Feature{{Name: "user", Slot: 1, Buckets: []float64{1}, Clip: []float64{0, 1}}, {Name: "age", Kind: parse.Dense, Buckets: []float64{1}, Clip: []float64{0, 1}}},
		Label:    parse.Label{Column: "y", Positive: ">= 4"},
		LineID:   []string{"user"},
		Joins:    []parse.Join{{File: "f", Columns: []string{"a", "b"}, Key: "user"}},
	}
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[parse.Options]{
		Options: options,
		New:     func(_ *testing.T, o parse.Options) interface{ Fingerprint() string } { return parse.New(o) },
	})
	options.Format = ""
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[parse.Options]{
		Options: options,
		New:     func(_ *testing.T, o parse.Options) interface{ Fingerprint() string } { return parse.NewColumns(o) },
	})
	if got := parse.New(options).Fingerprint(); !strings.HasPrefix(got, "parse{") {
		t.Errorf("got %s", got)
	}
}
