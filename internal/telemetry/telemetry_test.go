package telemetry_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/internal/telemetry"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/transforms/parse"
)

var (
	_ pipeline.RowsReadHook    = (*telemetry.Metrics)(nil)
	_ pipeline.LagHook         = (*telemetry.Metrics)(nil)
	_ pipeline.RowDroppedHook  = (*telemetry.Metrics)(nil)
	_ pipeline.RecordsLostHook = (*telemetry.Metrics)(nil)
	_ pipeline.StageDoneHook   = (*telemetry.Metrics)(nil)
	_ pipeline.QueueLenHook    = (*telemetry.Metrics)(nil)
	_ pipeline.QueueWaitHook   = (*telemetry.Metrics)(nil)
	_ parse.JoinObserver       = (*telemetry.Metrics)(nil)
	_ ps.RequestDoneHook       = (*telemetry.Metrics)(nil)
	_ ps.TableRowsHook         = (*telemetry.Metrics)(nil)
	_ ps.RowsRemovedHook       = (*telemetry.Metrics)(nil)
	_ ps.TableBytesHook        = (*telemetry.Metrics)(nil)
	_ ps.StalenessHook         = (*telemetry.Metrics)(nil)
	_ ps.SnapshotDoneHook      = (*telemetry.Metrics)(nil)
	_ ps.UploadDoneHook        = (*telemetry.Metrics)(nil)
	_ ps.SnapshotUploadedHook  = (*telemetry.Metrics)(nil)
	_ ps.StandbyHook           = (*telemetry.Metrics)(nil)
	_ secure.Hook              = (*telemetry.Secrets)(nil)
)

// observe calls every hook once.
func observe(t *testing.T) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	h, err := telemetry.New(reg, "lookup", "step", "push")
	if err != nil {
		t.Fatal(err)
	}
	h.RowsRead("ratings", "ratings-3", 128)
	h.RowsRead("ratings", "ratings-4", 2)
	h.Lag("ratings", "ratings-3", 7)
	h.Lag("ratings", "ratings-4", 9)
	h.Lag("ratings", "ratings-4", -1)
	h.RowDropped("ratings", "malformed example", 3)
	h.RecordsLost("ratings", "ratings-00000", 5, 9)
	h.FeatureParsed("user", 5, 3, 1)
	h.JoinMissed("users.dat", 2)
	h.StageDone("step", 512, 3*time.Millisecond)
	h.StageDone("parse", 512, time.Millisecond)
	h.QueueLen("lookup", 1, 2)
	h.QueueWait("lookup", "get", time.Microsecond)
	h.OutputStored("examples", 2, 300, 4096)
	h.OutputStored("examples", 1, 100, 904)
	h.OutputFailed("examples", "no_space")
	h.OutputLag("examples", 9)
	h.OutputLag("examples", 7)
	h.RequestDone("push", "ok", time.Millisecond)
	h.TableRows("embedding", 12)
	h.RowsRemoved("embedding", ps.Expired, 3)
	h.TableBytes(1, "embedding", 4096)
	h.TableBytes(2, "embedding", 512)
	h.TableBytes(2, "embedding", -1)
	h.Staleness(2)
	h.Standby(1, 3, true, true, 7)
	h.Standby(2, 0, true, false, -1)
	h.SnapshotDone("ok", time.Second, 1<<20, time.Millisecond)
	h.SnapshotDone("no_space", time.Hour, 5, time.Hour)
	h.UploadDone("ok", time.Second, 1000)
	h.UploadDone("error", time.Hour, 24)
	h.SnapshotUploaded(7, time.Unix(1700000000, 0))
	if err := telemetry.RegisterMemory(reg, func() (bytes, limit int64) { return 1 << 20, 1 << 30 }); err != nil {
		t.Fatal(err)
	}
	tr, err := telemetry.NewTraining(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, head := range []string{"", "click"} {
		tr.Observe(head, "log_loss", 0.5)
		tr.Observe(head, "auc", 0.75)
	}
	tr.Observe("", "log_loss", math.NaN())
	tr.Observe("price", "rmse", 3)
	tr.Evaluated("price", "rmse", 4)
	c, err := telemetry.NewSecrets(reg)
	if err != nil {
		t.Fatal(err)
	}
	c.CertificateUsed("tls.crt", time.Unix(1800000000, 0))
	c.CertificateUsed("ca.crt", time.Unix(1900000000, 0))
	c.CertificateFailed("tls.crt")
	c.TokenUsed("token")
	c.TokenUsed("push-token")
	c.TokenFailed("token")
	if err := telemetry.RegisterBuild(reg, telemetry.Build{Version: "v1", Revision: "abc", Go: "go1"}); err != nil {
		t.Fatal(err)
	}
	return reg
}

var rewrite = flag.Bool("rewrite", false, "write the table of docs/metrics.md anew")

// TestDocs: what a scrape shows and what docs/metrics.md says are the same names, types, labels and sentences.
func TestDocs(t *testing.T) {
	t.Parallel()
	families, err := observe(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var scraped []string
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		scraped = append(scraped, fmt.Sprintf("| `%s` | %s | %s | %s |", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp()))
	}
	const path = "../../docs/metrics.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		var rows strings.Builder
		for _, d := range telemetry.Descriptions() {
			labels := slices.Sorted(slices.Values(d.Labels))
			fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", d.Name, d.Type, strings.Join(labels, ", "), d.Help)
		}
		page = regexp.MustCompile("(?m)(^\\| `monolith_.*\n)+").ReplaceAllLiteral(page, []byte(rows.String()))
		if err := os.WriteFile(path, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	documented := regexp.MustCompile("(?m)^\\| `monolith_.*$").FindAllString(string(page), -1)
	slices.Sort(scraped)
	slices.Sort(documented)
	if diff := cmp.Diff(scraped, documented); diff != "" {
		t.Errorf("docs/metrics.md differs from a scrape (-scrape +docs); go test ./internal/telemetry -rewrite updates it:\n%s", diff)
	}
	if len(scraped) != len(telemetry.Descriptions()) {
		t.Errorf("%d metrics scraped, %d in the table", len(scraped), len(telemetry.Descriptions()))
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	problems, err := testutil.GatherAndLint(observe(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	want := `
# HELP monolith_output_bytes_total Bytes of what an output has stored: of its files, or of the keys and values of its records.
# TYPE monolith_output_bytes_total counter
monolith_output_bytes_total{output="examples"} 5000
# HELP monolith_output_lag_rows Rows that are trained or on their way to an output, and that it has not stored yet.
# TYPE monolith_output_lag_rows gauge
monolith_output_lag_rows{output="examples"} 7
# HELP monolith_output_rows_total Rows an output of the job has stored, so that its readers see them.
# TYPE monolith_output_rows_total counter
monolith_output_rows_total{output="examples"} 400
# HELP monolith_output_stores_total Files or transactions of an output, by result; after a failure the run ends, or the output is opened anew.
# TYPE monolith_output_stores_total counter
monolith_output_stores_total{code="no_space",output="examples"} 1
monolith_output_stores_total{code="ok",output="examples"} 3
# HELP monolith_snapshot_size_bytes Size of the last good snapshot.
# TYPE monolith_snapshot_size_bytes gauge
monolith_snapshot_size_bytes 1.048576e+06
# HELP monolith_snapshot_upload_bytes_total Bytes of snapshots copied to snapshot.upload, those of uploads that failed included.
# TYPE monolith_snapshot_upload_bytes_total counter
monolith_snapshot_upload_bytes_total 1024
# HELP monolith_snapshot_uploaded_number Number of the newest snapshot that is whole at snapshot.upload.
# TYPE monolith_snapshot_uploaded_number gauge
monolith_snapshot_uploaded_number 7
# HELP monolith_snapshot_uploaded_timestamp_seconds When the newest snapshot at snapshot.upload was taken, in Unix time: what came later is lost with the machine.
# TYPE monolith_snapshot_uploaded_timestamp_seconds gauge
monolith_snapshot_uploaded_timestamp_seconds 1.7e+09
# HELP monolith_snapshot_uploads_total Snapshots copied to snapshot.upload, by result; what fails is tried again.
# TYPE monolith_snapshot_uploads_total counter
monolith_snapshot_uploads_total{code="error"} 1
monolith_snapshot_uploads_total{code="ok"} 1
# HELP monolith_snapshots_total Snapshots tried, by result.
# TYPE monolith_snapshots_total counter
monolith_snapshots_total{code="no_space"} 1
monolith_snapshots_total{code="ok"} 1
# HELP monolith_source_examples_total Examples or records a source returned.
# TYPE monolith_source_examples_total counter
monolith_source_examples_total{source="ratings"} 130
# HELP monolith_source_lag_records Records of a split that are not trained yet, those on their way included. Under read_committed, those behind an open transaction do not count. No series where it is not known: the source has no end to count to, or its broker does not answer.
# TYPE monolith_source_lag_records gauge
monolith_source_lag_records{source="ratings",split="ratings-3"} 7
# HELP monolith_tls_expiry_timestamp_seconds When the certificate that is used of a file expires, in Unix time; of a file of authorities, the first that has not expired.
# TYPE monolith_tls_expiry_timestamp_seconds gauge
monolith_tls_expiry_timestamp_seconds{file="ca.crt"} 1.9e+09
monolith_tls_expiry_timestamp_seconds{file="tls.crt"} 1.8e+09
# HELP monolith_tls_reload_failures_total How often, every ten seconds, a file of certificates could not be used, so that what it held before still is; the log says why.
# TYPE monolith_tls_reload_failures_total counter
monolith_tls_reload_failures_total{file="ca.crt"} 0
monolith_tls_reload_failures_total{file="tls.crt"} 1
# HELP monolith_token_reload_failures_total How often, every ten seconds, the file of a token could not be used (it is gone, empty or no text), so that what it held before still is; the log says why.
# TYPE monolith_token_reload_failures_total counter
monolith_token_reload_failures_total{file="push-token"} 0
monolith_token_reload_failures_total{file="token"} 1
# HELP monolith_train_auc_ratio AUC of the last window of examples, before they were trained on.
# TYPE monolith_train_auc_ratio gauge
monolith_train_auc_ratio{head=""} 0.75
monolith_train_auc_ratio{head="click"} 0.75
`
	err := testutil.GatherAndCompare(
		observe(t), strings.NewReader(want),
		"monolith_output_rows_total", "monolith_output_bytes_total", "monolith_output_stores_total", "monolith_output_lag_rows",
		"monolith_snapshot_size_bytes", "monolith_snapshot_upload_bytes_total", "monolith_snapshot_uploaded_number", "monolith_snapshot_uploaded_timestamp_seconds",
		"monolith_snapshot_uploads_total", "monolith_snapshots_total", "monolith_source_examples_total", "monolith_source_lag_records", "monolith_train_auc_ratio",
		"monolith_tls_expiry_timestamp_seconds", "monolith_tls_reload_failures_total", "monolith_token_reload_failures_total",
	)
	if err != nil {
		t.Error(err)
	}
}

func TestTwice(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	if _, err := telemetry.New(reg, "lookup", "step", "push"); err != nil {
		t.Fatal(err)
	}
	if _, err := telemetry.New(reg, "lookup", "step", "push"); err == nil {
		t.Error("a second run is registered with the same registry")
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // a body that was read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestServe(t *testing.T) {
	t.Parallel()
	for _, pprof := range []bool{false, true} {
		reg := prometheus.NewRegistry()
		h, err := telemetry.New(reg, "lookup", "step", "push")
		if err != nil {
			t.Fatal(err)
		}
		h.TableRows("embedding", 3)
		s, err := telemetry.Serve(t.Context(), telemetry.ServerOptions{Listen: ":0", Pprof: pprof, Registry: reg})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(s.Addr(), "127.0.0.1:") {
			t.Errorf("listens on %s, want the loopback address", s.Addr())
		}
		base := "http://" + s.Addr()
		if code, body := get(t, base+"/metrics"); code != 200 || !strings.Contains(body, `monolith_ps_rows{table="embedding"} 3`) || !strings.Contains(body, "go_goroutines") {
			t.Errorf("/metrics answers %d: %s", code, body)
		}
		if code, body := get(t, base+"/healthz"); code != 200 || body != "ok\n" {
			t.Errorf("/healthz answers %d: %s", code, body)
		}
		ready := func(what string, wantCode int, wantBody string) {
			t.Helper()
			if code, body := get(t, base+"/readyz"); code != wantCode || body != wantBody {
				t.Errorf("/readyz %s answers %d: %s; want %d: %s", what, code, body, wantCode, wantBody)
			}
		}
		ready("at first", 503, "the process begins\n")
		s.Ready(errors.New("shard 1 is missing"))
		ready("before it is", 503, "shard 1 is missing\n")
		s.Ready(nil)
		ready("when it is", 200, "ok\n")
		s.Ready(errors.New("shard 1 is gone"))
		ready("when it is no more", 503, "shard 1 is gone\n")
		want := http.StatusNotFound
		if pprof {
			want = http.StatusOK
		}
		if code, _ := get(t, base+"/debug/pprof/"); code != want {
			t.Errorf("/debug/pprof/ answers %d, want %d", code, want)
		}
		if _, err := telemetry.Serve(t.Context(), telemetry.ServerOptions{Listen: s.Addr(), Registry: prometheus.NewRegistry()}); !errors.Is(err, telemetry.ErrListen) {
			t.Errorf("a taken address gives %v", err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestProfilesForAll: a warning says so where profiles can be read from other machines, and only there.
func TestProfilesForAll(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		listen string
		pprof  bool
		warns  bool
	}{{":0", true, false}, {"localhost:0", true, false}, {"0.0.0.0:0", false, false}, {"0.0.0.0:0", true, true}} {
		var log strings.Builder
		s, err := telemetry.Serve(t.Context(), telemetry.ServerOptions{Listen: tc.listen, Pprof: tc.pprof, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if strings.Contains(log.String(), "level=WARN") != tc.warns || !strings.Contains(log.String(), "metrics endpoint is up") {
			t.Errorf("at %s with profiles %t: %s", tc.listen, tc.pprof, &log)
		}
	}
}

func BenchmarkHooks(b *testing.B) {
	h, err := telemetry.New(prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		h.RowsRead("ratings", "ratings-3", 512)
		h.StageDone("step", 512, time.Millisecond)
		h.QueueLen("lookup", 1, 2)
		h.RequestDone("push", "ok", time.Millisecond)
	}
}
