package cli_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
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

// TestScaleShowsProgress: a change of the number of shards, which may take minutes, says every ten seconds how far it is where there is no terminal.
func TestScaleShowsProgress(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nname: x\nsource: {synthetic: {examples: 9}}\nparse: {features: [{name: user, slot: 1}], label: click}\nmodel: lr\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, quiet := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			app := &cli.App{Stdout: &stdout, Stderr: &stderr, Ops: cli.Ops{
				Scale: func(_ context.Context, _ *job.Config, o job.ScaleOptions) (*job.Scaled, error) {
					for at := time.Second; at <= 25*time.Second && o.Progress != nil; at += time.Second {
						time.Sleep(time.Second)
						p := job.ScaleProgress{Shards: 3, Took: at}
						if at > 15*time.Second {
							p.Snapshots, p.Rows = 2, 12345
						}
						o.Progress(p)
					}
					return &job.Scaled{Before: 2, Shards: 3}, nil
				},
			}}
			args := []string{"ps", "scale", file}
			if quiet {
				args = append(args, "--quiet")
			}
			if code := app.Run(t.Context(), args); code != 0 {
				t.Fatalf("exit code %d: %s", code, &stderr)
			}
			want := 2
			if quiet {
				want = 0
			}
			lines := strings.Count(stderr.String(), "progress")
			if lines != want || !quiet && (!strings.Contains(stderr.String(), "phase=scale shards=3 snapshots=0 rows=0 took=10") || !strings.Contains(stderr.String(), "snapshots=2 rows=12345 took=20")) {
				t.Errorf("quiet %v: %s", quiet, &stderr)
			}
		})
	}
}
