package job_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/pipeline"
)

// TestStateOfAStageIsHandedOn: what a stage keeps of a split at the end of a run is what the next one begins with, which reads nothing again for it. There is no snapshot in between that a
// marker could bring it to.
func TestStateOfAStageIsHandedOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "part.csv")
	run := func(rows int) (stage *remembers, examples int64) {
		t.Helper()
		if err := os.WriteFile(path, []byte(csvOf(rows, 0)), 0o644); err != nil {
			t.Fatal(err)
		}
		stage = &remembers{}
		parts := components.All()
		parts.Stages = []component.Stage{{Name: "remembers", New: func() component.StageConfig { return stage }}}
		cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
source: {text: {files: [%q]}}
parse: {format: csv, header: true, features: [{name: user}, {name: item}], label: click}
model: lr
stages: [remembers]
train: {batch: 50}
snapshot: {every: 0s}
`, filepath.Join(dir, "run"), path), "state.yaml", job.LoadOptions{Components: parts})
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Run(t.Context(), cfg, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return stage, r.Examples
	}
	if stage, examples := run(300); stage.n != 300 || stage.restored != 0 || examples != 300 {
		t.Errorf("the first run: %d rows seen, %d remembered, %d examples", stage.n, stage.restored, examples)
	}
	if stage, examples := run(400); stage.n != 100 || stage.restored != 300 || examples != 100 {
		t.Errorf("the second run: %d rows seen, %d remembered, %d examples; want 100 rows behind the 300 remembered", stage.n, stage.restored, examples)
	}
}

// remembers is a stage that counts the rows of its split over all runs.
type remembers struct {
	counter
	restored int
}

func (r *remembers) Stage() (pipeline.Stage[*pipeline.Batch, *pipeline.Batch], error) { return r, nil }

func (r *remembers) Open(context.Context, *pipeline.Env) (pipeline.Processor[*pipeline.Batch, *pipeline.Batch], error) {
	return r, nil
}

func (r *remembers) Save(pipeline.SplitID) ([]byte, error) {
	return binary.AppendUvarint(nil, uint64(r.restored+r.n)), nil
}

func (r *remembers) Restore(_ pipeline.SplitID, state []byte) error {
	n, _ := binary.Uvarint(state)
	r.restored = int(n)
	return nil
}
