package job_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// TestSaysWhereItBegins: a run without a snapshot says so, and where reading begins; one that continues says that alone.
func TestSaysWhereItBegins(t *testing.T) {
	t.Parallel()
	said := func(cfg *job.Config) (all string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if _, err := job.Run(ctx, cfg, job.RunOptions{Notice: func(line string) { all += line + "\n" }}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	j := newTopicJob(t, false, 2, "group_id: ours", "end: latest")
	j.produce(0, 50)
	j.produce(1, 50)
	for _, want := range []string{"reading begins at earliest: clicks-00000 at 0, clicks-00001 at 0; offsets of group ours are not read", "continuing from snapshot"} {
		if got := said(j.config()); !strings.Contains(got, want) || strings.Contains(got, "no snapshot yet in "+filepath.Join(j.dir, "snapshots")) != strings.HasPrefix(want, "reading") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	many := newTopicJob(t, false, 11, "start: latest", "end: latest")
	many.produce(0, 10)
	if got, want := said(many.config()), "reading begins at latest: "; !strings.Contains(got, want) || !strings.Contains(got, ", and 3 more\n") {
		t.Errorf("%q, want %q", got, want)
	}

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.csv"), []byte("1,2,1\n3,4,0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := job.Decode(fmt.Appendf(nil, "version: 1\nname: files\ndir: %s\nsource: {text: {files: [%q]}}\nparse: {format: csv, columns: [a, b, y], features: [{name: a}, {name: b}], label: y}\nmodel: lr\n",
		filepath.Join(dir, "run"), filepath.Join(dir, "a.csv")), "files.yaml", job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no snapshot yet in " + filepath.Join(dir, "run", "snapshots") + ": starting from the beginning of the source\n", "continuing from snapshot"} {
		if got := said(cfg); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
