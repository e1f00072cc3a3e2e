//go:build unix

package filesplit_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/fsx"
)

// TestExpandPassesPipesOver: a pattern that names nothing else is a fault that says so, as what a pipe gave would be lost.
func TestExpandPassesPipesOver(t *testing.T) {
	t.Parallel()
	dir := folder(t, "a.csv")
	if err := syscall.Mkfifo(dir+"/b.csv", 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := filesplit.Expand(t.Context(), fsx.Local{}, []string{dir + "/*.csv"})
	if err != nil || len(files) != 1 || files[0].Name != "a.csv" {
		t.Errorf("beside a file: %+v, %v", files, err)
	}
	_, err = filesplit.Expand(t.Context(), fsx.Local{}, []string{dir + "/b.csv"})
	if _, ok := errors.AsType[*filesplit.NoMatchError](err); !ok || !strings.Contains(err.Error(), `b.csv": it is a pipe`) {
		t.Errorf("alone: %v", err)
	}
}
