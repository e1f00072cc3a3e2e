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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
)

// asking asks a server over HTTP.
type asking struct {
	ctx context.Context
	t   testing.TB
	url string
}

func (a asking) do(method, path, body string) (int, string) {
	a.t.Helper()
	code, answer, err := a.try(method, path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	return code, answer
}

// try is do on any goroutine.
func (a asking) try(method, path, body string) (code int, said string, err error) {
	r, err := http.NewRequestWithContext(a.ctx, method, a.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	b, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(b), errors.Join(err, answer.Body.Close())
}

// freshness is what the status of a model says; ok is false where no version serves.
func (a asking) freshness(model string) (age time.Duration, ok bool) {
	a.t.Helper()
	age, version := a.served(model)
	return age, version != ""
}

// served is the version of a job that serves, "" for none, and how old its state is.
func (a asking) served(model string) (age time.Duration, version string) {
	a.t.Helper()
	var status struct {
		Versions []struct {
			Version   string   `json:"version"`
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
			return time.Duration(*v.Freshness * float64(time.Second)), v.Version
		}
	}
	return 0, ""
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
func question() string {
	var list []string
	for i := range 40 {
		list = append(list, fmt.Sprintf(`{"user": %d, "item": %d}`, i, i/2))
	}
	return `{"instances": [` + strings.Join(list, ",") + `]}`
}

func (a asking) predict(model string) string {
	a.t.Helper()
	code, body := a.do(http.MethodPost, "/v1/models/"+model+":predict", question())
	if code != http.StatusOK {
		a.t.Fatalf("%s: %d: %s", model, code, body)
	}
	return body
}

// serveShards runs the shards of a job until they are stopped.
func serveShards(ctx context.Context, t testing.TB, cfg *job.Config) (stop func()) {
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

// serveModels serves until it is stopped.
func serveModels(ctx context.Context, t testing.TB, o job.ServeModelsOptions) (a asking, stop func()) {
	t.Helper()
	ready, drain, done := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	o.HTTP, o.Ready, o.Drain = "127.0.0.1:0", func(addr, _ string) { ready <- addr }, drain
	go func() { done <- job.ServeModels(ctx, o) }()
	select {
	case addr := <-ready:
		a = asking{ctx: ctx, t: t, url: "http://" + addr}
	case err := <-done:
		t.Fatal(err)
	}
	return a, func() {
		close(drain)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// exported is what an export of a snapshot says.
func exported(ctx context.Context, t *testing.T, snapshot string) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := job.ExportModel(ctx, job.ExportModelOptions{Snapshot: snapshot, Format: "native", Dir: dir, RowsPerFile: 1000, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	a, stop := serveModels(ctx, t, job.ServeModelsOptions{Exports: []string{"exported=" + dir}})
	defer stop()
	if _, ok := a.freshness("exported"); ok {
		t.Error("an export says how fresh it is")
	}
	return a.predict("exported")
}

// usersAndItems writes examples of users and items and returns the source that reads them.
func usersAndItems(t *testing.T, dir string) (source string) {
	t.Helper()
	var lines bytes.Buffer
	for i := range 300 {
		fmt.Fprintf(&lines, "{\"y\": %d, \"user\": %d, \"item\": %d}\n", i%2, i%20, i%7)
	}
	path := filepath.Join(dir, "a.jsonl")
	if err := os.WriteFile(path, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("{text: {files: [%q]}}", path)
}

// TestServeJob serves a job while it is trained, from shards in another process, and compares what is answered with exports of its snapshots; then the shards end, and come back.
func TestServeJob(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), testbed.FreeAddr(t)
	cfg := rolesJob(t, dir, address, usersAndItems(t, dir), "jsonl")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	shards := func() (stop func()) { return serveShards(ctx, t, cfg) }
	stop := shards()
	a, end := serveModels(ctx, t, job.ServeModelsOptions{Jobs: []job.ServedJob{{Name: "live", Load: func() (*job.Config, error) { return cfg, nil }}}})
	a.fresh("live")
	untrained := a.predict("live")
	r, err := job.Run(ctx, cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a.fresh("live")
	answer := exported(ctx, t, r.Snapshot)
	if got := a.predict("live"); got != answer || got == untrained {
		t.Errorf("after training\n%s\nof the snapshot's export\n%s\nbefore\n%s", got, answer, untrained)
	}
	if _, body := a.do(http.MethodGet, "/metrics", ""); !strings.Contains(body, `monolith_serving_freshness_seconds{model_name="live"}`) {
		t.Error("the metrics do not say how old it is")
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
	end()
	stop()
}

// TestServedModelChanges: the file of a job that is served, and its shards, come to have another model. Requests are answered all the time, by the model before until the next one
// has its rows, and then as an export of that one's snapshot answers.
func TestServedModelChanges(t *testing.T) {
	t.Parallel()
	address := testbed.FreeAddr(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var cfg atomic.Pointer[job.Config]
	train := func(set ...string) (stop func(), snapshot string) {
		dir := t.TempDir()
		c := rolesJob(t, dir, address, usersAndItems(t, dir), "jsonl", set...)
		cfg.Store(c)
		stop = serveShards(ctx, t, c)
		r, err := job.Run(ctx, c, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return stop, r.Snapshot
	}
	stop, first := train()
	a, end := serveModels(ctx, t, job.ServeModelsOptions{Jobs: []job.ServedJob{{Name: "live", Load: func() (*job.Config, error) { return cfg.Load(), nil }}}})
	a.fresh("live")
	before := a.predict("live")
	if want := exported(ctx, t, first); before != want {
		t.Errorf("the first model\n%s\nwant\n%s", before, want)
	}
	stop()
	var asker sync.WaitGroup
	begun, asked := make(chan struct{}), make(chan struct{})
	answers := map[string]int{}
	asker.Go(func() {
		for {
			code, body, err := a.try(http.MethodPost, "/v1/models/live:predict", question())
			if err != nil || code != http.StatusOK {
				t.Errorf("while the model changes: %d, %v: %s", code, err, body)
				cancel()
				return
			}
			if len(answers) == 0 {
				close(begun)
			}
			answers[body]++
			select {
			case <-asked:
				return
			default:
			}
		}
	})
	select {
	case <-begun:
	case <-ctx.Done():
	}
	stop, second := train("model.deepfm.dim=8", "model.deepfm.hidden=[4]")
	for version := ""; version != "2"; {
		_, version = a.served("live")
	}
	a.fresh("live")
	close(asked)
	asker.Wait()
	if answers[before] == 0 {
		t.Error("the first model has not answered while there was no other")
	}
	if got, want := a.predict("live"), exported(ctx, t, second); got != want || got == before {
		t.Errorf("the second model\n%s\nwant\n%s", got, want)
	}
	end()
	stop()
}

// TestServeJobOfSnapshots serves a job whose shards nobody can ask: its snapshots are served when they are there, and those of another model when its file has that.
func TestServeJobOfSnapshots(t *testing.T) {
	t.Parallel()
	const text = `
version: 1
name: alone
source: {synthetic: {examples: 3000, splits: 2}}
parse: {features: [{name: user, slot: 1}, {name: item, slot: 2}], label: click}
model: {deepfm: {dim: 4, hidden: [8]}}
ps: {shards: 2}
`
	at := job.LoadOptions{Set: []string{"dir=" + filepath.Join(t.TempDir(), "run")}}
	cfg, err := job.Decode([]byte(text), "alone.yaml", at)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var now atomic.Pointer[job.Config]
	now.Store(cfg)
	a, end := serveModels(ctx, t, job.ServeModelsOptions{Jobs: []job.ServedJob{{Load: func() (*job.Config, error) { return now.Load(), nil }}}, Poll: time.Millisecond})
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
	first := a.predict("alone")
	changed, err := job.Decode([]byte(strings.Replace(text, "dim: 4", "dim: 8", 1)+"restore: {tables: {\"*\": init}, tensors: {\"*\": init}}\n"), "alone.yaml", at)
	if err != nil {
		t.Fatal(err)
	}
	now.Store(changed)
	r, err := job.Run(ctx, changed, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := exported(ctx, t, r.Snapshot)
	for version := ""; version != "2"; {
		_, version = a.served("alone")
	}
	for a.predict("alone") != want { // a snapshot that was there before may be served first
	}
	if want == first {
		t.Error("both models answer the same")
	}
	end()
}
