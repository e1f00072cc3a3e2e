package beam_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/beam"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files again")

func onDataflow() *beam.Dataflow {
	return &beam.Dataflow{
		Project: "p", Region: "europe-west1", Staging: "gs://b/staging/", Image: "registry/monolith:1", JobName: "click",
		Workers: 2, MaxWorkers: 8, Threads: 4, MachineType: "n2-standard-4", MinCPUPlatform: "Intel Ice Lake", DiskGB: 30, DiskType: "pd-ssd", Autoscaling: "THROUGHPUT_BASED",
		WorkerZone: "europe-west1-b", Network: "n", Subnetwork: "s", PrivateIPs: true, ServiceAccount: "a@p", KMSKey: "k", FlexRS: "FLEXRS_COST_OPTIMIZED",
		Labels: map[string]string{"team": "ranking"}, Experiments: []string{"x"}, ServiceOptions: []string{"enable_prime"},
	}
}

// TestTranslate compares what is submitted with a golden file: the steps with what they read and write, without payloads, which hold the
// run's name; and the job without places that are new each time. `go test ./runners/beam -run TestTranslate -rewrite` writes it again.
func TestTranslate(t *testing.T) {
	var b strings.Builder
	for _, c := range []struct {
		name      string
		unbounded bool
		o         beam.Options
	}{
		{"dataflow, a plan that ends", false, beam.Options{Runner: "dataflow", Dataflow: onDataflow()}},
		{"dataflow, a plan that does not end", true, beam.Options{Runner: "dataflow", Dataflow: onDataflow()}},
		{"a worker pool", true, beam.Options{Runner: "portable", Service: &beam.Service{Endpoint: "a:1", Environment: beam.External, EnvironmentConfig: "localhost:50000"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t, map[string]int{"a": 10, "b": 4, "c": 7})
			s.unbounded = c.unbounded
			got, err := beam.Translate(t.Context(), s.recipe(), s.plan(), c.o)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "== %s\n%s", c.name, stable(t, got))
		})
	}
	path := filepath.Join("testdata", "translate.txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// stable renders what does not change from run to run.
func stable(t *testing.T, tr *beam.Translation) string {
	t.Helper()
	var p struct {
		RootTransformIDs []string
		Components       struct {
			Transforms map[string]struct {
				UniqueName      string
				Spec            struct{ URN string }
				Inputs, Outputs map[string]string
			}
			Pcollections map[string]struct{ CoderID, IsBounded string }
			Environments map[string]struct {
				URN     string
				Payload []byte
			}
		}
	}
	if err := json.Unmarshal(tr.Pipeline, &p); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(p.Components.Transforms)) {
		tf := p.Components.Transforms[id]
		fmt.Fprintf(&b, "%-14s %-34s %-36s", id, tf.UniqueName, tf.Spec.URN)
		for _, in := range slices.Sorted(maps.Values(tf.Inputs)) {
			fmt.Fprintf(&b, " <%s", in)
		}
		for _, out := range slices.Sorted(maps.Values(tf.Outputs)) {
			fmt.Fprintf(&b, " >%s", out)
		}
		b.WriteByte('\n')
	}
	for _, id := range slices.Sorted(maps.Keys(p.Components.Environments)) {
		e := p.Components.Environments[id]
		fmt.Fprintf(&b, "environment %s %s %q\n", id, e.URN, e.Payload)
	}
	for _, name := range slices.Sorted(maps.Keys(tr.Options)) {
		fmt.Fprintf(&b, "option %s = %v\n", name, tr.Options[name])
	}
	if tr.Job == nil {
		return b.String()
	}
	var job any
	if err := json.Unmarshal(tr.Job, &job); err != nil {
		t.Fatal(err)
	}
	flat(&b, "job", job)
	return b.String()
}

// flat writes a line for each leaf of JSON, without what changes from run to run or with Beam's version, or is shown to people only.
func flat(b *strings.Builder, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			switch k {
			case "display_data", "pipelineProtoHash", "sha256", "capabilities", "userAgent":
				continue
			}
			flat(b, at+"."+k, v[k])
		}
	case []any:
		for _, e := range v {
			flat(b, at+"[]", e)
		}
	default:
		text := fmt.Sprint(v)
		if rest, ok := strings.CutPrefix(text, "gs://b/staging/"); ok && rest != "tmp" {
			_, file, _ := strings.Cut(rest, "/")
			text = "gs://b/staging/RUN/" + file
		}
		fmt.Fprintf(b, "%s = %s\n", at, text)
	}
}

// TestTranslateNothing: a runner of this process is given nothing, and settings are checked.
func TestTranslateNothing(t *testing.T) {
	s := newScene(t, map[string]int{"a": 1})
	for _, c := range []struct {
		o    beam.Options
		want string
	}{
		{beam.Options{}, `runner "prism" runs in this process`},
		{beam.Options{Runner: "dataflow"}, "needs the settings of Dataflow"},
		{beam.Options{Runner: "flink", Dataflow: onDataflow()}, "needs a job service"},
		{beam.Options{Runner: "dataflow", Dataflow: &beam.Dataflow{Staging: "/tmp", JobName: "A", Workers: -1, WorkerRegion: "r", WorkerZone: "z"}}, "no project is given"},
		{beam.Options{Runner: "dataflow", Dataflow: &beam.Dataflow{Staging: "/tmp"}}, `"/tmp" is not gs://BUCKET/PATH`},
	} {
		if _, err := beam.Translate(t.Context(), s.recipe(), s.plan(), c.o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// cloud answers as the documentation of Dataflow's interface says it does: https://cloud.google.com/dataflow/docs/reference/rest.
type cloud struct {
	mu     sync.Mutex
	states []string // of the job, one for each question; the last stays
	calls  []string
	files  map[string]int
	job    map[string]any
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1b3/projects/p/locations/europe-west1/jobs")
	if len(c.calls) == 0 || c.calls[len(c.calls)-1] != call {
		c.calls = append(c.calls, call)
	}
	reply := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch {
	case r.Method == http.MethodPost:
		_ = json.NewDecoder(r.Body).Decode(&c.job)
		if c.states == nil {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error": {"code": 403, "message": "dataflow.jobs.create is denied"}}`)
			return
		}
		reply(map[string]any{"id": "j1"})
	case r.Method == http.MethodPut:
		var job struct{ RequestedState string }
		_ = json.NewDecoder(r.Body).Decode(&job)
		c.states = []string{job.RequestedState}
		reply(map[string]any{"id": "j1"})
	case strings.HasSuffix(r.URL.Path, "/messages"):
		reply(map[string]any{"jobMessages": []any{map[string]any{"messageText": "a machine says:\n\tcaused by:\nps: no shard"}}})
	case strings.HasSuffix(r.URL.Path, "/metrics"):
		metric := func(name, tentative string, n int) any {
			return map[string]any{"name": map[string]any{"name": name, "context": map[string]any{"namespace": "monolith", "tentative": tentative}}, "scalar": n}
		}
		reply(map[string]any{"metrics": []any{metric("rows", "", 14), metric("rows", "true", 15), metric("batches", "", 5), metric("left_out", "", 3), metric("bad_rows: no label", "", 2), metric("bad_rows: no label", "true", 4), metric("bad_rows: bad json", "", 1)}})
	default:
		reply(map[string]any{"currentState": c.states[0]})
		if len(c.states) > 1 {
			c.states = c.states[1:]
		}
	}
}

// TestDataflow submits jobs to a server that answers as Dataflow is documented to, follows and cancels them.
func TestDataflow(t *testing.T) {
	const poll = "GET /j1"
	for _, c := range []struct {
		name   string
		states []string
		cancel bool
		want   error
		text   string
		calls  []string
	}{
		{"done", []string{"JOB_STATE_PENDING", "JOB_STATE_RUNNING", "JOB_STATE_DONE"}, false, nil, "", []string{"POST ", poll, "GET /j1/metrics"}},
		{"fails", []string{"JOB_STATE_RUNNING", "JOB_STATE_FAILED"}, false, nil, "job j1 ended as failed: ps: no shard", []string{"POST ", poll, "GET /j1/messages"}},
		{"drained there", []string{"JOB_STATE_DRAINING", "JOB_STATE_DRAINED"}, false, beam.ErrCancelled, "", []string{"POST ", poll}},
		{"cancelled here", []string{"JOB_STATE_RUNNING"}, true, context.Canceled, "", []string{"POST ", poll, "PUT /j1", poll}},
		{"refused", nil, false, pipeline.ErrConfig, "dataflow.jobs.create is denied", []string{"POST "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := &cloud{states: c.states, files: map[string]int{}}
			server := httptest.NewServer(at)
			defer server.Close()
			d := onDataflow()
			d.Reaches(server.URL, func(_ context.Context, url string, content []byte) error {
				at.files[url[strings.LastIndexByte(url, '/')+1:]] = len(content)
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var id string
			d.Submitted = func(got string) {
				id = got
				if c.cancel {
					cancel()
				}
			}
			s := newScene(t, map[string]int{"a": 10, "b": 4})
			stats, err := s.run(ctx, beam.Options{Runner: "dataflow", Dataflow: d})
			if c.want != nil && !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.text) || (err == nil) != (c.want == nil && c.text == "") {
				t.Errorf("%v, want %v, %q", err, c.want, c.text)
			}
			if err == nil && (stats.Rows != 14 || stats.Batches != 5 || stats.LeftOut != 3 || !maps.Equal(stats.BadRows, map[string]int64{"no label": 2, "bad json": 1})) {
				t.Errorf("%+v", stats)
			}
			if c.states != nil && id != "j1" || at.files["worker"] < 1<<20 || at.files["model"] < 1000 {
				t.Errorf("id %q, files %v", id, at.files)
			}
			at.mu.Lock()
			defer at.mu.Unlock()
			if at.job["name"] != "click" || at.job["type"] != "JOB_TYPE_BATCH" {
				t.Errorf("job %v, %v", at.job["name"], at.job["type"])
			}
			calls := at.calls
			if c.cancel && len(calls) > 1 && calls[1] != poll { // it may not have been asked yet
				calls = slices.Insert(slices.Clone(calls), 1, poll)
			}
			if diff := cmp.Diff(c.calls, calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}
