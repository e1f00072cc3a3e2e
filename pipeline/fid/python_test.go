package fid_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/pipeline/fid"
)

// TestPython compares the ids that examples/serve/fids.py makes with those of this package, for texts of each
// length that the hash treats alone.
func TestPython(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed, so its hash cannot be compared")
	}
	args := []string{"../../examples/serve/fids.py", "3", "Toy Story", "Zürich", ""}
	for n := range 300 {
		args = append(args, strings.Repeat("the quick brown fox jumps över ", 10)[:n/2]+strings.Repeat("x7", n)[:n-n/2])
	}
	args = append(args, strings.Repeat("ab", 5000))
	out, err := exec.CommandContext(t.Context(), python, args...).Output()
	if err != nil {
		t.Fatalf("python3: %v", err)
	}
	got := strings.Fields(string(out))
	if len(got) != len(args)-2 {
		t.Fatalf("%d ids of %d texts", len(got), len(args)-2)
	}
	for i, text := range args[2:] {
		id, err := fid.New(3, fid.HashString(text))
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprint(int64(id)); got[i] != want {
			t.Errorf("%q: %s in Python, %s in Go", text, got[i], want)
		}
	}
	for _, x := range []int64{0, 17, -17, 1 << 50} {
		out, err := exec.CommandContext(t.Context(), python, "-B", "-c", fmt.Sprintf("import sys; sys.path.append('../../examples/serve'); from fids import fid; print(fid(3, %d, hash=True))", x)).Output()
		if err != nil {
			t.Fatalf("python3: %v", err)
		}
		id, err := fid.New(3, fid.HashInt(x))
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprint(int64(id)); strings.TrimSpace(string(out)) != want {
			t.Errorf("hash of %d: %s in Python, %s in Go", x, out, want)
		}
	}
}
