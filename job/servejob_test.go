package job_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
)

// asking asks a server over HTTP.
type asking struct {
	ctx context.Context
	t   *testing.T
	url string
}

func (a asking) do(method, path, body string) (int, string) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.ctx, method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	b, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		a.t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// freshness is what the status of a model says; ok is false where no version serves.
func (a asking) freshness(model string) (age time.Duration, ok bool) {
	a.t.Helper()
	var status struct {
		Versions []struct {
			State     string   `json:"state"`
			Freshness *float64 `json:"freshness_seconds"`
		} `json:"model_version_status"`
	}
	code, body := a.do(http.MethodGet, "/v1/models/"+model, "")
	if err := json.Unmarshal([]byte(body), &status); err != nil || code != http.StatusOK {
		a.t.Fatalf("%d: %s", code, body)
	}
	for _, v := range status.Versions {
		if v.State == "AVAILABLE" && v.Freshness != nil {
			return time.Duration(*v.Freshness * float64(time.Second)), true
		}
	}
	return 0, false
}

// fresh waits until everything is served that was applied before now.
func (a asking) fresh(model string) {
	a.t.Helper()
	for since := time.Now(); ; {
		asked := time.Now()
		if age, ok := a.freshness(model); ok && asked.Add(-age).After(since) {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-a.ctx.Done():
			a.t.Fatal("what is served does not become fresh")
		}
	}
}

// question asks about ids with rows and without.
func (a asking) predict(model string) string {
	a.t.Helper()
	var list []string
	for i := range 40 {
		list = append(list, fmt.Sprintf(`{"user": %d, "item": %d}`, i, i/2))
	}
	code, body := a.do(http.MethodPost, "/v1/models/"+model+":predict", `{"instances": [`+strings.Join(list, ",")+`]}`)
	if code != http.StatusOK {
		a.t.Fatalf("%s: %d: %s", model, code, body)
	}
	return body
}

// TestServeJob serves a job while it is trained, from shards in another process, and compares what is answered with exports of its snapshots; then the shards end, and come back.
func TestServeJob(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), testbed.FreeAddr(t)
	var lines bytes.Buffer
	for i := range 300 {
		fmt.Fprintf(&lines, "{\"y\": %d, \"user\": %d, \"item\": %d}\n", i%2, i%20, i%7)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.jsonl"), lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := rolesJob(t, dir, address, fmt.Sprintf("{text: {files: [%q]}}", filepath.Join(dir, "a.jsonl")), "jsonl")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	shards := func() (stop func()) {
		drain, served := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := job.Serve(ctx, cfg, job.ServeOptions{Drain: drain})
			served <- err
		}()
		return func() {
			close(drain)
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
	}
	stop := shards()
	exports := filepath.Join(dir, "exports")
	ready, drain, done := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- job.ServeModels(ctx, job.ServeModelsOptions{
			Jobs: []job.ServedJob{{Name: "live", Load: func() (*job.Config, error) { return cfg, nil }}},
			HTTP: "127.0.0.1:0", Ready: func(addr, _ string) { ready <- addr }, Drain: drain,
		})
	}()
	a := asking{ctx: ctx, t: t}
	select {
	case addr := <-ready:
		a.url = "http://" + addr
	case err := <-done:
		t.Fatal(err)
	}
	a.fresh("live")
	untrained := a.predict("live")
	r, err := job.Run(ctx, cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a.fresh("live")
	if _, err := job.ExportModel(ctx, job.ExportModelOptions{Snapshot: r.Snapshot, Format: "native", Dir: exports, RowsPerFile: 1000, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	exported := make(chan string, 1)
	second, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- job.ServeModels(ctx, job.ServeModelsOptions{Exports: []string{"exported=" + exports}, HTTP: "127.0.0.1:0", Ready: func(addr, _ string) { exported <- addr }, Drain: second})
	}()
	want := asking{ctx: ctx, t: t}
	select {
	case addr := <-exported:
		want.url = "http://" + addr
	case err := <-ended:
		t.Fatal(err)
	}
	answer := want.predict("exported")
	if got := a.predict("live"); got != answer || got == untrained {
		t.Errorf("after training\n%s\nof the snapshot's export\n%s\nbefore\n%s", got, answer, untrained)
	}
	if _, body := a.do(http.MethodGet, "/metrics", ""); !strings.Contains(body, `monolith_serving_freshness_seconds{model_name="live"}`) {
		t.Error("the metrics do not say how old it is")
	}
	if _, ok := want.freshness("exported"); ok {
		t.Error("an export says how fresh it is")
	}
	stop()
	before := time.Now()
	if got := a.predict("live"); got != answer {
		t.Errorf("without shards\n%s\nwant\n%s", got, answer)
	}
	for { // it only becomes older
		age, ok := a.freshness("live")
		if !ok {
			t.Fatal("it is not served without shards")
		}
		if age >= time.Since(before) {
			break
		}
	}
	stop = shards()
	a.fresh("live")
	if got := a.predict("live"); got != answer {
		t.Errorf("of shards that have come back\n%s\nwant\n%s", got, answer)
	}
	close(drain)
	close(second)
	if err := errors.Join(<-done, <-ended); err != nil {
		t.Error(err)
	}
	stop()
}

// TestServeJobOfSnapshots serves a job whose shards nobody can ask: its snapshots are served when they are there.
func TestServeJobOfSnapshots(t *testing.T) {
	t.Parallel()
	cfg, err := job.Decode([]byte(`
version: 1
name: alone
source: {synthetic: {examples: 3000, splits: 2}}
parse: {features: [{name: user, slot: 1}, {name: item, slot: 2}], label: click}
model: {deepfm: {dim: 4, hidden: [8]}}
ps: {shards: 2}
`), "alone.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(t.TempDir(), "run")}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ready, drain, done := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- job.ServeModels(ctx, job.ServeModelsOptions{
			Jobs: []job.ServedJob{{Load: func() (*job.Config, error) { return cfg, nil }}},
			HTTP: "127.0.0.1:0", Poll: time.Millisecond, Ready: func(addr, _ string) { ready <- addr }, Drain: drain,
		})
	}()
	a := asking{ctx: ctx, t: t}
	select {
	case addr := <-ready:
		a.url = "http://" + addr
	case err := <-done:
		t.Fatal(err)
	}
	if code, body := a.do(http.MethodPost, "/v1/models/alone:predict", `{"instances": [{}]}`); code != http.StatusServiceUnavailable {
		t.Errorf("before there is a snapshot: %d: %s", code, body)
	}
	if _, err := job.Run(ctx, cfg, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	for ok := false; !ok; {
		if _, ok = a.freshness("alone"); ctx.Err() != nil {
			t.Fatal("the snapshot is not served")
		}
	}
	a.predict("alone")
	close(drain)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
