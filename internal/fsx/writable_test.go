package fsx_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx"
)

func TestCanMakeAndWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sealed := filepath.Join(dir, "sealed")
	if err := os.Mkdir(sealed, 0o555); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][2]string{ // what is in the way of a folder, of a file
		dir:                          {"", "is a folder"},
		file:                         {"is a file", ""},
		filepath.Join(dir, "a/b/c"):  {"", ""},
		filepath.Join(file, "a/b"):   {"is a file", "is a file"},
		filepath.Join(sealed, "a/b"): {"permission denied", "permission denied"},
	} {
		if strings.HasPrefix(path, sealed) && os.Geteuid() == 0 {
			continue // root may write anywhere
		}
		for i, err := range []error{fsx.CanMake(path), fsx.CanWrite(path)} {
			if (want[i] == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want[i]) {
				t.Errorf("%s: %v, want %q", path, err, want[i])
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("%v, %v: something was made", left, err)
	}
}
