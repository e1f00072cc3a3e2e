package jobbench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/jobbench"
)

func options(t *testing.T, only string) bench.Options {
	return bench.Options{Rounds: 1, Each: time.Millisecond, Rows: 1001, Dir: t.TempDir(), Only: regexp.MustCompile(only), With: map[string]string{}}
}

// check: every result has rates, and nothing is left behind.
func check(t *testing.T, o bench.Options, n int, results []bench.Result, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != n {
		t.Errorf("%d results: %+v", len(results), results)
	}
	for _, r := range results {
		if r.Ours <= 0 || r.Control <= 0 || !strings.HasPrefix(r.Unit, "examples/") {
			t.Errorf("%+v", r)
		}
	}
	left, err := os.ReadDir(o.Dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestStep: each job trains on all rows, and what is not installed is left out with a reason.
func TestStep(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	o := options(t, "lr|fm.*512")
	results, err := jobbench.Step(t.Context(), o)
	check(t, o, 5, results, err)
	for name, n := range map[int]int{0: 1, 1: 1, 2: 1, 3: 4, 4: 1} {
		if got := results[name].Absent; len(got) != n {
			t.Errorf("%s lacks %v", results[name].Name, got)
		}
		for other, why := range results[name].Absent {
			if !strings.Contains(why, "--with") {
				t.Errorf("%s is absent: %s", other, why)
			}
		}
	}
}

// TestPredict: predictions are made, and what they are compared with.
func TestPredict(t *testing.T) {
	o := options(t, "tsv")
	results, err := jobbench.Predict(t.Context(), o)
	check(t, o, 1, results, err)
	for _, r := range results {
		if r.Theirs["evaluate"] <= 0 || r.Theirs["train"] <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

// TestQueues: both jobs of a comparison run.
func TestQueues(t *testing.T) {
	o := options(t, "lr.*workers 1|demo.*wal.*workers 2")
	results, err := jobbench.Queues(t.Context(), o)
	check(t, o, 2, results, err)
	for _, r := range results {
		if r.Theirs["without"] <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

// TestSize: steps on tables of both sizes are timed.
func TestSize(t *testing.T) {
	o := options(t, "size fm")
	o.Rows = 20_000
	results, err := jobbench.Size(t.Context(), o)
	check(t, o, 1, results, err)
	if r := results[0]; r.Theirs["20000 ids"] <= 0 || r.Ratio <= 0 {
		t.Errorf("%+v", r)
	}
}

// TestSnapshot: a job is timed while its rows are written, and between that.
func TestSnapshot(t *testing.T) {
	o := options(t, "while lr")
	o.Rows = 20_000
	results, err := jobbench.Snapshot(t.Context(), o)
	want := 2
	if bench.CPUSeconds() > 0 {
		want++
	}
	if err != nil || len(results) != want {
		t.Fatalf("%+v, %v", results, err)
	}
	check(t, o, 1, results[:1], err)
	for _, r := range results {
		if r.Ours <= 0 || r.Theirs["without"] <= 0 || r.Ratio <= 0 || r.Control <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

// program writes an executable text and returns its path.
func program(t *testing.T, name, text string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("runs shell scripts")
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// An interpreter that checks what it is given, then counts the examples that it is asked for at 1,000 a second.
const interpreter = `#!/bin/sh
case "$1" in *deepfm_t*.py) ;; *) echo "script $1" >&2; exit 1;; esac
[ -s "$1" ] && [ "$3" = 512 ] && [ "$4" = 2 ] || { echo "arguments $*" >&2; exit 1; }
[ "$(wc -c < "$2/ids.u32")" -eq 156156 ] && [ "$(wc -c < "$2/label.u8")" -eq 1001 ] || { echo "rows in $2" >&2; exit 1; }
if [ "$5" = torchrec ]; then echo "absent it is not here"; exit; fi
echo "a warning of the library"
echo "ready $(basename "$1" .py) $5"
while read -r n; do echo "$n $((n / 1000)).001 0.5"; done
`

// TestOthers: programs are given the rows and the shape, and their own time counts.
func TestOthers(t *testing.T) {
	o := options(t, "deepfm.*, batch 512|lr.*1 core")
	o.With["torch"] = program(t, "python", interpreter)
	o.With["tensorflow"] = o.With["torch"]
	o.With["xlearn"] = program(t, "xlearn", `#!/bin/sh
[ "$(head -1 "$1" | wc -w)" -eq 40 ] && [ "$(wc -l < "$1")" -eq 1001 ] || { echo "rows in $1"; exit 1; }
[ -n "$USER" ] && [ "$3 $7" = "0 1" ] || { echo "arguments $*"; exit 1; }
printf '[ 25%% ]       1       0.500000       9.00\n[ 50%% ]       2       0.500000       0.50\n[ 75%% ]       3       0.400000       0.50\n'
`)
	results, err := jobbench.Step(t.Context(), o)
	check(t, o, 3, results, err)
	if got := results[2].Theirs["deepfm_torch bf16"]; got < 990 || got > 1010 || len(results[2].Theirs) != 1 {
		t.Errorf("in bf16: %v", results[2].Theirs)
	}
	if got := results[0].Theirs; len(got) != 1 || got["xlearn"] != 2002 {
		t.Errorf("xlearn: %v", got)
	}
	for _, name := range []string{"deepfm_torch eager", "deepfm_torch compiled", "deepfm_tensorflow"} {
		if got := results[1].Theirs[name]; got < 990 || got > 1010 {
			t.Errorf("%s: %v", name, got)
		}
	}
	if why := results[1].Absent["torch torchrec"]; !strings.Contains(why, "it is not here") || len(results[1].Absent) != 1 {
		t.Errorf("absent: %v", results[1].Absent)
	}
}

// TestOthersFail: a program that was named and does not work is an error that says so.
func TestOthersFail(t *testing.T) {
	for _, c := range []struct{ name, program, only, text, want string }{
		{"no module", "torch", "deepfm.*512", "#!/bin/sh\necho 'absent No module named torch'\n", "No module named torch"},
		{"ends", "torch", "deepfm.*512", "#!/bin/sh\necho out of memory >&2\nexit 1\n", "out of memory"},
		{"diverges", "torch", "deepfm.*512", "#!/bin/sh\necho ready x\nwhile read -r n; do echo \"$n 1 nan\"; done\n", "nan"},
		{"stops", "torch", "deepfm.*512", "#!/bin/sh\necho ready x\nread -r n\necho lost >&2\n", "lost"},
		{"no epochs", "xlearn", "lr.*1 core", "#!/bin/sh\necho usage\n", "no epochs"},
		{"fails", "xlearn", "lr.*1 core", "#!/bin/sh\necho broken\nexit 2\n", "broken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t, c.only)
			o.With[c.program] = program(t, c.program, c.text)
			_, err := jobbench.Step(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	o := options(t, "lr.*1 core")
	o.With["xlearn"] = filepath.Join(t.TempDir(), "nowhere")
	if _, err := jobbench.Step(t.Context(), o); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("got %v", err)
	}
}

// TestProcs: both arrangements train, and the shards are processes of the program that was named.
func TestProcs(t *testing.T) {
	o := options(t, "demo.*workers 2$|4096, workers 1, cpu")
	o.With[jobbench.Program] = os.Args[0]
	results, err := jobbench.Procs(t.Context(), o)
	check(t, o, 2, results, err)
	for _, r := range results {
		if r.Theirs["in process"] <= 0 || r.Ratio <= 0 {
			t.Errorf("%+v", r)
		}
	}
	o.With[jobbench.Program] = filepath.Join(t.TempDir(), "nothing")
	if _, err := jobbench.Procs(t.Context(), o); err == nil || !strings.Contains(err.Error(), o.With[jobbench.Program]) {
		t.Errorf("without a program: %v", err)
	}
}

// TestMain serves a shard in place of the tests where this program is called as monolith is.
func TestMain(m *testing.M) {
	if len(os.Args) > 5 && os.Args[1] == "ps" {
		cfg, err := job.Load(os.Args[2], job.LoadOptions{})
		if err == nil {
			shard, _ := strconv.Atoi(os.Args[5])
			_, err = job.Serve(context.Background(), cfg, job.ServeOptions{Shards: []int{shard}})
		}
		fmt.Fprintln(os.Stderr, err)
		return
	}
	m.Run()
}

// TestServe: answers are the same each way to ask, one of which is measured, and what is not installed is left out with a reason.
func TestServe(t *testing.T) {
	if testing.Short() {
		t.Skip("a large model is asked some thousand times")
	}
	t.Setenv("PATH", t.TempDir())
	o := options(t, "gRPC")
	results, err := jobbench.Serve(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 5 {
		t.Fatalf("%d results: %+v", len(results), results)
	}
	for i, r := range results {
		if r.Ours <= 0 || i < 2 && (r.Control <= 0 || r.Unit != "requests/s") || (i == 2 || i == 3) && r.Theirs["p50"] > r.Ours {
			t.Errorf("%+v", r)
		}
	}
	if len(results[0].Absent) != 4 || results[1].Theirs["not pinned"] <= 0 {
		t.Errorf("%+v", results[:2])
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
