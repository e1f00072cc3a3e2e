package job_test

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// TestServeModelsAlone serves over one of the two protocols: an empty address is none.
func TestServeModelsAlone(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	exports := filepath.Join(t.TempDir(), "clicks")
	if _, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Dir: exports, RowsPerFile: 1000, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	for _, only := range []string{"http", "grpc"} {
		o := job.ServeModelsOptions{Exports: []string{exports}}
		if only == "http" {
			o.HTTP = "127.0.0.1:0"
		} else {
			o.GRPC = "127.0.0.1:0"
		}
		type addrs struct{ http, grpc string }
		ready, drain, done := make(chan addrs, 1), make(chan struct{}), make(chan error, 1)
		o.Ready, o.Drain = func(http, grpc string) { ready <- addrs{http, grpc} }, drain
		go func() { done <- job.ServeModels(t.Context(), o) }()
		select {
		case at := <-ready:
			if (at.http != "") != (only == "http") || (at.grpc != "") != (only == "grpc") {
				t.Errorf("only %s: listens at %q and %q", only, at.http, at.grpc)
			}
			c, err := net.Dial("tcp", at.http+at.grpc)
			if err != nil {
				t.Fatalf("only %s: %v", only, err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		case err := <-done:
			t.Fatalf("only %s: %v", only, err)
		}
		close(drain)
		if err := <-done; err != nil {
			t.Errorf("only %s: %v", only, err)
		}
	}
	if err := job.ServeModels(t.Context(), job.ServeModelsOptions{Exports: []string{exports}}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "both empty") {
		t.Errorf("without an address: %v", err)
	}
}
