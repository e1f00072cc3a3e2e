package upload_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// TestUploadDamaged: a snapshot that is damaged on this machine leaves its place in the store to the one before, and one that is damaged in the store is uploaded again.
func TestUploadDamaged(t *testing.T) {
	t.Parallel()
	const file = "rows-0000-0000.arrow"
	for how, damage := range map[string]func(b []byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)/2] },
		"flipped": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			store := mem{new(fsxtest.Mem)}
			m := must(t, options(t.TempDir(), "first", opening(store), 1), 0)
			m.train(50, ps.SnapshotOptions{})
			m.wait()
			m.u.Close()
			m.train(50, ps.SnapshotOptions{}) // 2
			m.train(50, ps.SnapshotOptions{}) // 3
			path := filepath.Join(snapshot.Path(m.dir, 3), file)
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, damage(bytes.Clone(b)), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			m.end()

			m = must(t, options(filepath.Dir(m.dir), "first", opening(store), 1), 0)
			m.wait()
			if got := fmt.Sprint(m.check(store)); got != "[2]" {
				t.Errorf("the store has %s; 3 is damaged, and 2 is the newest that is whole", got)
			}
			if how != "cut" {
				return
			}
			there := filepath.Join("snap-00000002", file)
			b, err = fsx.ReadFile(t.Context(), store, there, 1<<30)
			if err == nil {
				err = fsx.WriteFile(t.Context(), store, there, damage(bytes.Clone(b)))
			}
			if err != nil {
				t.Fatal(err)
			}
			m.u.Taken()
			m.wait()
			if got := fmt.Sprint(m.check(store)); got != "[2]" {
				t.Errorf("the store has %s, want 2 once more", got)
			}
		})
	}
}
