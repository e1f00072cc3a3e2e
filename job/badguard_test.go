package job_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// linesJob trains on the lines of a file.
func linesJob(t *testing.T, lines []string, parse string, set ...string) *job.Config {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "rows.txt")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
version: 1
name: lines
deterministic: true
source: {text: {files: [%[1]q]}}
parse: {%[2]s}
model: {lr: {}}
train: {batch: 50, on_bad_row: skip}
snapshot: {every: 0s}
eval: {source: {text: {files: [%[1]q]}}, every: end}
`, path, parse)
	c, err := job.Decode([]byte(text), "lines.yaml", job.LoadOptions{Set: append([]string{"dir=" + filepath.Join(dir, "run")}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestBadRowSaysWhatToDo: a run that ends at a bad row names the settings by which it does not, and the error is still that of the row.
func TestBadRowSaysWhatToDo(t *testing.T) {
	t.Parallel()
	c := linesJob(t, []string{`{"user":1,"age":2,"y":1}`, `{"user":`}, "format: jsonl, "+userAge, "train.on_bad_row=fail")
	_, err := job.Run(t.Context(), c, job.RunOptions{})
	bad, ok := errors.AsType[*pipeline.DataError](err)
	if !ok || !errors.Is(err, pipeline.ErrBadData) || bad.Position != 25 || !strings.Contains(err.Error(), "train.on_bad_row: skip leaves out") {
		t.Errorf("error %v", err)
	}
}

const userAge = "features: [{name: user, slot: 1}, {name: age, kind: dense}], label: y"

// TestBadRowsEndARun: a run that finds only what it cannot use, or too much of it, ends with an error that says so, and
// without a snapshot.
func TestBadRowsEndARun(t *testing.T) {
	t.Parallel()
	rows := func(n, bad int) (out []string) { // the bad ones come first
		for i := range n {
			label := `"y":1,`
			if i < bad {
				label = ""
			}
			out = append(out, fmt.Sprintf(`{%s"user":%d,"age":%d}`, label, i%7, i%2))
		}
		return out
	}
	for _, tc := range []struct {
		name, parse string
		lines       []string
		set         []string
		want        string // empty: it trains
	}{
		{"a mistyped label", "format: jsonl, " + strings.Replace(userAge, "label: y", "label: clikc", 1), rows(300, 0), nil, "all 300 records are bad (no label 300); the first: text"},
		{"the only record", "format: jsonl, " + strings.Replace(userAge, "label: y", "label: clikc", 1), rows(1, 0), nil, "job: the only record is bad (no label 1); the first: text"},
		{"another format", "format: libfm", rows(300, 0), nil, "all 300 records are bad (malformed libfm 300)"},
		{"another format, many", "format: csv, columns: [y, user, age], " + userAge, rows(3000, 0), nil, "records are bad, more than train.max_bad_share, 0.5"},
		{"a mistyped label that may be", "format: jsonl, " + strings.Replace(userAge, "label: y", "label: clikc", 1), rows(3000, 0), []string{"train.max_bad_share=1"}, "all 3000 records are bad"},
		{"half are bad", "format: jsonl, " + userAge, rows(2000, 1000), []string{"source.text.block_rows=2000"}, ""},
		{"more than half", "format: jsonl, " + userAge, rows(2000, 1001), []string{"source.text.block_rows=2000"}, "1001 of 2000 records are bad"},
		{"the first thousand", "format: jsonl, " + userAge, rows(8000, 501), []string{"source.text.block_rows=10"}, "501 of 1000 records are bad"},
		{"a few of a few", "format: jsonl, " + userAge, rows(100, 80), nil, ""},
		{"none may be", "format: jsonl, " + userAge, rows(1000, 1), []string{"train.max_bad_share=0"}, "1 of 1000 records are bad"},
		{"a later thousand", "format: jsonl, " + userAge, append(rows(3000, 0), rows(1000, 600)...), []string{"source.text.block_rows=100"}, "600 of 1000 records are bad"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			c := linesJob(t, tc.lines, tc.parse, tc.set...)
			r, err := job.Run(t.Context(), c, job.RunOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if tc.want == "" {
				if err != nil || r.Examples == 0 {
					t.Errorf("%+v %v", r, err)
				}
				return
			}
			if !errors.Is(err, job.ErrBadRows) || !strings.Contains(fmt.Sprint(err), tc.want) || !strings.Contains(fmt.Sprint(err), "is parse.format") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if found, _ := filepath.Glob(filepath.Join(c.Dir, "snapshots", "snap-*")); len(found) > 0 {
				t.Errorf("there are snapshots: %q", found)
			}
			if strings.Contains(tc.want, "all") && strings.Count(log.String(), "no record can be used") != 1 {
				t.Errorf("it is not said once:\n%s", log.String())
			}
		})
	}
}

// TestAbsentFeatures: a feature that no example has is named with what was probably meant, once, and the result, the
// metrics and an evaluation say how many examples have which.
func TestAbsentFeatures(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 1500 {
		age := ""
		if i%4 == 0 {
			age = `"age":3,`
		}
		lines = append(lines, fmt.Sprintf(`{%s"y":%d,"user_id":%d,"zip":null}`, age, i%2, i%7))
	}
	const parse = "format: jsonl, features: [{name: usr_id, slot: 1, default: none}, {name: who, column: user_id, slot: 2}, {name: age, kind: dense}, {name: zip, slot: 3}, {name: xyzzy, slot: 4}], label: y"
	want := []job.FillInfo{
		{Feature: "usr_id", Column: "usr_id", Rows: 1500, Nearest: "user_id"},
		{Feature: "who", Column: "user_id", Rows: 1500, Filled: 1500},
		{Feature: "age", Column: "age", Rows: 1500, Filled: 375},
		{Feature: "zip", Column: "zip", Rows: 1500},
		{Feature: "xyzzy", Column: "xyzzy", Rows: 1500},
	}
	var log bytes.Buffer
	metrics := prometheus.NewRegistry()
	c := linesJob(t, lines, parse, "source.text.block_rows=300")
	r, err := job.Run(t.Context(), c, job.RunOptions{Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: metrics})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.Features, want) {
		t.Errorf("got  %+v\nwant %+v", r.Features, want)
	}
	warned := strings.Count(log.String(), "no example has a value of this feature")
	for _, line := range []string{"feature=usr_id column=usr_id examples=1200 did_you_mean=user_id\n", "feature=zip column=zip examples=1200\n", "feature=xyzzy column=xyzzy examples=1200\n"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("no warning %q", line)
		}
	}
	if warned != 3 {
		t.Errorf("%d warnings:\n%s", warned, log.String())
	}
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "monolith_transform_feature_examples_total" {
			for _, m := range f.GetMetric() {
				got[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if len(got) != 6 || got["usr_id absent"] != 1500 || got["age present"] != 375 || got["age absent"] != 1125 || got["who present"] != 1500 {
		t.Errorf("metrics: %v", got)
	}
	e, err := job.Evaluate(t.Context(), c, job.EvalOptions{})
	if err != nil || !slices.Equal(e.Features, want) {
		t.Errorf("eval: %+v %v", e, err)
	}
}
