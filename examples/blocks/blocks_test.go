// Package blocks_test compares the jobs of this folder with the models of the zoo that they are written after.
package blocks_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/zoo"
)

// model is the section of a job that its model is in.
var model = regexp.MustCompile(`(?m)^model:\n(  .*\n)+`)

// twin returns the text of a job, and that of the same with the model of the zoo that its first line names.
func twin(t *testing.T, file string) (composed, named string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	composed = string(b)
	first, _, _ := strings.Cut(composed, "\n")
	_, name, ok := strings.Cut(first, "The same as ")
	name, attends, _ := strings.Cut(strings.TrimSuffix(name, "."), " with attends: ")
	if !ok || !model.MatchString(composed) {
		t.Fatalf("%s: its first line does not name a model, or it has none: %q", file, first)
	}
	named = model.ReplaceAllLiteralString(composed, name+"\n")
	if attends != "" {
		named = strings.Replace(named, "{name: history, slot: 3}", "{name: history, slot: 3, attends: "+attends+"}", 1)
	}
	return composed, named
}

// decode reads a job that writes to a folder.
func decode(t *testing.T, text, dir string, set ...string) *job.Config {
	t.Helper()
	c, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{Set: append(set, "dir="+dir)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// files are those of the jobs: one of each model of the zoo.
func files(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range zoo.Names() {
		want = append(want, name+".yaml")
	}
	if slices.Sort(want); !slices.Equal(found, want) {
		t.Fatalf("job files %q, want one of each model, %q", found, want)
	}
	return found
}

// renamed are the blocks whose names read better here than those of the zoo's tensors, of each file: zoo's and here.
var renamed = map[string]map[string]string{
	"din.yaml":     {"attention.history.": "seen.", "head.label.": "out."},
	"dien.yaml":    {"evolution.history.": "evolution.", "head.label.": "out."},
	"hstu.yaml":    {"hstu.history.": "transduction.", "head.label.": "out."},
	"xdeepfm.yaml": {"cin.out.": "pairs."},
	"dssm.yaml":    {"user.": "tower.user.", "item.": "tower.item.", "out.": "score."},
}

// TestJobsAreTheZoos: each job's model is written as the same bytes as the one that its first line names, but for the names of some blocks.
func TestJobsAreTheZoos(t *testing.T) {
	t.Parallel()
	written := func(text string) []byte {
		m, err := job.BuildModel(decode(t, text, t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		b, err := m.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, file := range files(t) {
		composed, named := twin(t, file)
		got, want := written(composed), written(named)
		for _, zoos := range slices.Sorted(maps.Keys(renamed[file])) {
			want = bytes.ReplaceAll(want, []byte(`"`+zoos), []byte(`"`+renamed[file][zoos]))
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
			t.Errorf("%s (-named +composed): %s", file, diff)
		}
	}
}

// TestJobsTrainLikeTheZoos trains a model of blocks and the one that it is written after, on few examples: their rows, their layers and what they predict have the same bits. A
// run that is interrupted and continued by another number of shards comes to them too.
func TestJobsTrainLikeTheZoos(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"deepfm.yaml", "dcnv2.yaml", "mmoe.yaml"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			composed, named := twin(t, file)
			run := func(text, dir string, set ...string) (digest, metrics string) {
				r, err := job.Run(t.Context(), decode(t, text, dir, append(set, "source.synthetic.examples=6000", "eval.source.synthetic={examples: 6000, held_out: 500}")...), job.RunOptions{})
				if err != nil {
					t.Fatal(err)
				}
				info, err := job.InspectSnapshot(t.Context(), r.Snapshot)
				if err != nil {
					t.Fatal(err)
				}
				return info.Digest, fmt.Sprint(r.Metrics)
			}
			want, wantMetrics := run(named, t.TempDir())
			if got, metrics := run(composed, t.TempDir()); got != want || metrics != wantMetrics {
				t.Errorf("of blocks it comes to digest %s, metrics %v, by its name to %s, %v", got, metrics, want, wantMetrics)
			}
			parts := t.TempDir()
			if half, _ := run(composed, parts, "train.max_examples=3072"); half == want {
				t.Error("half of the examples come to the digest of all")
			}
			if got, _ := run(composed, parts, "ps.shards=2"); got != want {
				t.Errorf("continued it comes to digest %s, in one go to %s", got, want)
			}
		})
	}
}

// TestModelsOfBlocksLearn trains each, which must do better than chance by far.
func TestModelsOfBlocksLearn(t *testing.T) {
	t.Parallel()
	for _, file := range files(t) {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			composed, _ := twin(t, file)
			r, err := job.Run(t.Context(), decode(t, composed, t.TempDir(), "source.synthetic.examples=20000", "eval.source.synthetic={examples: 20000, held_out: 4000}"), job.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if auc := max(r.Metrics["auc"], r.Metrics["click.auc"]); !(auc > 0.6) {
				t.Errorf("metrics %v, want an AUC of more than .6", r.Metrics)
			}
		})
	}
}
