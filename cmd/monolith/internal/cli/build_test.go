package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/cmd/monolith/internal/cli"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/stored"
)

// stamped is a build in a git clone.
func stamped() *debug.BuildInfo {
	return &debug.BuildInfo{
		Main:     debug.Module{Version: "v9.8.7"},
		Settings: []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.modified", Value: "true"}},
	}
}

// TestRevisionIsTold follows the revision that the toolchain stores in the program to `version --json` and to the metric.
func TestRevisionIsTold(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	app := &cli.App{BuildInfo: stamped(), Stdout: &stdout, Stderr: &stderr}
	if code := app.Run(t.Context(), []string{"version", "--json"}); code != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	var told struct {
		Result struct {
			Version, Revision string
			Modified          bool
		}
	}
	if err := json.Unmarshal(stdout.Bytes(), &told); err != nil {
		t.Fatal(err)
	}
	if r := told.Result; r.Version != "v9.8.7" || r.Revision != "0123abcd" || !r.Modified {
		t.Errorf("version --json says %+v", r)
	}

	revision := ""
	app = &cli.App{BuildInfo: stamped(), Stdout: &stdout, Stderr: &stderr, Ops: cli.Ops{
		Train: func(_ context.Context, _ *job.Config, opts job.RunOptions) (*job.TrainResult, error) {
			families, err := opts.Registerer.(prometheus.Gatherer).Gather()
			for _, f := range families {
				if f.GetName() == "monolith_build_info" {
					for _, l := range f.GetMetric()[0].GetLabel() {
						if l.GetName() == "revision" {
							revision = l.GetValue()
						}
					}
				}
			}
			return &job.TrainResult{}, err
		},
	}}
	if code := app.Run(t.Context(), []string{"train", synthetic(t), "--set", "metrics.listen=127.0.0.1:0"}); code != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	if revision != "0123abcd" {
		t.Errorf("monolith_build_info has the revision %q", revision)
	}
}

// TestReadyIsAnswered: what training and shards say of themselves is what /readyz of the metrics endpoint answers.
func TestReadyIsAnswered(t *testing.T) {
	t.Parallel()
	addr := testbed.FreeAddr(t)
	asked := 0
	check := func(ready func(error)) {
		for missing, want := range map[error]int{errors.New("shard 1 is missing"): http.StatusServiceUnavailable, nil: http.StatusOK} {
			ready(missing)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/readyz", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				continue
			}
			if err := resp.Body.Close(); err != nil || resp.StatusCode != want {
				t.Errorf("status %d where %v is missing, %v", resp.StatusCode, missing, err)
			}
			asked++
		}
	}
	var stdout, stderr bytes.Buffer
	app := &cli.App{Stdout: &stdout, Stderr: &stderr, Ops: cli.Ops{
		Train: func(_ context.Context, _ *job.Config, o job.RunOptions) (*job.TrainResult, error) {
			check(o.Ready)
			return &job.TrainResult{}, nil
		},
		Serve: func(_ context.Context, _ *job.Config, o job.ServeOptions) (*job.ServeResult, error) {
			check(o.Ready)
			return &job.ServeResult{}, nil
		},
	}}
	for _, command := range []string{"train", "ps"} {
		if code := app.Run(t.Context(), []string{command, synthetic(t), "--set", "metrics.listen=" + addr}); code != 0 {
			t.Errorf("%s: exit code %d: %s", command, code, &stderr)
		}
	}
	if asked != 4 {
		t.Errorf("asked %d times", asked)
	}
}

// TestWhoListens: eval, predict and insight run beside training that listens by the job's key, and listen where they are told to themselves. A second training names the dir, not the address.
func TestWhoListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // it has served
	dir := t.TempDir()
	path := filepath.Join(dir, "job.yaml")
	text := fmt.Sprintf("version: 1\nsource: synthetic\nmodel: lr\ndir: %s\nmetrics: {listen: %q}\neval: {holdout: 0.1}\npredict: {to: {jsonl: {dir: out}}}\n", filepath.Join(dir, "run"), l.Addr())
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	app := &cli.App{Stdout: &stdout, Stderr: &stderr, Ops: cli.Ops{
		Train: func(context.Context, *job.Config, job.RunOptions) (*job.TrainResult, error) {
			return &job.TrainResult{}, nil
		},
		Eval: func(context.Context, *job.Config, job.EvalOptions) (*job.EvalResult, error) { return nil, nil },
	}}
	if code := app.Run(t.Context(), []string{"eval", path}); code != 0 {
		t.Errorf("eval beside training: exit code %d: %s", code, &stderr)
	}
	if code := app.Run(t.Context(), []string{"eval", path, "--set", "metrics.listen=" + l.Addr().String()}); code != 3 || !strings.Contains(stderr.String(), "cannot listen") {
		t.Errorf("eval that is told to listen: exit code %d: %s", code, &stderr)
	}
	stderr.Reset()
	if code := app.Run(t.Context(), []string{"train", path}); code != 3 || !strings.Contains(stderr.String(), "cannot listen") {
		t.Errorf("training: exit code %d: %s", code, &stderr)
	}
	cfg, err := job.Decode([]byte(text), path, job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := stored.Claim(cfg, stored.LockName(0), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }() // the folder goes
	stderr.Reset()
	if code := app.Run(t.Context(), []string{"train", path}); code != 3 || !strings.Contains(stderr.String(), "another process is training with "+cfg.Dir) {
		t.Errorf("a second training: exit code %d: %s", code, &stderr)
	}
}

// synthetic writes a job.
func synthetic(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(path, []byte("version: 1\nsource: synthetic\nmodel: lr\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBegin: what the environment cannot have ends every command with the code of wrong usage.
func TestBegin(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"check", "job.yaml"}, {"bench", "gemm"}} {
		var stdout, stderr bytes.Buffer
		app := &cli.App{Stdout: &stdout, Stderr: &stderr, Ops: cli.Ops{Begin: func() error { return errors.New("no such instructions") }}}
		if code := app.Run(t.Context(), args); code != 2 || !strings.Contains(stderr.String(), "no such instructions") || stdout.Len() > 0 {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, code, &stdout, &stderr)
		}
	}
}
