package job_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// TestFirstTryGoesWrong: a run that fails before it has trained anything leaves no snapshot, which would hold nothing but the
// features of the wrong job and refuse the right one; what has been trained is kept.
func TestFirstTryGoesWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	try := func(rows, features string) (*job.TrainResult, error) {
		t.Helper()
		file := filepath.Join(dir, "rows.csv")
		if err := os.WriteFile(file, []byte(rows), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: x
dir: %q
source: {text: {files: [%q]}}
parse: {format: csv, header: true, features: [%s], label: click}
model: lr
train: {batch: 2}
`, filepath.Join(dir, "run"), file, features), "x.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return job.Run(t.Context(), cfg, job.RunOptions{})
	}
	snapshots := func() int {
		there, err := filepath.Glob(filepath.Join(dir, "run", "snapshots", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(there)
	}
	const rows = "user,item,click\n1,1,5\n1,2,1\n2,2,0\n"
	if _, err := try(rows, "{name: user}"); !errors.Is(err, pipeline.ErrBadData) || snapshots() != 0 {
		t.Fatalf("%v with %d snapshots, want bad data and none", err, snapshots())
	}
	r, err := try(strings.ReplaceAll(rows, "5", "1"), "{name: user}, {name: item}")
	if err != nil || r.Examples != 3 || snapshots() != 1 {
		t.Fatalf("%+v, %v with %d snapshots: the second try is not a first one", r, err, snapshots())
	}
	bad := strings.ReplaceAll(rows, "5", "1") + "3,3,1\n4,4,1\n5,5,7\n"
	if _, err := try(bad, "{name: user}, {name: item}"); !errors.Is(err, pipeline.ErrBadData) || snapshots() != 1 {
		t.Fatalf("%v with %d snapshots: one was taken though the bad row's block was the first", err, snapshots())
	}
	good := strings.ReplaceAll(rows, "5", "1") + strings.Repeat("3,3,1\n", 5000) // more than a block
	if _, err := try(good+"5,5,7\n", "{name: user}, {name: item}"); !errors.Is(err, pipeline.ErrBadData) || snapshots() != 2 {
		t.Fatalf("%v with %d snapshots: what was trained is not kept", err, snapshots())
	}
}

// TestNamesTheKey: what is wrong with a source or a model is an error of the job, and names the key.
func TestNamesTheKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rows, empty := filepath.Join(dir, "rows.csv"), filepath.Join(dir, "empty.csv")
	for file, text := range map[string]string{rows: "user,click\n1,1\n", empty: ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		set    string
		eval   bool
		err    string // the beginning of the error
		notice string
	}{
		{set: "source.text.files=" + dir + "/none", err: "source.text.files: "},
		{set: "eval.source.text.files=" + dir + "/none", eval: true, err: "eval.source.text.files: "},
		{set: "parse.label=clikc", err: `parse: text/rows.csv: csv has no column "clikc", did you mean "click"?`},
		{set: "model={deepfm: {hidden: [8]}, fm: {}}", err: "--set model: "},
		{set: "tables=[{name: t, dim: 3}]", err: "--set tables: "},
		{set: "heads=[{name: a, label: click}, {name: b, label: click}]", err: "model.lr: zoo: lr has one head"},
		{set: "source.text.files=" + empty, notice: "the source has ended and had no examples: text " + empty},
	} {
		t.Run(tt.set, func(t *testing.T) {
			t.Parallel()
			label := "label: click"
			if strings.HasPrefix(tt.set, "heads=") {
				label = ""
			}
			own := t.TempDir()
			cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: x
dir: %q
source: {text: {files: [%q]}}
parse:
  format: csv
  header: true
  features: [{name: user}]
  %s
model: lr
eval: {source: {text: {files: [%q]}}}
`, own, rows, label, rows), "x.yaml", job.LoadOptions{Set: []string{tt.set}})
			var notices []string
			if err == nil {
				_, err = job.Run(t.Context(), cfg, job.RunOptions{Notice: func(s string) { notices = append(notices, s) }})
			}
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.err)) {
				t.Errorf("%v, want %q", err, tt.err)
			}
			if _, ok := errors.AsType[*job.ConfigError](err); err != nil && !ok && !errors.Is(err, pipeline.ErrConfig) && !errors.Is(err, pipeline.ErrSchema) {
				t.Errorf("%v is not the user's to mend", err)
			}
			if tt.notice != "" && !strings.Contains(strings.Join(notices, "\n"), tt.notice) {
				t.Errorf("notices %q, want %q", notices, tt.notice)
			}
			if tt.eval {
				if findings, err := job.Check(t.Context(), cfg); err != nil || len(findings) != 1 || findings[0].Path+": " != tt.err {
					t.Errorf("check: %+v, %v", findings, err)
				}
			}
		})
	}
}

// TestOutputsOfARunBefore: a run that starts over says that outputs have the rows of the one before; one that continues says
// nothing.
func TestOutputsOfARunBefore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	train := func(run string, examples int) string {
		t.Helper()
		cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: x
dir: %q
source: {synthetic: {examples: 1000, splits: 2}}
parse: {features: [{name: user}], label: click}
model: lr
train: {batch: 100, max_examples: %d}
outputs: [{name: shown, of: rows, to: {parquet: {dir: %q}}}]
`, filepath.Join(dir, run), examples, filepath.Join(dir, "rows")), "x.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var notices []string
		if _, err := job.Run(t.Context(), cfg, job.RunOptions{Notice: func(s string) { notices = append(notices, s) }}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(notices, "\n")
	}
	const want = "output shown has rows of this source from a run before"
	for _, tt := range []struct {
		run      string
		examples int
		times    int
	}{{"first", 400, 0}, {"first", 1000, 0}, {"second", 1000, 1}} {
		if got := train(tt.run, tt.examples); strings.Count(got, want) != tt.times {
			t.Errorf("%s to %d: %q, want it %d times", tt.run, tt.examples, got, tt.times)
		}
	}
}

// TestDirThatCannotBe is an error that says which folder and what to do.
func TestDirThatCannotBe(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := job.Decode([]byte(clicksJob), "clicks.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(file, "run")}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = job.Run(t.Context(), cfg, job.RunOptions{})
	if !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "name another dir (--set dir=FOLDER)") {
		t.Errorf("got %v", err)
	}
}
