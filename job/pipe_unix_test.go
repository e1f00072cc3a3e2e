//go:build unix

package job_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// TestJobInAPipe: a named pipe nobody writes to is refused, not waited for; one that is open, as that of <(...) in a shell, is read.
func TestJobInAPipe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "job.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := job.Load(path, job.LoadOptions{}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "job.yaml: is a named pipe") {
		t.Errorf("a named pipe: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := w.WriteString("version: 1\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := job.Load(fmt.Sprintf("/dev/fd/%d", r.Fd()), job.LoadOptions{}); err == nil || !strings.Contains(err.Error(), "source: is missing") {
		t.Errorf("an open pipe: %v", err)
	}
}
