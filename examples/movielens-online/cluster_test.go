//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
)

// TestRealDataMovieLensCluster runs cluster.sh, which kills a worker and both shards on the way. Every rating must have
// been trained once, and learning on must pay as it does in one process.
func TestRealDataMovieLensCluster(t *testing.T) {
	data := testbed.Data(t, ".")
	testbed.Data(t, "datasets/ml1m-bin")
	bash, err := exec.LookPath("bash")
	if err != nil {
		testbed.Require(t, "posix", "bash is not installed")
	}
	dir := filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bash, "cluster.sh")
	cmd.Env = append(os.Environ(), "MONOLITH_DATA="+data, "DIR="+dir, "BROKERS=", "MOVIELENS_SHARD_0="+testbed.FreeAddr(t), "MOVIELENS_SHARD_1="+testbed.FreeAddr(t))
	// The script ends its processes when it gets a signal.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &errs)
	}
	t.Logf("%s", &out)
	for _, want := range []string{
		"published 23636, trained 23636, by partition [5909 5909 5909 5909]",
		"killed worker a", "killed shard 1", "killed shard 0",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	frozen, online := aucOf(t, out.String(), "later ratings, model frozen"), aucOf(t, out.String(), "later ratings, cluster learning on")
	if frozen < 0.788 || online < 0.804 || online <= frozen {
		t.Errorf("frozen AUC %.4f, want .788; online %.4f, want .804 and more than frozen", frozen, online)
	}
	// Who was killed has a second life.
	for _, name := range []string{"shard-0", "shard-1"} {
		log, err := os.ReadFile(filepath.Join(dir, "logs", name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(log), " listens at "); n != 2 {
			t.Errorf("%s has lived %d times, want 2:\n%s", name, n, log)
		}
	}
	// The report must be able to say no.
	logs := filepath.Join(dir, "logs")
	err = command(ctx, []string{
		"report", "-dir", filepath.Join(dir, "job"), "-published", "23637",
		"-frozen", filepath.Join(logs, "frozen.json"), "-online", filepath.Join(logs, "worker-a.json"),
	}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "23637 ratings were published and 23636 trained") {
		t.Errorf("the report of one rating more than there is: error %v", err)
	}
}

// aucOf finds the AUC in a line of the report.
func aucOf(t *testing.T, out, line string) float64 {
	t.Helper()
	m := regexp.MustCompile(regexp.QuoteMeta(line) + ` +23636 +(0\.\d+) +0\.\d+\n`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no line %q with 23636 examples in\n%s", line, out)
	}
	auc, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return auc
}

// TestReportRefuses gives the report results of failed commands, files that are not there and a folder without snapshots.
func TestReportRefuses(t *testing.T) {
	t.Parallel()
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "result.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write(`{"ok": true, "result": {"examples": 3, "metrics": {"auc": 0.5, "log_loss": 0.7}}}`)
	for name, c := range map[string]struct{ frozen, want string }{
		"failed":      {write(`{"ok": false, "error": {"message": "no broker"}}`), "not successful"},
		"no object":   {write(`broken`), "invalid"},
		"no file":     {filepath.Join(t.TempDir(), "none"), "no such file"},
		"no snapshot": {good, "no snapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := command(t.Context(), []string{"report", "-dir", t.TempDir(), "-frozen", c.frozen, "-online", good}, &bytes.Buffer{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if err := command(t.Context(), []string{"reprot"}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "reprot") {
		t.Errorf("a command that there is not: error %v", err)
	}
}
