package tfrecordsource_test

import (
	"testing"

	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/tfrecordsource"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[tfrecordsource.Options]{
		Options: tfrecordsource.Options{Files: []string{"a", "b"}, MaxRecordBytes: 100, BlockRows: 10, BlockBytes: 100},
		New: func(t *testing.T, o tfrecordsource.Options) interface{ Fingerprint() string } {
			t.Helper()
			s, err := tfrecordsource.New(o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Other: map[string]any{"FS": new(fsxtest.Mem), "Compression": "gzip"},
		Free:  map[string]string{"BlockRows": "rows and positions are the same however they are cut into blocks", "BlockBytes": "as BlockRows", "Known": "what splits are called", "Seen": "as Known", "Follow": "as Known", "FS": "files are known by what they hold"},
	})
}
