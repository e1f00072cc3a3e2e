package job_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/serving"
)

// A program's own HTTP server answers requests for predictions beside its own pages, and the program predicts without a request.
func Example_serve() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // an example's leftovers
	cfg, err := job.Decode([]byte(clicksJob), "clicks.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(dir, "run")}})
	if err != nil {
		fmt.Println(err)
		return
	}
	trained, err := job.Run(ctx, cfg, job.RunOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	exports := filepath.Join(dir, "exports")
	if _, err := job.ExportModel(ctx, job.ExportModelOptions{Snapshot: trained.Snapshot, Format: "native", Dir: exports}); err != nil {
		fmt.Println(err)
		return
	}

	models := serving.NewModels(serving.ModelsOptions{Recipe: job.ServingRecipe(job.Components{})})
	defer models.Close()
	if err := models.Configure(ctx, []serving.ModelConfig{{Name: "clicks", Dir: exports}}); err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux() // Models.Watch, on a goroutine of the program's, would open newer exports
	mux.Handle("/v1/", serving.NewServer(serving.Options{Models: models}).Handler(nil))
	server := httptest.NewServer(mux)
	defer server.Close()
	asked := `{"user": 3, "item": 7, "price": 1.5}`
	response, err := http.Post(server.URL+"/v1/models/clicks:predict", "application/json", strings.NewReader(`{"instances": [`+asked+`]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close() //nolint:errcheck // it was only read

	var answer struct{ Predictions [][]float32 } // [example][width]
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		fmt.Println(err)
		return
	}

	version, number, done, err := models.Use("clicks", serving.Which{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done() // the version stays open until then
	predicted, err := version.Predict(ctx, &serving.Input{Form: serving.FormJSON, Records: [][]byte{[]byte(asked)}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(response.Status, "version", number, "the same prediction:", answer.Predictions[0][0] == predicted[0][0])
	// Output:
	// 200 OK version 1 the same prediction: true
}
