package cli_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/cmd/monolith/internal/cli"
	"github.com/monolith-go/monolith/job"
)

// TestSlotsShowProgress: where there is no terminal, how far rows are read is a log line every ten seconds, and with --quiet none.
func TestSlotsShowProgress(t *testing.T) {
	dir := t.TempDir()
	for _, quiet := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			app := &cli.App{Stdout: &stdout, Stderr: &stderr, Ops: cli.Ops{
				InspectSlots: func(_ context.Context, _ string, o job.SlotOptions) (*job.SnapshotSlots, error) {
					for read := int64(1); read <= 50 && o.Progress != nil; read++ {
						o.Progress(read, 50)
						time.Sleep(time.Second / 2)
					}
					return &job.SnapshotSlots{}, nil
				},
			}}
			args := []string{"inspect", dir, "--slots"}
			if quiet {
				args = append(args, "--quiet")
			}
			if code := app.Run(t.Context(), args); code != 0 {
				t.Fatalf("exit code %d: %s", code, &stderr)
			}
			lines := strings.Count(stderr.String(), "progress")
			if quiet && lines != 0 || !quiet && (lines != 2 || !strings.Contains(stderr.String(), "phase=inspect rows=21 total=50") || !strings.Contains(stderr.String(), "rows=41 total=50")) {
				t.Errorf("quiet %v: %s", quiet, &stderr)
			}
		})
	}
}
