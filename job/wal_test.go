package job_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// TestSharedLogDir: two jobs with one ps.wal.dir. The second is refused with whose log it is; beginning again it leaves
// what is not its own alone.
func TestSharedLogDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 300, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	logs := filepath.Join(dir, "logs")
	of := func(name string) *job.Config {
		return epochsJob(t, dir, "train.libfm", name, "ps.durability=wal", "ps.wal.dir="+logs, "name="+name)
	}
	if _, err := job.Run(t.Context(), of("one"), job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	anew := false
	for _, resume := range []*bool{nil, &anew} {
		_, err := job.Run(t.Context(), of("two"), job.RunOptions{Resume: resume})
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "job one in "+filepath.Join(dir, "one")) {
			t.Errorf("the second job: %v, want ErrConfig that names the first", err)
		}
		// What would help against a log of one's own helps nobody here.
		if text := fmt.Sprint(err); !strings.HasSuffix(text, "give this job another ps.wal.dir: not the same job") || strings.Contains(text, "--resume=false") {
			t.Errorf("the second job is told: %s", text)
		}
	}
	// The first continues under another name and in another place: what its log knows it by has moved with its dir.
	if err := os.Rename(filepath.Join(dir, "one"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	if _, err := job.Run(t.Context(), of("moved"), job.RunOptions{}); err != nil {
		t.Errorf("the first job in another place: %v", err)
	}
	var said []string
	if _, err := job.Run(t.Context(), of("moved"), job.RunOptions{Resume: &anew, Notice: func(s string) { said = append(said, s) }}); err != nil {
		t.Error(err)
	}
	shard := filepath.Join(logs, "shard-0000")
	if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, shard+".1") }) {
		t.Errorf("the first job, started over, said %q, want that its log is in %s.1", said, shard)
	}
	for _, p := range []string{shard, shard + ".1"} {
		if _, err := os.Stat(p); err != nil {
			t.Error(err)
		}
	}
}
