package parquetsource_test

import (
	"log/slog"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/parquetsource"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	columns := func(typ arrow.DataType) *arrow.Schema {
		return arrow.NewSchema([]arrow.Field{{Name: "user", Type: typ, Nullable: true}}, nil)
	}
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[parquetsource.Options]{
		Options: parquetsource.Options{Files: []string{"a", "b"}, Columns: columns(arrow.PrimitiveTypes.Int64), Complete: true, BatchRows: 10, MaxPageBytes: 100, MaxBatchBytes: 1000},
		New: func(t *testing.T, o parquetsource.Options) interface{ Fingerprint() string } {
			t.Helper()
			s, err := parquetsource.New(o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Other: map[string]any{"FS": new(fsxtest.Mem), "Log": slog.New(slog.DiscardHandler), "Columns": columns(arrow.BinaryTypes.Binary)},
		Free:  map[string]string{"BatchRows": "rows and positions are the same however they are cut into batches", "Known": "what splits are called", "Seen": "as Known", "Log": "it is told, not read", "FS": "files are known by what they hold"},
	})
}
