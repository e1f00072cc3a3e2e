package beam

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	sdklog "github.com/apache/beam/sdks/v2/go/pkg/beam/log"
	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/pipeline"
)

// TestBoot tells a worker's boot program by its arguments, and nothing that a user types.
func TestBoot(t *testing.T) {
	t.Parallel()
	full := []string{"--id=1-1", "--logging_endpoint=l:1", "--artifact_endpoint=a:2", "--provision_endpoint=p:3", "--control_endpoint=c:4", "--semi_persist_dir=/tmp"}
	got, ok := parseBoot(full)
	if want := (bootArgs{"1-1", "l:1", "c:4", "p:3"}); !ok || got != want {
		t.Errorf("%+v, %v; want %+v", got, ok, want)
	}
	if got, ok := parseBoot([]string{"-id=2", "-provision_endpoint=p:3"}); !ok || got.id != "2" || got.provision != "p:3" {
		t.Errorf("with one dash: %+v, %v", got, ok)
	}
	for _, args := range [][]string{
		nil, {"train", "job.yaml"}, {"--version"}, {"--id=1"}, {"--provision_endpoint=p:3"}, {"--id=", "--provision_endpoint=p:3"}, append([]string{"train"}, full...), append(full, "--set", "a=b"),
	} {
		if got, ok := parseBoot(args); ok {
			t.Errorf("%q is taken for a worker's: %+v", args, got)
		}
	}
}

// TestServiceFaults finds what is wrong with the settings of a job service, all of it at once.
func TestServiceFaults(t *testing.T) {
	t.Parallel()
	good := Service{Endpoint: "127.0.0.1:8099"}
	for _, c := range []struct {
		name   string
		runner string
		change func(*Service)
		want   []string
	}{
		{"good", "flink", func(*Service) {}, nil},
		{"portable", "portable", func(s *Service) { s.Environment, s.EnvironmentConfig = Process, "/bin/monolith" }, nil},
		{"no port", "flink", func(s *Service) { s.Endpoint = "host" }, []string{`"host" is not host:port`}},
		{"no config", "flink", func(s *Service) { s.Environment = Docker }, []string{"environment docker has no environment config"}},
		{"unknown", "flink", func(s *Service) { s.Environment = "cloud" }, []string{`no environment "cloud"`, `"docker" "external" "loopback" "process"`}},
		{"several", "flink", func(s *Service) { s.Parallelism, s.Endpoint = -1, "" }, []string{"parallelism -1", "is not host:port"}},
		{"not for prism", "prism", func(*Service) {}, []string{`runner "prism"`, "takes no job service"}},
	} {
		s := good
		c.change(&s)
		err := Options{Runner: c.runner, Service: &s}.Validate()
		if c.want == nil {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		for _, want := range c.want {
			if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", c.name, err, want)
			}
		}
	}
	if err := (Options{Runner: "flink"}).Validate(); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("flink without a service: %v", err)
	}
}

// TestServiceOptions renders the options of a runner for plans that end and plans that do not.
func TestServiceOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		s       Service
		bounded bool
		want    map[string]any
	}{
		{"files", Service{CheckpointEvery: time.Second}, true, map[string]any{"streaming": false}},
		{"stream", Service{}, false, map[string]any{"streaming": true, "max_bundle_time_mills": 200.}},
		{
			"stream with checkpoints",
			Service{CheckpointEvery: time.Minute, BundleTime: 50 * time.Millisecond, Savepoint: "file:///s", Options: map[string]any{"object_reuse": true, "streaming": 1.}},
			false,
			map[string]any{
				"streaming": 1., "max_bundle_time_mills": 50., "checkpointing_interval": 60000., "finish_bundle_before_checkpointing": true, "savepoint_path": "file:///s", "object_reuse": true,
			},
		},
	} {
		if diff := cmp.Diff(c.want, c.s.options(c.bounded)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestOfWorkers takes what our program has said out of a runner's stack of exceptions.
func TestOfWorkers(t *testing.T) {
	t.Parallel()
	text := "java.lang.RuntimeException: Error received from SDK harness for instruction 7: process bundle failed for instruction 7\n\tcaused by:\nsource [failed]\n\tcaused by:\nps: no shard\n\tat org.apache.beam.X.y(X.java:1)\n"
	if got := ofWorkers(text); got != "ps: no shard" {
		t.Errorf("%q", got)
	}
	if got := ofWorkers("java.net.BindException: port in use\n\tat a.b"); got != "java.net.BindException: port in use" {
		t.Errorf("%q", got)
	}
}

// TestCancelAtFlink cancels the one running job of a name, and says what Flink answers.
func TestCancelAtFlink(t *testing.T) {
	t.Parallel()
	var calls []string
	fails := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls = append(calls, r.Method+" "+r.URL.String())
		if fails {
			http.Error(w, `{"errors":["no leader"]}`, http.StatusServiceUnavailable)
			return
		}
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"jobs":[{"jid":"1","name":"click-a","state":"FAILED"},{"jid":"2","name":"click-b","state":"RUNNING"},{"jid":"3","name":"click-a","state":"RUNNING"}]}`)
		}
	}))
	t.Cleanup(server.Close)
	rest := strings.TrimPrefix(server.URL, "http://")
	if found, err := cancelAtFlink(t.Context(), rest, "click-a_uuid"); !found || err != nil {
		t.Error(found, err)
	}
	if found, err := cancelAtFlink(t.Context(), rest, "click_uuid"); found || err != nil {
		t.Error("a job that is not there:", found, err)
	}
	if diff := cmp.Diff([]string{"GET /jobs/overview", "PATCH /jobs/3?mode=cancel", "GET /jobs/overview"}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	fails = true
	if _, err := cancelAtFlink(t.Context(), rest, "click-a_uuid"); err == nil || !strings.Contains(err.Error(), "no leader") {
		t.Errorf("%v, want what Flink says", err)
	}
}

// heard keeps what Beam's log is given.
type heard struct{ lines []string }

func (h *heard) Log(_ context.Context, sev sdklog.Severity, _ int, msg string) {
	h.lines = append(h.lines, fmt.Sprint(sev, " ", msg))
}

// TestWorkerLogger sends records to Beam's log: by severity, without time and level, with attributes.
func TestWorkerLogger(t *testing.T) {
	h := &heard{}
	sdklog.SetLogger(h)
	t.Cleanup(func() { sdklog.SetLogger(&sdklog.Structural{}) }) // as it was
	l := WorkerLogger(slog.LevelInfo).With("worker", "w/1")
	l.Debug("not this")
	l.Info("split begins", "split", "0")
	l.WithGroup("g").Warn("late", "by", time.Second)
	l.Error("failed")
	want := []string{
		fmt.Sprint(sdklog.SevInfo, ` msg="split begins" worker=w/1 split=0`), fmt.Sprint(sdklog.SevWarn, " msg=late worker=w/1 g.by=1s"), fmt.Sprint(sdklog.SevError, " msg=failed worker=w/1"),
	}
	if diff := cmp.Diff(want, h.lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// describes is a job service that has some options.
type describes struct {
	jobpb.UnimplementedJobServiceServer
	names []string
}

func (d *describes) DescribePipelineOptions(context.Context, *jobpb.DescribePipelineOptionsRequest) (*jobpb.DescribePipelineOptionsResponse, error) {
	if d.names == nil {
		return nil, status.Error(codes.Unimplemented, "no such method")
	}
	out := &jobpb.DescribePipelineOptionsResponse{}
	for _, name := range d.names {
		out.Options = append(out.Options, &jobpb.PipelineOptionDescriptor{Name: name})
	}
	return out, nil
}

// TestServiceUnderstands asks job services of other releases, and of other runners, for options that they do not have.
func TestServiceUnderstands(t *testing.T) {
	t.Parallel()
	flink := []string{"streaming", "flink_master", "max_bundle_time_mills", "checkpointing_interval", "finish_bundle_before_checkpointing", "object_reuse"}
	for _, c := range []struct {
		name  string
		names []string
		own   map[string]any
		want  string
	}{
		{"right", flink, map[string]any{"object_reuse": true}, ""},
		{"older", slices.DeleteFunc(slices.Clone(flink), func(n string) bool { return strings.HasPrefix(n, "finish") }), nil, `does not know Flink's option "finish_bundle_before_checkpointing"`},
		{"misspelt", flink, map[string]any{"object_reus": true}, `has no option "object_reus"; did you mean "object_reuse"?`},
		{"unknown", flink, map[string]any{"x": 1}, `has no option "x"`},
		{"another runner", []string{"streaming", "speed"}, map[string]any{"speed": 2}, ""},
		{"describes nothing", nil, map[string]any{"x": 1}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer()
			jobpb.RegisterJobServiceServer(server, &describes{names: c.names})
			go func() { _ = server.Serve(l) }()
			defer server.Stop()
			conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			s := Service{Endpoint: l.Addr().String(), CheckpointEvery: time.Second, Options: c.own}
			err = s.understands(t.Context(), jobClient{jobpb.NewJobServiceClient(conn), s.options(false)})
			if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
