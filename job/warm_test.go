package job_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// warmJob trains on users, items and, where asked to, genres.
func warmJob(t *testing.T, dir, run string, genre bool, set ...string) *job.Config {
	t.Helper()
	features := "[{name: user, slot: 1}, {name: item, slot: 2}]"
	if genre {
		features = "[{name: user, slot: 1}, {name: item, slot: 2}, {name: genre, slot: 3}]"
	}
	text := fmt.Sprintf(`
version: 1
name: warm
deterministic: true
source: {text: {files: [%q]}}
parse: {format: csv, columns: [y, user, item, genre], features: %s, label: y}
model: {deepfm: {dim: 4, hidden: [8]}}
train: {batch: 50}
snapshot: {every: 0s}
`, filepath.Join(dir, "train.csv"), features)
	c, err := job.Decode([]byte(text), "warm.yaml", job.LoadOptions{Set: append([]string{"dir=" + filepath.Join(dir, run)}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWarmStart adds a feature to a trained model and changes a learning rate: what the errors say to set makes it pass,
// what the run says names every change, and what was learned is there from the first example on.
func TestWarmStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for range 4000 {
		user, item, genre := r.IntN(40), r.IntN(30), r.IntN(5)
		y := 0
		if user*7%10 < 5 == (genre < 4) {
			y = 1
		}
		fmt.Fprintf(&b, "%d,%d,%d,%d\n", y, user, item, genre)
	}
	if err := os.WriteFile(filepath.Join(dir, "train.csv"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	old, err := job.Run(t.Context(), warmJob(t, dir, "old", false), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cold, err := job.Run(t.Context(), warmJob(t, dir, "cold", true), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}

	set := []string{"restore.from=" + filepath.Join(dir, "old"), "optimizer.sparse.adagrad.lr=0.1"}
	c := warmJob(t, dir, "new", true, set...)
	for _, want := range []string{"feature genre: was not there, is now", "tensor deep.0.weight: the snapshot has shape [8 8], the model [12 8]"} {
		found, err := job.Check(t.Context(), c)
		if err != nil || len(found) != 1 || found[0].Path != "restore.from" || !strings.Contains(found[0].Message, want) {
			t.Fatalf("check: %+v, %v; want %q", found, err, want)
		}
		_, err = job.Run(t.Context(), c, job.RunOptions{})
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Fatalf("train: %v, want %q", err, want)
		}
		if setting := "set restore: {features: {genre: init}, tensors: {deep.0.weight: init}}"; !strings.Contains(err.Error(), setting) {
			t.Fatalf("no %q in: %v", setting, err)
		}
	}
	set = append(set, "restore.features={genre: init}", "")
	run := func(set []string, more ...string) (*job.TrainResult, []string) {
		t.Helper()
		var said []string
		result, err := job.Run(t.Context(), warmJob(t, dir, "new", true, append(set, more...)...), job.RunOptions{Notice: func(line string) { said = append(said, line) }})
		if err != nil {
			t.Fatal(err)
		}
		return result, said
	}
	set[3] = "restore.tensors={deep.0.weight: grow}" // the feature was added after the others
	warm, said := run(set)
	if warm.Examples != 4000 {
		t.Errorf("%d examples: the source is read from its start", warm.Examples)
	}
	for _, want := range []string{
		"made of " + old.Snapshot, "tensor deep.0.weight keeps what lies in both shapes: it is [12 8], was [8 8]", "embedding.vec: adagrad's lr is 0.1, was 0.05",
	} {
		if !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("%q is not said: %q", want, said)
		}
	}
	if w, c := warm.Metrics["progressive_log_loss"], cold.Metrics["progressive_log_loss"]; !(w < 0.95*c) {
		t.Errorf("log loss from the first example on: %v, a model that knows nothing has %v", w, c)
	}
	// The run continues from its own snapshots, which need no policies; the other run may be gone.
	if err := os.RemoveAll(filepath.Join(dir, "old")); err != nil {
		t.Fatal(err)
	}
	if again, said := run(set[:2], "epochs=2", "restore.features={}"); again.Examples == 0 || strings.Contains(strings.Join(said, "\n"), "made of") {
		t.Errorf("%d examples: %q", again.Examples, said)
	}
}

func TestRestoreKeysAreChecked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"restore: {tables: {embedding: maybe}}": `restore.tables.embedding: is "maybe", not one of fail, init, grow, drop`,
		"restore: {tensors: init}":              "restore.tensors: wants {name: policy}",
		"restore: {rename: {a: [b]}}":           "restore.rename.a: wants a word",
		"restore: {form: x}":                    "restore.form: unknown key",
	} {
		_, err := job.Decode([]byte("version: 1\nsource: {synthetic: {}}\nmodel: lr\n"+text+"\n"), "r.yaml", job.LoadOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	c, err := job.Decode([]byte("version: 1\nsource: {synthetic: {}}\nmodel: lr\nrestore: {rename: {a: b}, tables: {\"*\": drop, embedding.vec: grow}}\n"), "r.yaml", job.LoadOptions{Set: []string{"restore.tensors={w: init}"}})
	if err != nil || c.Restore.Rename["a"] != "b" || c.Restore.Tables["embedding.vec"] != "grow" || c.Restore.Tables.Of("other") != "drop" || c.Restore.Tensors["w"] != "init" {
		t.Errorf("%+v, %v", c, err)
	}
}
