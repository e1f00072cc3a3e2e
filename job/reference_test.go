package job_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// TestAnotherBatchSize continues a job with another batch size: gradients of rows keep the scale of the beginning. Snapshots
// remember it over restarts, and jobs that begin with the parameters take it over, unless train.reference_batch says otherwise.
func TestAnotherBatchSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var b strings.Builder
	for i := range 6000 {
		user, item := i*7%41, i*i%29
		fmt.Fprintf(&b, "%d,%d,%d,%d\n", (user+item)/3%2, user, item, i%5)
	}
	if err := os.WriteFile(filepath.Join(dir, "train.csv"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	// train continues run up to so many examples, with whole batches, and returns the digest and what was said.
	train := func(run string, examples, batch int, set ...string) (string, string) {
		t.Helper()
		var said strings.Builder
		c := warmJob(t, dir, run, false, append(set, fmt.Sprint("train.batch=", batch), fmt.Sprint("train.max_examples=", examples))...)
		if _, err := job.Run(t.Context(), c, job.RunOptions{Notice: func(line string) { said.WriteString(line + "\n") }}); err != nil {
			t.Fatal(err)
		}
		return digest(t, filepath.Join(dir, run)), said.String()
	}
	reference := func(run string) int {
		t.Helper()
		info, err := job.InspectSnapshot(t.Context(), filepath.Join(dir, run))
		if err != nil {
			t.Fatal(err)
		}
		return info.ReferenceBatch
	}
	const own = "train.reference_batch=50"

	train("own", 2000, 50, own)
	whole, text := train("own", 4000, 20)
	if strings.Contains(text, "gradients") || reference("own") != 50 {
		t.Errorf("reference batch %d, want 50; said:\n%s", reference("own"), text)
	}

	train("parts", 1000, 50, own)
	train("parts", 2000, 50)
	train("parts", 3000, 20)
	if parts, text := train("parts", 4000, 20); parts != whole || strings.Contains(text, "gradients") {
		t.Errorf("in parts: digest %s, want %s; said:\n%s", parts, whole, text)
	}

	train("said", 2000, 50, own)
	if d, text := train("said", 4000, 20, own); d != whole || strings.Contains(text, "gradients") {
		t.Errorf("with what the job began with: digest %s, want %s; said:\n%s", d, whole, text)
	}

	train("usual", 2000, 50)
	if d, text := train("usual", 4000, 20); d == whole || strings.Contains(text, "gradients") || reference("usual") != 512 {
		t.Errorf("without the key: reference batch %d, want 512; said:\n%s", reference("usual"), text)
	}

	train("other", 2000, 50, own)
	d, text := train("other", 3000, 20, "train.reference_batch=20")
	if d == whole || reference("other") != 20 || !strings.Contains(text, "divided by 20 from now on (train.reference_batch); until now they were by 50") {
		t.Errorf("another one: digest %s, reference batch %d; said:\n%s", d, reference("other"), text)
	}
	if _, text = train("other", 4000, 20); strings.Contains(text, "gradients") || reference("other") != 20 {
		t.Errorf("the other one stays: reference batch %d; said:\n%s", reference("other"), text)
	}

	from := "restore.from=" + filepath.Join(dir, "own")
	taken, text := train("taken", 2000, 20, from)
	if reference("taken") != 50 || strings.Contains(text, "gradients") {
		t.Errorf("parameters of another job: reference batch %d; said:\n%s", reference("taken"), text)
	}
	if d, _ := train("set", 2000, 20, from, own); d != taken {
		t.Errorf("digest %s, want %s", d, taken)
	}
	if d, _ := train("reset", 2000, 20, from, "train.reference_batch=20"); d == taken {
		t.Errorf("one digest with two reference batch sizes")
	}
}

func TestReferenceBatchIsPartOfThePlan(t *testing.T) {
	t.Parallel()
	hashes := map[string]string{}
	for _, set := range []string{"train.reference_batch=0", "train.reference_batch=1", "train.reference_batch=50"} {
		p, err := job.BuildPlan(warmJob(t, t.TempDir(), "run", false, set))
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := hashes[p.Hash()]; ok {
			t.Errorf("%s and %s have one plan", set, other)
		}
		hashes[p.Hash()] = set
	}
}
