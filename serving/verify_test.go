package serving_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/serving"
)

// TestDamagedBeforeItOpens: of an export that was damaged before it was opened, which reads no rows, the version before takes the place once the damage is found, without a pause. Without one nothing is served,
// until the export is whole again.
func TestDamagedBeforeItOpens(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	exported, dir := tr.export(t), t.TempDir()
	for _, number := range []string{"1", "2"} {
		if err := os.CopyFS(filepath.Join(dir, number), os.DirFS(exported)); err != nil {
			t.Fatal(err)
		}
	}
	slabs, err := filepath.Glob(filepath.Join(dir, "2", "*", "*.slab"))
	if err != nil || len(slabs) == 0 {
		t.Fatal(slabs, err)
	}
	whole, err := os.ReadFile(slabs[0])
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Clone(whole)
	other[64] ^= 1 // of a weight
	if err := os.WriteFile(slabs[0], other, 0o600); err != nil {
		t.Fatal(err)
	}
	found := make(chan bool, 9)
	m := serving.NewModels(serving.ModelsOptions{Recipe: recipe, VerifyRate: 1 << 30, Verified: func(_ string, whole bool) { found <- whole }})
	t.Cleanup(m.Close)
	if err := m.Configure(t.Context(), []serving.ModelConfig{{Name: "clicks", Dir: dir}}); err != nil {
		t.Fatal(err)
	}
	if got := states(t, m, "clicks"); got != "2 AVAILABLE" {
		t.Fatalf("versions are %s", got)
	}
	h := serving.NewServer(serving.Options{Models: m}).Handler(nil)
	body := instances(t, tr.asked[:20])
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { m.Verify(ctx, time.Millisecond) })
	become := func(want string) {
		t.Helper()
		for until := time.Now().Add(30 * time.Second); states(t, m, "clicks") != want; time.Sleep(time.Millisecond) {
			if code, answer := ask(t, h, "/v1/models/clicks:predict", body); code != http.StatusOK && want == "2 END, 1 AVAILABLE" {
				t.Fatalf("while versions change: %d %s", code, answer)
			}
			if time.Now().After(until) {
				t.Fatalf("versions are %s, want %s", states(t, m, "clicks"), want)
			}
		}
	}
	become("2 END, 1 AVAILABLE")
	if whole := <-found; whole {
		t.Error("the damaged version is said to be whole")
	}
	if whole := <-found; !whole {
		t.Error("the version before is said to be damaged")
	}
	if code, answer := ask(t, h, "/v1/models/clicks:predict", body); code != http.StatusOK || !slices.Equal(predictions(t, answer)[""], tr.want["prediction"][:20]) {
		t.Errorf("%d %s", code, answer)
	}
	at := time.Now().Add(time.Hour)
	if err := errors.Join(os.WriteFile(slabs[0], whole, 0o600), os.Chtimes(slabs[0], at, at)); err != nil {
		t.Fatal(err)
	}
	if err := m.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	become("2 AVAILABLE, 1 END")
}
