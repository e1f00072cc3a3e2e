package serving_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/serving"
)

// A program predicts with an export, without a server: it opens one version and gives it records as they come. Here the export is made first.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Println(err)
		}
	}()
	const text = `
version: 1
name: clicks
source: {synthetic: {examples: 5000}}
parse: {features: [{name: user, slot: 1}, {name: item, slot: 2}], label: click}
model: {fm: {dim: 4}}
`
	cfg, err := job.Decode([]byte(text), "clicks.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(dir, "run")}})
	if err != nil {
		fmt.Println(err)
		return
	}
	trained, err := job.Run(ctx, cfg, job.RunOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	exported, err := job.ExportModel(ctx, job.ExportModelOptions{Snapshot: trained.Snapshot, Format: "native", Dir: filepath.Join(dir, "exports")})
	if err != nil {
		fmt.Println(err)
		return
	}

	version, err := serving.Open(ctx, exported.Dir, job.ServingRecipe(job.Components{})) // how records become features is in the export
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if err := version.Close(); err != nil {
			fmt.Println(err)
		}
	}()
	records := [][]byte{[]byte(`{"user": 3, "item": 7}`), []byte(`{"user": 3, "item": 8}`), []byte(`{"item": 7}`)}
	predicted, err := version.Predict(ctx, &serving.Input{Form: serving.FormJSON, Records: records}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, h := range version.Model().Graph.Heads() { // one list of numbers for each head
		fmt.Println("head", i, "predicts", h.Width, "number for each of", len(predicted[i]), "records")
		fmt.Println("a probability:", predicted[i][0] > 0 && predicted[i][0] < 1)
	}
	// Output:
	// head 0 predicts 1 number for each of 3 records
	// a probability: true
}
