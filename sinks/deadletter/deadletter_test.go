package deadletter_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/deadletter"
)

func clock() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("", 3600)) }

func dataError(position int) *pipeline.DataError {
	return &pipeline.DataError{Source: "ratings", Split: "ratings-0", Position: pipeline.Position(position), Reason: "wrong type", Err: errors.New("feature \"age\"")}
}

func letters(t *testing.T, path string) []deadletter.Letter {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []deadletter.Letter
	for line := range bytes.Lines(b) {
		l, err := deadletter.Parse(line)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out = append(out, l)
	}
	return out
}

func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "dead.jsonl")
	env := &pipeline.Env{}
	for run := range 2 { // the second run appends
		f, err := deadletter.OpenFile(path, deadletter.FileOptions{Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		env.BadRows = f
		if err := env.BadRow(t.Context(), dataError(run), []byte{0, 0xff, '\n'}); err != nil {
			t.Fatal(err)
		}
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		plain := &pipeline.DataError{Source: "ratings", Split: "f", Position: 7, Reason: "no label"}
		if err := env.BadRow(t.Context(), plain, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]int64{"wrong type": 1, "no label": 1}, f.Counts()); diff != "" {
			t.Error(diff)
		}
		if err := errors.Join(f.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
		if err := f.Flush(); !errors.Is(err, pipeline.ErrClosed) {
			t.Errorf("Flush of a closed file: %v", err)
		}
		if err := f.BadRow(t.Context(), dataError(9), nil); !errors.Is(err, pipeline.ErrClosed) || !errors.Is(err, pipeline.ErrBadData) {
			t.Errorf("BadRow of a closed file: %v", err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const golden = `{"time":"2026-03-01T11:00:00Z","source":"ratings","split":"ratings-0","position":0,"reason":"wrong type","error":"feature \"age\"","payload":"AP8K"}
{"time":"2026-03-01T11:00:00Z","source":"ratings","split":"f","position":7,"reason":"no label"}
{"time":"2026-03-01T11:00:00Z","source":"ratings","split":"ratings-0","position":1,"reason":"wrong type","error":"feature \"age\"","payload":"AP8K"}
{"time":"2026-03-01T11:00:00Z","source":"ratings","split":"f","position":7,"reason":"no label"}
`
	if diff := cmp.Diff(golden, string(got)); diff != "" {
		t.Error(diff)
	}
	if l := letters(t, path)[0]; l.Key() != "ratings/ratings-0/0" || !bytes.Equal(l.Payload, []byte{0, 0xff, '\n'}) || !l.Time.Equal(clock()) {
		t.Errorf("first letter is %+v", l)
	}
}

func TestFileEndsATornLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "dead.jsonl")
	if err := os.WriteFile(path, []byte(`{"time":"2026-`), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := deadletter.OpenFile(path, deadletter.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.BadRow(t.Context(), dataError(3), nil), f.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("file is %q", b)
	}
	if _, err := deadletter.Parse([]byte(lines[0])); !errors.Is(err, pipeline.ErrBadData) {
		t.Errorf("the torn line gives %v", err)
	}
	if l, err := deadletter.Parse([]byte(lines[1])); err != nil || l.Position != 3 {
		t.Errorf("the line after it gives %+v, %v", l, err)
	}
}

// Many writers, rotation in between: every letter is in exactly one file, and whole.
func TestFileRotatesUnderLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "dead.jsonl")
	if err := os.WriteFile(path+".1", []byte(`{"position":-1}`+"\n"), 0o644); err != nil { // of an earlier run
		t.Fatal(err)
	}
	f, err := deadletter.OpenFile(path, deadletter.FileOptions{MaxBytes: 2000})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 50 {
				if err := f.BadRow(t.Context(), dataError(w*50+i), []byte("payload")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Errorf("only %d files", len(files))
	}
	seen := map[int64]int{}
	for _, name := range files {
		if st, err := os.Stat(name); err != nil || st.Size() > 2000 {
			t.Errorf("%s has %d bytes, %v", name, st.Size(), err)
		}
		for _, l := range letters(t, name) {
			seen[l.Position]++
		}
	}
	for p := int64(-1); p < 200; p++ {
		if seen[p] != 1 {
			t.Errorf("letter %d stands %d times", p, seen[p])
		}
	}
}

func TestOpenFileFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "new", "folders", "dead.jsonl")
	f, err := deadletter.OpenFile(file, deadletter.FileOptions{})
	if err != nil {
		t.Fatalf("folders that are not there yet: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path string
		opts deadletter.FileOptions
	}{
		{filepath.Join(file, "no", "dead.jsonl"), deadletter.FileOptions{}},
		{dir, deadletter.FileOptions{}},
		{filepath.Join(dir, "x"), deadletter.FileOptions{MaxBytes: -1}},
	} {
		if _, err := deadletter.OpenFile(tc.path, tc.opts); !errors.Is(err, pipeline.ErrConfig) {
			t.Errorf("%s: %v", tc.path, err)
		}
	}
}

// /dev/full takes no byte: a letter that is not written fails the run and names both errors.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		testbed.Require(t, "posix", "there is no /dev/full")
	}
	f, err := deadletter.OpenFile("/dev/full", deadletter.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = f.BadRow(t.Context(), dataError(3), nil)
	if !errors.Is(err, pipeline.ErrUnavailable) || !errors.Is(err, pipeline.ErrBadData) || !strings.Contains(err.Error(), "no space") {
		t.Errorf("error is %v", err)
	}
	if n := len(f.Counts()); n != 0 {
		t.Errorf("%d letters are counted", n)
	}
	_ = f.Close() // a device cannot be synced
}

// TestHalfALetterIsCutOff: what a full disk takes of a letter is no line of the file, those before are whole, and the error says what to do.
func TestHalfALetterIsCutOff(t *testing.T) {
	t.Parallel()
	for full, want := range map[error]string{syscall.ENOSPC: "make room", syscall.EDQUOT: "make room", syscall.EFBIG: "ulimit -f"} {
		path := filepath.Join(t.TempDir(), "dead.jsonl")
		f, err := deadletter.OpenFile(path, deadletter.FileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.BadRow(t.Context(), dataError(1), nil); err != nil {
			t.Fatal(err)
		}
		deadletter.LeaveRoom(f, 20, full)
		err = f.BadRow(t.Context(), dataError(2), nil)
		if !errors.Is(err, pipeline.ErrUnavailable) || !errors.Is(err, full) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: the error is %v, want %q in it", full, err, want)
		}
		deadletter.LeaveRoom(f, 1<<20, nil) // room was made
		if err := errors.Join(f.BadRow(t.Context(), dataError(3), nil), f.Close()); err != nil {
			t.Fatal(err)
		}
		if got := letters(t, path); len(got) != 2 || got[0].Position != 1 || got[1].Position != 3 {
			t.Errorf("%v: the file has %+v, want the letters of 1 and 3", full, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"time":"2026-03-01T11:00:00Z","source":"s","split":"p","position":1,"reason":"r","payload":"AP8K"}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if _, err := deadletter.Parse(line); err != nil && !errors.Is(err, pipeline.ErrBadData) {
			t.Errorf("error is %v", err)
		}
	})
}

func BenchmarkFile(b *testing.B) {
	f, err := deadletter.OpenFile(filepath.Join(b.TempDir(), "dead.jsonl"), deadletter.FileOptions{MaxBytes: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 1000)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := f.BadRow(b.Context(), dataError(n), payload); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}
