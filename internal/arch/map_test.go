package arch_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryRoomIsOnTheMap: ARCHITECTURE.md, which a newcomer reads first, says of every folder of Go code what it is for: of those at the top, and of those in internal.
func TestEveryRoomIsOnTheMap(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, helpers, found := strings.Cut(string(text), "\ninternal/ ")
	if !found {
		t.Fatal("ARCHITECTURE.md has no line for internal/")
	}
	helpers, _, _ = strings.Cut(helpers, "\nexamples/ ")
	for in, on := range map[string]string{".": string(text), "internal": helpers} {
		rooms, err := os.ReadDir(filepath.Join(root, in))
		if err != nil {
			t.Fatal(err)
		}
		for _, room := range rooms {
			code := false
			if err := filepath.WalkDir(filepath.Join(root, in, room.Name()), func(path string, _ os.DirEntry, err error) error {
				code = code || strings.HasSuffix(path, ".go")
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if room.IsDir() && code && !regexp.MustCompile(`\b`+regexp.QuoteMeta(room.Name())+`\b`).MatchString(on) {
				t.Errorf("ARCHITECTURE.md says nothing of %s", filepath.Join(in, room.Name()))
			}
		}
	}
}
