package job_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/pipeline"
)

// copyTo copies a file.
func copyTo(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// reads runs the job of epochsJob on files, which are patterns, and returns the result and what it logged.
func reads(t *testing.T, dir, run string, files []string, set ...string) (*job.TrainResult, string) {
	t.Helper()
	cfg := epochsJob(t, dir, "train.libfm", run, set...)
	cfg.Source.Value().(*components.Text).Files = files
	var said strings.Builder
	r, err := job.Run(t.Context(), cfg, job.RunOptions{Notice: func(s string) { said.WriteString(s + "\n") }})
	if err != nil {
		t.Fatal(err)
	}
	return r, said.String()
}

// TestBitsMoveWithTheData trains on the same rows under other paths, in shuffled order and with dropout: the bits are the
// same. Not parallel: one of the paths is relative.
func TestBitsMoveWithTheData(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	a := filepath.Join(dir, "train.libfm")
	writeLibfm(t, a, 700, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	copyTo(t, a, filepath.Join(elsewhere, "copy"))
	copyTo(t, a, filepath.Join(elsewhere, "train.libfm"))
	if err := os.Symlink(a, filepath.Join(elsewhere, "link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	wants := map[string]string{}
	for i, path := range []string{a, "train.libfm", filepath.Join(elsewhere, "train.libfm"), filepath.Join(elsewhere, "copy"), filepath.Join(elsewhere, "link")} {
		for _, one := range []string{"false", "true"} {
			r, _ := reads(t, dir, fmt.Sprint("run", i, one), []string{path}, "epochs=2", "shuffle.one_split="+one)
			text := fmt.Sprint(r.Metrics)
			if wants[one] == "" {
				wants[one] = text
			}
			if want := wants[one]; text != want {
				t.Errorf("%s, one_split %s: %s, want %s", path, one, text, want)
			}
		}
	}
}

// TestMovedDataGoesOn moves the data of a job in the midst of an epoch, each time elsewhere: it ends with the bits of one
// that stayed.
func TestMovedDataGoesOn(t *testing.T) {
	t.Parallel()
	for _, one := range []string{"false", "true"} {
		t.Run("one_split="+one, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			home := filepath.Join(dir, "home")
			if err := os.MkdirAll(filepath.Join(home, "b"), 0o755); err != nil {
				t.Fatal(err)
			}
			writeLibfm(t, filepath.Join(home, "x.libfm"), 400, 0)
			writeLibfm(t, filepath.Join(home, "b", "x.libfm"), 300, 700)
			writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
			set := []string{"epochs=3", "shuffle.one_split=" + one}
			at := func(home string) []string { return []string{home + "/x.libfm", home + "/b/*.libfm"} }
			whole, _ := reads(t, dir, "whole", at(home), set...)
			total := int64(0)
			for i, limit := range []int{192, 892, 1592, 0} {
				to := filepath.Join(dir, fmt.Sprint("home", i))
				if err := os.Rename(home, to); err != nil {
					t.Fatal(err)
				}
				home = to
				r, said := reads(t, dir, "moved", at(home), append(set, fmt.Sprintf("train.max_examples=%d", limit))...)
				if i > 0 && !strings.Contains(said, "were trained on before") {
					t.Errorf("said %q", said)
				}
				total += r.Examples
				if limit == 0 && (digest(t, r.Snapshot) != digest(t, whole.Snapshot) || total != whole.Examples) {
					t.Errorf("%d examples, digest %s; whole %d, %s", total, digest(t, r.Snapshot), whole.Examples, digest(t, whole.Snapshot))
				}
			}
		})
	}
}

// TestWhatWasReadIsNotReadAgain changes a job that has ended, in all the ways that once made it read everything again.
func TestWhatWasReadIsNotReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 500, 0)
	writeLibfm(t, filepath.Join(dir, "train2.libfm"), 100, 900)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	copyTo(t, filepath.Join(dir, "train.libfm"), filepath.Join(dir, "elsewhere", "old.libfm"))
	train, second, moved := filepath.Join(dir, "train.libfm"), filepath.Join(dir, "train2.libfm"), filepath.Join(dir, "elsewhere", "old.libfm")
	type run struct {
		files    []string
		set      []string
		examples int64
		epochs   int
		says     string
	}
	plain := []string{"epochs=1", "shuffle.rows=0"}
	shuffled := []string{"epochs=1", "shuffle.rows=200"}
	for name, runs := range map[string][]run{
		"more epochs": {
			{[]string{train}, plain, 500, 1, ""},
			{[]string{train}, plain, 0, 1, "500 examples of this source were trained on before, in 1 epoch(s), and are not read again"},
			{[]string{train}, []string{"epochs=3", "shuffle.rows=0"}, 1000, 3, "continuing with epoch 2 of 3"},
			{[]string{train}, plain, 0, 3, "in 3 epoch(s)"},
			{[]string{train}, []string{"epochs=4", "shuffle.rows=200"}, 500, 4, ""},
		},
		"shuffled": {
			{[]string{train}, plain, 500, 1, ""},
			{[]string{train}, shuffled, 0, 1, "not read again"},
			{[]string{train}, []string{"epochs=2", "shuffle.rows=200"}, 500, 2, ""},
			{[]string{train}, []string{"epochs=2", "shuffle.rows=-1"}, 0, 2, ""},
			{[]string{train}, []string{"epochs=3", "shuffle.rows=0"}, 500, 3, ""},
		},
		"another order in the midst of an epoch": {
			{[]string{train}, append(plain, "train.max_examples=128"), 128, 0, ""},
			{[]string{train}, []string{"epochs=2", "shuffle.rows=200", "train.max_examples=320"}, 192, 0, "finished in its order"},
			{[]string{train}, []string{"epochs=2", "shuffle.rows=200", "train.max_examples=628"}, 308, 1, ""},
			{[]string{train}, []string{"epochs=2", "shuffle.rows=0"}, 372, 2, "finished in its order"},
		},
		"one split": {
			{[]string{train, second}, plain, 600, 1, ""},
			{[]string{train, second}, append(plain, "shuffle.one_split=true"), 0, 1, "not read again"},
			{[]string{train, second}, []string{"epochs=2", "shuffle.rows=200", "shuffle.one_split=true"}, 600, 2, ""},
			{[]string{train, second}, []string{"epochs=3", "shuffle.rows=200"}, 600, 3, ""},
		},
		"one split in the midst of an epoch": {
			{[]string{train, second}, append(plain, "train.max_examples=128"), 128, 0, ""},
			{[]string{train, second}, append(shuffled, "shuffle.one_split=true"), 600, 1, "epoch 1 is read from its beginning"},
		},
		"elsewhere": {
			{[]string{train}, shuffled, 500, 1, ""},
			{[]string{moved}, shuffled, 0, 1, ""},
			{[]string{moved, second}, shuffled, 100, 1, "not read before: train2.libfm"},
			{[]string{train, second}, shuffled, 0, 1, ""},
		},
		"another source": {
			{[]string{train}, []string{"epochs=2"}, 1000, 2, ""},
			{[]string{second}, []string{"epochs=1"}, 100, 1, "nothing of this source was trained on before: train2.libfm"},
			{[]string{train}, []string{"epochs=2"}, 0, 2, ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, r := range runs {
				got, said := reads(t, dir, strings.ReplaceAll(name, " ", "-"), r.files, r.set...)
				if got.Examples != r.examples || got.Epochs != r.epochs {
					t.Errorf("run %d: %d examples, %d epochs; want %d and %d; it said\n%s", i, got.Examples, got.Epochs, r.examples, r.epochs, said)
				}
				if !strings.Contains(said, r.says) {
					t.Errorf("run %d said %q, want %q", i, said, r.says)
				}
			}
		})
	}
}

// TestOtherBytesUnderTheSameName reads a file whose name another had, and what is appended to it.
func TestOtherBytesUnderTheSameName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "train.libfm")
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	for i, step := range []struct {
		rows, from int
		examples   int64
		says       string
	}{
		{300, 0, 300, ""}, {400, 0, 100, ""}, {200, 800, 200, "train.libfm~2 will be read from the beginning"}, {200, 800, 0, ""}, {250, 800, 50, ""}, {400, 0, 0, ""},
	} {
		writeLibfm(t, path, step.rows, step.from)
		r, said := reads(t, dir, "run", []string{path}, "epochs=1", "shuffle.rows=0")
		if r.Examples != step.examples || !strings.Contains(said, step.says) {
			t.Errorf("step %d: %d examples, want %d; it said %q", i, r.Examples, step.examples, said)
		}
	}
}

// TestWorkersWithoutSplits: who asks for more workers than there are splits is told that some have nothing to do, and nobody else.
func TestWorkersWithoutSplits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ splits, workers, idle int }{{1, 1, 0}, {1, 2, 1}, {3, 4, 1}, {4, 4, 0}, {4, 2, 0}} {
		c, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
source: {synthetic: {examples: 2000, splits: %d}}
parse: {features: [{name: user, slot: 1}], label: click}
model: lr
train: {workers: %d}
`, t.TempDir(), tt.splits, tt.workers), "idle.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var said []string
		if _, err := job.Run(t.Context(), c, job.RunOptions{Notice: func(s string) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, s)
		}}); err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(said, func(s string) bool { return !strings.Contains(s, "have nothing to do") })
		if want := fmt.Sprintf("%d of %d workers", tt.idle, tt.workers); tt.idle == 0 && len(got) > 0 || tt.idle > 0 && (len(got) != 1 || !strings.Contains(got[0], want)) {
			t.Errorf("%d splits and %d workers: said %q", tt.splits, tt.workers, got)
		}
	}
}

// csvOf are rows of click data under a header, from one number on.
func csvOf(n, from int) string {
	var b strings.Builder
	b.WriteString("user,item,click\n")
	for i := from; i < from+n; i++ {
		fmt.Fprintf(&b, "u%d,i%d,%d\n", i, i%17, i%3&1)
	}
	return b.String()
}

// TestAnotherFileWithTheBeginningOfOneThatHasGrown trains on a file that was first seen with its header alone and has grown since, and then on others with
// that header and name: each row of each is trained on once, also where runs end in the midst of a file, and where the last run's snapshot is lost.
func TestAnotherFileWithTheBeginningOfOneThatHasGrown(t *testing.T) {
	t.Parallel()
	few, monday, tuesday, wednesday := csvOf(12, 0), csvOf(900, 0), csvOf(1500, 5000), csvOf(400, 9000)
	header, _, _ := strings.Cut(monday, "u0")
	type step struct {
		text     string // what the file holds
		most     int    // train.max_examples, which counts each file by itself; 0: all
		lose     bool   // the snapshot of this run
		examples int64
		says     string
	}
	for name, steps := range map[string][]step{
		"larger":     {{header, 0, false, 0, ""}, {monday, 0, false, 900, ""}, {tuesday, 0, false, 1500, "part.csv~2 will be read from the beginning"}, {tuesday, 0, false, 0, ""}},
		"smaller":    {{header, 0, false, 0, ""}, {monday, 0, false, 900, ""}, {wednesday, 0, false, 400, "part.csv~2 will be read from the beginning"}},
		"first seen": {{few, 0, false, 12, ""}, {monday, 0, false, 888, ""}, {few + "u,i,1\n" + monday[len(few):], 0, false, 901, ""}},
		"and back":   {{header, 0, false, 0, ""}, {monday, 0, false, 900, ""}, {tuesday, 0, false, 1500, ""}, {monday + "u,i,1\n", 0, false, 1, ""}, {tuesday + "u,i,1\n", 0, false, 1, ""}},
		"header again": {
			{header, 0, false, 0, ""},
			{monday, 0, false, 900, ""},
			{header, 0, false, 0, ""},
			{tuesday, 0, false, 1500, ""},
			{header, 0, false, 0, ""},
			{wednesday, 0, false, 400, ""},
			{monday, 0, false, 0, ""},
			{tuesday, 0, false, 0, ""},
		},
		"in the midst": {
			{header, 0, false, 0, ""},
			{monday, 320, false, 320, ""},
			{tuesday, 640, false, 640, ""},
			{monday, 640, false, 320, ""},
			{tuesday, 0, false, 860, ""},
			{monday, 0, false, 260, ""},
		},
		"killed": {
			{header, 0, false, 0, ""},
			{monday, 320, false, 320, ""},
			{monday, 640, true, 320, ""},
			{tuesday, 640, true, 640, ""},
			{tuesday, 0, false, 1500, ""},
			{monday, 0, false, 580, ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "part.csv")
			for i, s := range steps {
				if err := os.WriteFile(path, []byte(s.text), 0o644); err != nil {
					t.Fatal(err)
				}
				cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
deterministic: true
source: {text: {files: [%q]}}
parse: {format: csv, header: true, features: [{name: user}, {name: item}], label: click}
model: lr
train: {batch: 64, max_examples: %d}
snapshot: {every: 0s}
`, filepath.Join(dir, "run"), path, s.most), "grown.yaml", job.LoadOptions{})
				if err != nil {
					t.Fatal(err)
				}
				before, _ := filepath.Glob(filepath.Join(dir, "run", "snapshots", "*"))
				var said strings.Builder
				r, err := job.Run(t.Context(), cfg, job.RunOptions{Notice: func(s string) { said.WriteString(s + "\n") }})
				if err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				if r.Examples != s.examples || !strings.Contains(said.String(), s.says) {
					t.Errorf("step %d: %d examples, want %d; it said\n%s", i, r.Examples, s.examples, said.String())
				}
				if !s.lose {
					continue
				}
				after, _ := filepath.Glob(filepath.Join(dir, "run", "snapshots", "*"))
				lost := 0
				for _, p := range after {
					if !slices.Contains(before, p) {
						lost++
						if err := os.RemoveAll(p); err != nil {
							t.Fatal(err)
						}
					}
				}
				if lost == 0 {
					t.Fatalf("step %d: no snapshot of %q is new", i, after)
				}
			}
		})
	}
}

// TestKilledWhileReadingAFileThatHasGrown ends runs in the midst of a file that had its header alone when it was first seen, without a snapshot; with a log
// of the shards, which knows how far it was read, and without, where it is as if it had not grown. Another file with that header is read whole then, and the rest of the first after it.
func TestKilledWhileReadingAFileThatHasGrown(t *testing.T) {
	t.Parallel()
	monday, tuesday := csvOf(3000, 0), csvOf(4000, 5000)
	header, _, _ := strings.Cut(monday, "u0")
	for _, durability := range []string{"none", "wal"} {
		t.Run(durability, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "part.csv")
			run := func(text string, cut int64) (examples int64, said string) {
				t.Helper()
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				parts := components.All()
				parts.Stages = []component.Stage{{Name: "cut", New: func() component.StageConfig { return &cutAfter{cut: cut, cancel: cancel} }}}
				cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
deterministic: true
source: {text: {files: [%q], block_rows: 50}}
parse: {format: csv, header: true, features: [{name: user}, {name: item}], label: click}
model: lr
stages: [cut]
train: {batch: 64}
snapshot: {every: 0s}
ps: {durability: %s}
`, filepath.Join(dir, "run"), path, durability), "cut.yaml", job.LoadOptions{Components: parts})
				if err != nil {
					t.Fatal(err)
				}
				var notices strings.Builder
				r, err := job.Run(ctx, cfg, job.RunOptions{Notice: func(s string) { notices.WriteString(s + "\n") }})
				if cut > 0 {
					if !errors.Is(err, context.Canceled) {
						t.Fatalf("a run that is cut off ends with %v", err)
					}
					return 0, notices.String()
				}
				if err != nil {
					t.Fatal(err)
				}
				return r.Examples, notices.String()
			}
			run(header, 0)
			for _, cut := range []int64{20, 30} {
				run(monday, cut)
			}
			if n, said := run(tuesday, 0); n != 4000 || durability == "wal" && !strings.Contains(said, "part.csv~2 will be read from the beginning") {
				t.Errorf("%d examples of another file, want 4000; it said\n%s", n, said)
			}
			n, _ := run(monday, 0)
			if kept := 3000 - n; durability == "none" && kept != 0 || durability == "wal" && (kept <= 0 || kept >= 3000) {
				t.Errorf("%d examples of the first were kept", kept)
			}
			if n, said := run(monday, 0); n != 0 || !strings.Contains(said, "3000 examples of this source were trained on before") {
				t.Errorf("%d examples once more; it said\n%s", n, said)
			}
		})
	}
}

// cutAfter is a stage that cancels a run at one of its batches.
type cutAfter struct {
	counter
	cut    int64
	seen   atomic.Int64
	cancel func()
}

func (c *cutAfter) Stage() (pipeline.Stage[*pipeline.Batch, *pipeline.Batch], error) { return c, nil }

func (c *cutAfter) Open(context.Context, *pipeline.Env) (pipeline.Processor[*pipeline.Batch, *pipeline.Batch], error) {
	return c, nil
}

func (c *cutAfter) Process(_ context.Context, in *pipeline.Batch, emit func(*pipeline.Batch) error) error {
	if c.seen.Add(1) == c.cut {
		c.cancel()
	}
	return emit(in)
}

// TestRotatedLogs writes a log that is rotated while it is written to, and trains on what there is after each step: each row once.
func TestRotatedLogs(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(7, 1))
	dir := t.TempDir()
	logs := []string{csvOf(5, 0)} // the newest first
	rows, trained, moved := 5, int64(0), 0
	for step := range 12 {
		if rnd.IntN(2) == 0 {
			logs = slices.Insert(logs, 0, csvOf(3, rows))
			rows += 3
		}
		for i := range min(len(logs), 2) { // the one that was rotated last is written to for a while
			if more := rnd.IntN(40); more > 0 {
				logs[i] += strings.TrimPrefix(csvOf(more, rows), "user,item,click\n")
				rows, moved = rows+more, moved+i
			}
		}
		for i, text := range logs {
			path := filepath.Join(dir, "app.log")
			if i > 0 {
				path = fmt.Sprintf("%s.%d", path, i)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r, said := trainsOn(t, dir, filepath.Join(dir, "app.log*"))
		if trained += r.Examples; trained != int64(rows) {
			t.Fatalf("step %d: %d of %d rows; it said\n%s", step, trained, rows, said)
		}
	}
	if moved == 0 || len(logs) < 4 {
		t.Errorf("%d logs, %d written to after: no test", len(logs), moved)
	}
}

// TestHalfWrittenRecords trains on files that end within a record, and again once they are whole: each example is trained on once, and none is bad.
func TestHalfWrittenRecords(t *testing.T) {
	t.Parallel()
	zip := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := io.WriteString(w, text)
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	whole := csvOf(1000, 0)
	cut := len(csvOf(600, 0)) + 2 // u600 is u6 so far
	for name, files := range map[string][2][]byte{
		"a.csv":        {[]byte(whole[:cut]), []byte(whole)},
		"members.gz":   {zip(whole[:cut]), append(zip(whole[:cut]), zip(whole[cut:])...)},
		"in member.gz": {zip(whole)[:1500], zip(whole)},
	} {
		for _, policy := range []string{"train: {on_bad_row: fail}", "train: {on_bad_row: skip}"} {
			dir := t.TempDir()
			path := filepath.Join(dir, name)
			var trained int64
			for i, file := range files {
				if err := os.WriteFile(path, file, 0o644); err != nil {
					t.Fatal(err)
				}
				r, said := trainsOn(t, dir, path, policy)
				if trained += r.Examples; len(r.BadRows) > 0 || name != "in member.gz" && trained != []int64{600, 1000}[i] || r.Examples == 0 {
					t.Errorf("%s, %s, run %d: %d examples, %d in all, bad %v; it said\n%s", name, policy, i, r.Examples, trained, r.BadRows, said)
				}
			}
			if trained != 1000 {
				t.Errorf("%s, %s: %d examples", name, policy, trained)
			}
		}
	}
}

// TestMovedAndAppendedLater renames and appends to a file whose position does not say which rows every epoch had: it is a new one, all of which is read.
func TestMovedAndAppendedLater(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		first    string // of the job, then more of it
		second   string
		examples int64
	}{
		{"the first epoch", "epochs: 1", "epochs: 1", 50},
		{"the second epoch", "epochs: 2", "epochs: 2", 300},
		{"epochs that there were before", "epochs: 2", "epochs: 1", 150},
		{"shuffled", "shuffle: {rows: 40}", "shuffle: {rows: 40}", 150},
		{"shuffled by now", "epochs: 1", "shuffle: {rows: 40}", 50},
		{"shuffled before", "shuffle: {rows: 40}", "epochs: 1", 150},
		{"as one split", "shuffle: {one_split: true}", "shuffle: {one_split: true}", 150},
		{"as one split before", "shuffle: {one_split: true}", "epochs: 1", 150},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, text := filepath.Join(dir, "x.csv"), csvOf(100, 0)
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			trainsOn(t, dir, path, tc.first)
			path = filepath.Join(dir, "y.csv")
			if err := os.WriteFile(path, []byte(text+strings.TrimPrefix(csvOf(50, 100), "user,item,click\n")), 0o644); err != nil {
				t.Fatal(err)
			}
			if r, said := trainsOn(t, dir, path, tc.second); r.Examples != tc.examples {
				t.Errorf("%d examples, want %d; it said\n%s", r.Examples, tc.examples, said)
			}
		})
	}
}

// TestGrownWhileShuffled appends to a file in the midst of an epoch whose order is drawn of all its rows, and ends it: it has the rows that it began
// with, to the bit as where nothing came, and what was appended is in the next one, of another run or of the same; a run without one says so.
func TestGrownWhileShuffled(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, shuffle string
		rest          int64 // of the epoch, after the first 192 of 300 rows, when 150 more have come
	}{
		{"all", "{rows: -1}", 108},
		{"windows", "{rows: 130}", 108},
		{"all, one split", "{rows: -1, one_split: true}", 108},
		{"one split", "{one_split: true}", 108},
		{"in order", "{rows: 0}", 258},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var digests []string
			for _, grows := range []bool{false, true} {
				dir := t.TempDir()
				a, b := csvOf(200, 0), csvOf(100, 200)
				train := func(more ...string) (*job.TrainResult, string) {
					for name, text := range map[string]string{"a.csv": a, "b.csv": b} {
						if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
							t.Fatal(err)
						}
					}
					return trainsOn(t, dir, filepath.Join(dir, "*.csv"), append(more, "deterministic: true", "shuffle: "+tc.shuffle)...)
				}
				train("train: {batch: 64, max_examples: 192}")
				if grows {
					a += strings.TrimPrefix(csvOf(150, 300), "user,item,click\n")
				}
				r, said := train("train: {batch: 64}")
				digests = append(digests, digest(t, r.Snapshot))
				if says := strings.Contains(said, "longer than before, of which no more is read: a.csv"); grows && (r.Examples != tc.rest || says != (tc.rest == 108)) {
					t.Errorf("the rest has %d examples, want %d; it said\n%s", r.Examples, tc.rest, said)
				}
				if r, said := train("train: {batch: 64}", "epochs: 2"); grows && r.Examples != 450 {
					t.Errorf("the next epoch has %d examples, want 450; it said\n%s", r.Examples, said)
				}
			}
			if tc.rest == 108 && digests[0] != digests[1] {
				t.Errorf("digest %s, want %s", digests[1], digests[0])
			}
			dir, a := t.TempDir(), csvOf(300, 0)
			both := func(more ...string) (*job.TrainResult, string) {
				if err := os.WriteFile(filepath.Join(dir, "a.csv"), []byte(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return trainsOn(t, dir, filepath.Join(dir, "*.csv"), append(more, "deterministic: true", "epochs: 2", "shuffle: "+tc.shuffle)...)
			}
			both("train: {batch: 64, max_examples: 192}")
			a += strings.TrimPrefix(csvOf(150, 300), "user,item,click\n")
			if r, said := both("train: {batch: 64}"); r.Examples != tc.rest+450 || r.Epochs != 2 || strings.Contains(said, "no more is read") {
				t.Errorf("in one run %d examples and %d epochs, want %d and 2; it said\n%s", r.Examples, r.Epochs, tc.rest+450, said)
			}
			if r, said := both("train: {batch: 64}"); r.Examples != 0 {
				t.Errorf("%d examples are read once more; it said\n%s", r.Examples, said)
			}
		})
	}
}

// TestGrownWhileShuffledElsewhere is TestGrownWhileShuffled where the shards are in another process: the run finishes its epochs without what was appended, says so, and the next one has it.
func TestGrownWhileShuffledElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, text := filepath.Join(dir, "a.csv"), csvOf(300, 0)
	shards := fmt.Sprintf("ps: {addresses: [%q]}", "unix:"+filepath.Join(dir, "s"))
	for i, more := range []string{"train: {batch: 64, max_examples: 192}", "train: {batch: 64}\nepochs: 2", "train: {batch: 64}\nepochs: 3"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		more = strings.Join([]string{shards, "shuffle: {rows: -1}", more}, "\n")
		served, err := decodeTrainsOn(dir, path, more)
		if err != nil {
			t.Fatal(err)
		}
		stop := serveShards(t.Context(), t, served)
		r, said := trainsOn(t, dir, path, more)
		stop()
		if want := []int64{192, 108 + 300, 450}[i]; r.Examples != want {
			t.Errorf("run %d: %d examples, want %d; it said\n%s", i, r.Examples, want, said)
		}
		if says := strings.Contains(said, "longer than before: a.csv; the epoch that was begun is finished without"); says != (i == 1) {
			t.Errorf("run %d said\n%s", i, said)
		}
		if i == 0 {
			text += strings.TrimPrefix(csvOf(150, 300), "user,item,click\n")
		}
	}
}

// TestCompressedLogs rotates a log and compresses what was read of it: a new file, which a run says. One whose name says nothing of the kind is not suspected, nor one whose log is there still.
func TestCompressedLogs(t *testing.T) {
	t.Parallel()
	for name, suspected := range map[string]bool{"app.log.1.gz": true, "app.log.gz": true, "app.log-20261127.gz": true, "apple.gz": false, "other.log.gz": false, "app.log.1": false} {
		for _, stays := range []bool{false, true} {
			dir := t.TempDir()
			log, pattern, text := filepath.Join(dir, "app.log"), filepath.Join(dir, "*"), csvOf(100, 0)
			if err := os.WriteFile(log, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			run := t.TempDir()
			trainsOn(t, run, pattern)
			if !stays {
				if err := os.Remove(log); err != nil {
					t.Fatal(err)
				}
			}
			var b bytes.Buffer
			b.WriteString(csvOf(50, 100))
			if strings.HasSuffix(name, ".gz") {
				b.Reset()
				z := gzip.NewWriter(&b)
				if _, err := z.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
				if err := z.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			_, said := trainsOn(t, run, pattern)
			if says := strings.Contains(said, "compressed now, as it seems: "+name); says != (suspected && !stays) {
				t.Errorf("%s, the log stays: %v; it said\n%s", name, stays, said)
			}
		}
	}
}

// TestAnotherSeedInTheMidstOfAnEpoch changes the seed while a shuffled epoch is under way: it ends in its order, in which each user comes once.
func TestAnotherSeedInTheMidstOfAnEpoch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.csv")
	if err := os.WriteFile(path, []byte(csvOf(300, 0)), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, more := range []string{"train: {batch: 64, max_examples: 192}", "seed: 2", "seed: 2\nepochs: 2", "seed: 3\nepochs: 2"} {
		r, said := trainsOn(t, dir, path, "deterministic: true", "shuffle: {rows: -1}", more)
		if want := []int64{192, 108, 300, 0}[i]; r.Examples != want {
			t.Errorf("run %d: %d examples, want %d; it said\n%s", i, r.Examples, want, said)
		}
		if says := strings.Contains(said, "seed has changed: the epoch that was begun is finished in its order"); says != (i == 1) {
			t.Errorf("run %d said\n%s", i, said)
		}
		if i == 2 && !strings.Contains(said, "(317 rows)") { // one for each of the users and items
			t.Errorf("after the first epoch it said\n%s", said)
		}
	}
}

// TestOtherRecordsInTheMidstOfAnEpoch: where positions count records, an epoch that was begun is not finished with others. Where they are places in bytes, or the
// epoch is over, it is.
func TestOtherRecordsInTheMidstOfAnEpoch(t *testing.T) {
	t.Parallel()
	lines := strings.SplitN(csvOf(300, 0), "\n", 2)[1]
	for name, tc := range map[string]struct {
		file, shuffle string
		max           int
		refused       bool
	}{
		"gzip":           {"x.csv.gz", "{rows: 0}", 192, true},
		"shuffled":       {"x.csv", "{rows: -1}", 192, true},
		"one split":      {"x.csv", "{one_split: true}", 192, true},
		"plain":          {"x.csv", "{rows: 0}", 192, false},
		"gzip, over":     {"x.csv.gz", "{rows: 0}", 0, false},
		"shuffled, over": {"x.csv", "{rows: -1}", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, content := filepath.Join(dir, tc.file), []byte(lines)
			if strings.HasSuffix(path, ".gz") {
				var b bytes.Buffer
				w := gzip.NewWriter(&b)
				if _, err := w.Write(content); err != nil {
					t.Fatal(err)
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				content = b.Bytes()
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			train := func(format string, most int) error {
				t.Helper()
				cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
source: {text: {files: [%q]}}
parse: {format: %s, columns: [user, item, click], features: [{name: user, slot: 1}], label: click}
model: lr
shuffle: %s
epochs: 2
deterministic: true
train: {batch: 64, max_examples: %d, on_bad_row: skip, max_bad_share: 1}
`, filepath.Join(dir, "run"), path, format, tc.shuffle, most), "x.yaml", job.LoadOptions{})
				if err != nil {
					t.Fatal(err)
				}
				_, err = job.Run(t.Context(), cfg, job.RunOptions{})
				return err
			}
			if err := train("csv", tc.max); err != nil {
				t.Fatal(err)
			}
			err := train("tsv", 0)
			if refused := errors.Is(err, pipeline.ErrConfig) && strings.Contains(err.Error(), "has changed in the midst of an epoch of "); refused != tc.refused {
				t.Errorf("other records: %v", err)
			}
			if tc.refused {
				if err := train("csv", 0); err != nil {
					t.Errorf("the same records again: %v", err)
				}
			}
		})
	}
}

// TestAnotherSyntheticStreamIsRefused: positions of one world are not continued from in another.
func TestAnotherSyntheticStreamIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, step := range []struct {
		job      string
		examples int64 // -1: it is refused
	}{
		{"source: {synthetic: {examples: 3000}}", 3000},
		{"source: {synthetic: {examples: 4000, rate: 1e9}}", 1000},
		{"source: {synthetic: {examples: 5000, seed: 2}}", -1},
		{"source: {synthetic: {examples: 5000}}\nseed: 2", -1},
		{"source: {synthetic: {examples: 5000, splits: 2}}", -1},
		{"source: {synthetic: {examples: 5000, seed: 1}}\nseed: 2", 1000},
		{"source: {synthetic: {examples: 5000, seed: 2}}\nsource_name: other", 5000},
	} {
		cfg, err := job.Decode(fmt.Appendf(nil, "version: 1\ndir: %q\nparse: {features: [{name: user, slot: 1}], label: click}\nmodel: lr\n%s\n", dir, step.job), "job.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Run(t.Context(), cfg, job.RunOptions{})
		if step.examples < 0 {
			if err == nil || !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "source.synthetic has changed") || !strings.Contains(err.Error(), "source_name") {
				t.Errorf("step %d: error %v", i, err)
			}
			continue
		}
		if err != nil || r.Examples != step.examples {
			t.Errorf("step %d: %+v, %v; want %d examples", i, r, err, step.examples)
		}
	}
}

// TestFilesThatAreTheSame: a copy of a file in the list is said, and files that are another, or hardly anything, are not.
func TestFilesThatAreTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"a.csv": csvOf(200, 0), "b.csv": csvOf(200, 200), "c.csv": csvOf(200, 0), "d.csv": csvOf(0, 0), "e.csv": csvOf(0, 0)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, said := trainsOn(t, dir, filepath.Join(dir, "*.csv"))
	if strings.Count(said, "trained on twice") != 1 || !strings.Contains(said, "twice: a.csv and c.csv;") {
		t.Errorf("it said\n%s", said)
	}
}

// decodeTrainsOn is the job of trainsOn.
func decodeTrainsOn(dir, pattern string, more ...string) (*job.Config, error) {
	return job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
source: {text: {files: [%q]}}
parse: {format: csv, header: true, features: [{name: user}, {name: item}], label: click}
model: lr
snapshot: {every: 0s}
%s`, filepath.Join(dir, "run"), pattern, strings.Join(more, "\n")), "job.yaml", job.LoadOptions{})
}

// trainsOn trains on click data that a pattern names, with more lines of the job, and returns what it said too.
func trainsOn(t *testing.T, dir, pattern string, more ...string) (*job.TrainResult, string) {
	t.Helper()
	cfg, err := decodeTrainsOn(dir, pattern, more...)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	r, err := job.Run(t.Context(), cfg, job.RunOptions{Notice: func(s string) { said.WriteString(s + "\n") }})
	if err != nil {
		t.Fatal(err)
	}
	return r, said.String()
}
