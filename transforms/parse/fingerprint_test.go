package parse_test

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/transforms/parse"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	options := parse.Options{
		Format: parse.CSV, Columns: []string{"user", "y"}, Fields: []string{"f"},
		Features: []parse.Feature{{Name: "user", Slot: 1, Buckets: []float64{1}, Clip: []float64{0, 1}, Ignore: []string{"0"}}, {Name: "age", Kind: parse.Dense, Buckets: []float64{1}, Clip: []float64{0, 1}, Ignore: []string{"0"}}},
		Labels:   []parse.Label{{Name: "h", Column: "y", Width: 1, Positive: ">= 4", Accepts: loss.Range{Max: 1}, Mask: "m", MaskPositive: "> 1"}},
		Keys:     []parse.Key{{Name: "k", Column: "user"}},
		LineID:   []string{"user"},
		Joins:    []parse.Join{{File: "f", Columns: []string{"a", "b"}, Key: "user"}},
		Holdout:  parse.Holdout{Column: "user", Share: .1, From: "1", Side: parse.Held},
	}
	other, free := map[string]any{"FS": new(fsxtest.Mem)}, map[string]string{"FS": "what a side table holds matters, and that is not in the fingerprint"}
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[parse.Options]{
		Options: options,
		New:     func(_ *testing.T, o parse.Options) interface{ Fingerprint() string } { return parse.New(o) },
		Other:   other,
		Free:    free,
	})
	options.Format = ""
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[parse.Options]{
		Options: options,
		New:     func(_ *testing.T, o parse.Options) interface{ Fingerprint() string } { return parse.NewColumns(o) },
		Other:   other,
		Free:    free,
	})
	if got := parse.New(options).Fingerprint(); !strings.HasPrefix(got, "parse{") {
		t.Errorf("got %s", got)
	}
}
