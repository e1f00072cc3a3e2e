package job_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// TestSnapshotKnowsItsFeatures: a run, an evaluation and a check on a snapshot that was trained on other features say which,
// and what is only somewhere else in the record is no other feature.
func TestSnapshotKnowsItsFeatures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var csv, moved, jsonl strings.Builder
	for i := range 400 {
		y, user, item, age := i%2, i%7, 100+i%5, i%30
		fmt.Fprintf(&csv, "%d,%d,%d,%d\n", y, user, item, age)
		fmt.Fprintf(&moved, "%d,%d,%d,%d\n", item, age, user, y)
		fmt.Fprintf(&jsonl, `{"click":%d,"uid":%d,"item":%d,"age":%d}`+"\n", y, user, item, age)
	}
	for name, text := range map[string]string{"a.csv": csv.String(), "b.csv": moved.String(), "c.jsonl": jsonl.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const features = `[{name: user, slot: 1}, {name: item, slot: 2, type: int}, {name: age, kind: dense}]`
	load := func(file, parse string) *job.Config {
		t.Helper()
		text := fmt.Sprintf(`
version: 1
name: features
dir: %q
deterministic: true
source: {text: {files: [%[2]q]}}
parse: {%[3]s}
model: {lr: {}}
train: {batch: 50}
snapshot: {every: 0s}
eval: {source: {text: {files: [%[2]q]}}, every: end}
`, filepath.Join(dir, "run"), filepath.Join(dir, file), parse)
		c, err := job.Decode([]byte(text), "features.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	parse := func(features, label string) string {
		return fmt.Sprintf(`format: csv, columns: [y, user, item, age], features: %s, label: %s`, features, label)
	}
	r, err := job.Run(t.Context(), load("a.csv", parse(features, "y")), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}

	info, err := job.InspectSnapshot(t.Context(), r.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"format":"csv","features":[{"name":"user","kind":"sparse","slot":1,"type":"auto","hash":"none","combiner":"sum"},` +
		`{"name":"item","kind":"sparse","slot":2,"type":"int","hash":"none","combiner":"sum"},{"name":"age","kind":"dense","type":"auto"}],"label":{"name":"y"},"whole_ids":true}`
	if compact(t, info.Recipe) != want {
		t.Errorf("the snapshot says\n%s\nwant\n%s", compact(t, info.Recipe), want)
	}

	for _, tc := range []struct{ name, features, label, want string }{
		{"slot", strings.Replace(features, "slot: 1", "slot: 11", 1), "y", "feature user: slot was 1, is 11"},
		{"type", strings.Replace(features, "type: int", "type: string", 1), "y", `feature item: type was "int", is "string"`},
		{"hash", strings.Replace(features, "slot: 1", "slot: 1, hash: hash", 1), "y", `feature user: hash was "none", is "hash"`},
		{"combiner", strings.Replace(features, "slot: 1", "slot: 1, combiner: mean", 1), "y", `feature user: combiner was "sum", is "mean"`},
		{"ignore", strings.Replace(features, "slot: 1", `slot: 1, ignore: [0, -1, ""]`, 1), "y", `feature user: ignore was not set, is ["0","-1",""]`},
		{"max", strings.Replace(features, "slot: 1", "slot: 1, max: 3", 1), "y", "feature user: max was not set, is 3"},
		{"split", strings.Replace(features, "slot: 1", `slot: 1, split: "|"`, 1), "y", `feature user: split was not set, is "|"`},
		{"default", strings.Replace(features, "slot: 1", `slot: 1, default: "0"`, 1), "y", `feature user: default was not set, is "0"`},
		{"clip", strings.Replace(features, "kind: dense", "kind: dense, clip: [0, 20]", 1), "y", "feature age: clip was not set, is [0,20]"},
		{"log", strings.Replace(features, "kind: dense", "kind: dense, log: true", 1), "y", "feature age: log was not set, is true"},
		{"order", `[{name: item, slot: 2, type: int}, {name: user, slot: 1}, {name: age, kind: dense}]`, "y", "the order of the features was user, item, age, is item, user, age"},
		{"another name", strings.Replace(features, "name: user", "name: who, column: user", 1), "y", "feature user: was there, is not"},
		{"one more", strings.Replace(features, "]", ", {name: minutes, column: age, kind: dense}]", 1), "y", "feature minutes: was not there, is now"},
		{"label's column", features, "age", `label: name was "y", is "age"`},
		{"label's rule", features, `{name: y, positive: "<= 3"}`, `label: positive was not set, is "<= 3"`},
		{"a weight", features, "y, weight: age", `weight: name was not set, is "age"`},
	} {
		c := load("a.csv", parse(tc.features, tc.label))
		_, err := job.Run(t.Context(), c, job.RunOptions{})
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(fmt.Sprint(err), tc.want) || !strings.Contains(fmt.Sprint(err), "--resume=false") {
			t.Errorf("train, %s: %v, want %q", tc.name, err, tc.want)
		}
		if _, err := job.Evaluate(t.Context(), c, job.EvalOptions{}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(fmt.Sprint(err), tc.want) {
			t.Errorf("eval, %s: %v, want %q", tc.name, err, tc.want)
		}
		if findings, err := job.Check(t.Context(), c); err != nil || !slices.ContainsFunc(findings, func(f job.Finding) bool { return strings.Contains(f.Message, tc.want) }) {
			t.Errorf("check, %s: %v %v", tc.name, findings, err)
		}
	}

	// Other columns and other formats continue, and say so where a column has another name.
	var notices []string
	notice := func(s string) { notices = append(notices, s) }
	for _, tc := range []struct{ file, parse, notice string }{
		{"b.csv", `format: csv, columns: [item, age, user, y], features: ` + features + `, label: y`, ""},
		{
			"c.jsonl", `format: jsonl, features: ` + strings.Replace(features, "name: user", "name: user, column: uid", 1) + `, label: {name: y, column: click}`,
			`feature user: column was "user", is "uid"; label: column was "y", is "click"`,
		},
	} {
		notices = nil
		c := load(tc.file, tc.parse)
		if _, err := job.Evaluate(t.Context(), c, job.EvalOptions{Options: job.RunOptions{Notice: notice}}); err != nil {
			t.Errorf("%s: %v", tc.file, err)
		}
		if all := strings.Join(notices, "\n"); !strings.Contains(all, tc.notice) || tc.notice == "" && strings.Contains(all, "other columns") {
			t.Errorf("%s: notices %q", tc.file, all)
		}
		r, err := job.Run(t.Context(), c, job.RunOptions{})
		if err != nil || r.Examples != 400 {
			t.Errorf("%s: %+v %v", tc.file, r, err)
		}
	}
}

// compact is JSON without blanks.
func compact(t *testing.T, b []byte) string {
	t.Helper()
	var v bytes.Buffer
	if err := json.Compact(&v, b); err != nil {
		t.Fatal(err)
	}
	return v.String()
}

// TestLabelOfText trains on labels and masks that are words, of lines and of columns, whose comparison a snapshot knows, as it does that of a number.
func TestLabelOfText(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var csv strings.Builder
	type row struct {
		Item  int64  `parquet:"item"`
		Word  string `parquet:"word"`
		Truth bool   `parquet:"truth"`
	}
	var rows []row
	for i := range 200 {
		word := []string{"not yet", "yes"}[i%2]
		fmt.Fprintf(&csv, "%d,%s,%t\n", i%5, word, i%2 == 1)
		rows = append(rows, row{int64(i % 5), word, i%2 == 1})
	}
	if err := os.WriteFile(filepath.Join(dir, "a.csv"), []byte(csv.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := parquet.WriteFile(filepath.Join(dir, "a.parquet"), rows); err != nil {
		t.Fatal(err)
	}
	const lines, columns = "text: {files: [%q]}}\nparse: {format: csv, columns: [item, word, truth]", "parquet: {files: [%q]}}\nparse: {format: columns"
	for file, source := range map[string]string{"a.csv": lines, "a.parquet": columns} {
		load := func(run, label string) *job.Config {
			t.Helper()
			c, err := job.Decode(fmt.Appendf(nil, "version: 1\nname: words\ndir: %q\ndeterministic: true\nsource: {"+source+", features: [{name: item, slot: 1}]%s\nmodel: {lr: {}}\ntrain: {batch: 50}\nsnapshot: {every: 0s}\n",
				filepath.Join(dir, file+run), filepath.Join(dir, file), label), "words.yaml", job.LoadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		digests := map[string]bool{}
		for i, label := range []string{
			`, label: {name: word, positive: "== yes"}}`, `, label: {name: word, positive: "!= not yet"}}`, ", label: truth}",
		} {
			r, err := job.Run(t.Context(), load(fmt.Sprint(i), label), job.RunOptions{})
			if err != nil {
				t.Fatalf("%s: %s: %v", file, label, err)
			}
			info, err := job.InspectSnapshot(t.Context(), r.Snapshot)
			if err != nil {
				t.Fatal(err)
			}
			digests[info.Digest] = true
			if r.Examples != 200 {
				t.Errorf("%s: %s: %d examples", file, label, r.Examples)
			}
		}
		if len(digests) != 1 {
			t.Errorf("%s: the same labels give %d models", file, len(digests))
		}
		masked, err := job.Run(t.Context(), load("masked", "}\nheads: [{name: h, label: truth, mask: {column: word, positive: \"== yes\"}}]"), job.RunOptions{})
		if err != nil || masked.Examples != 200 {
			t.Errorf("%s: a mask of words: %+v, %v", file, masked, err)
		}
		if _, err := job.Run(t.Context(), load("0", `, label: {name: word, positive: " ==  yes "}}`), job.RunOptions{}); err != nil {
			t.Errorf("%s: written in another way: %v", file, err)
		}
		if _, err := job.Run(t.Context(), load("0", `, label: {name: word, positive: "== not yet"}}`), job.RunOptions{}); err == nil || !strings.Contains(err.Error(), `positive was "== yes", is "== not yet"`) {
			t.Errorf("%s: another comparison: %v", file, err)
		}
	}
}
