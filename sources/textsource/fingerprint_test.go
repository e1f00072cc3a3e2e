package textsource_test

import (
	"testing"

	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/textsource"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[textsource.Options]{
		Options: textsource.Options{Files: []string{"a", "b"}, Header: true, Quoted: true, Complete: true, JSON: true, Delimiter: ';', MaxLineBytes: 100, BlockRows: 10, BlockBytes: 100},
		New: func(t *testing.T, o textsource.Options) interface{ Fingerprint() string } {
			t.Helper()
			if len(o.Files) == 0 {
				o.Files = []string{"c"}
			}
			s, err := textsource.New(o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Other: map[string]any{"FS": new(fsxtest.Mem), "Compression": "gzip"},
		Free:  map[string]string{"BlockRows": "rows and positions are the same however they are cut into blocks", "BlockBytes": "as BlockRows", "Known": "what splits are called", "Seen": "as Known", "Follow": "as Known", "FS": "files are known by what they hold"},
	})
}
