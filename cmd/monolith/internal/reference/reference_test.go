package reference_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/cmd/monolith/internal/reference"
)

// TestFresh: the pages in docs/reference are what `make generate` writes, and every key of a job has a doc comment.
func TestFresh(t *testing.T) {
	t.Parallel()
	pages, err := reference.Pages("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range pages {
		got, err := os.ReadFile(filepath.Join("../../../../docs/reference", name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("docs/reference/%s is stale; run `make generate` (-want +got):\n%s", name, diff)
		}
	}
}
