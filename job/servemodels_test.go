package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/ps/wire"
	"github.com/monolith-go/monolith/serving"
)

// TestServeModels asks a server of this process over the network, with a token, and drains it.
func TestServeModels(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	exports := filepath.Join(t.TempDir(), "clicks")
	if _, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Dir: exports, RowsPerFile: 1000, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ready, drain, done := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- job.ServeModels(t.Context(), job.ServeModelsOptions{Exports: []string{exports}, HTTP: "127.0.0.1:0", TokenFile: token, Ready: func(addr, _ string) { ready <- addr }, Drain: drain})
	}()
	var url string
	select {
	case addr := <-ready:
		url = "http://" + addr + "/v1/models/clicks:predict"
	case err := <-done:
		t.Fatal(err)
	}
	post := func(token string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"instances": [{"user": 3, "item": 5, "category": 1, "price": 0.5}, {}]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(a.Body)
		if err := errors.Join(err, a.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, string(body)
	}
	var got struct{ Predictions [][]float32 }
	if code, body := post("secret"); code != http.StatusOK || json.Unmarshal([]byte(body), &got) != nil || len(got.Predictions) != 2 || got.Predictions[0][0] <= 0 || got.Predictions[0][0] >= 1 {
		t.Errorf("%d: %s", code, body)
	}
	if code, body := post("public"); code != http.StatusUnauthorized {
		t.Errorf("with another token %d: %s", code, body)
	}
	close(drain)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestServeModelsOfAFile: models of a file are served beside others, and as it says when it has changed; one that cannot be read changes nothing.
func TestServeModelsOfAFile(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	dir := t.TempDir()
	exports, file := filepath.Join(dir, "clicks"), filepath.Join(dir, "models.config")
	r, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Dir: exports, RowsPerFile: 1000, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		whole := file + ".new" // it is never read half written
		if err := errors.Join(os.WriteFile(whole, []byte(text), 0o644), os.Rename(whole, file)); err != nil {
			t.Fatal(err)
		}
	}
	one := func(name string) string {
		return fmt.Sprintf(`model_config_list { config { name: %q base_path: %q version_labels { key: "stable" value: %s } } }`, name, exports, filepath.Base(r.Dir))
	}
	o := job.ServeModelsOptions{Exports: []string{exports}, ConfigFile: file, HTTP: "127.0.0.1:0", Poll: time.Millisecond}
	for text, says := range map[string]string{
		"": "no model_config_list", "model_config_list { config { nme: 1 } }": "needs a name and a folder", one("clicks"): `two models "clicks"`, one("a/b"): "neither / nor :", "model_config_list": "no ModelServerConfig: unexpected EOF",
	} {
		write(text)
		if err := job.ServeModels(t.Context(), o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %s", text, err, says)
		}
	}
	write(one("first"))
	ready, drain, done := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	o.Ready, o.Drain = func(addr, _ string) { ready <- addr }, drain
	go func() { done <- job.ServeModels(t.Context(), o) }()
	var addr string
	select {
	case addr = <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	code := func(path string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/models/"+path+":predict", strings.NewReader(`{"instances": [{}]}`))
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return a.StatusCode
	}
	for _, path := range []string{"clicks", "first", "first/labels/stable"} {
		if got := code(path); got != http.StatusOK {
			t.Errorf("%s: %d", path, got)
		}
	}
	write(one("second"))
	deadline := time.Now().Add(3 * time.Minute)
	for code("second/labels/stable") != http.StatusOK || code("first") != http.StatusNotFound {
		if time.Sleep(time.Millisecond); time.Now().After(deadline) {
			t.Fatal("the file is not followed")
		}
	}
	for _, bad := range []string{"model_config_list {", one("clicks")} {
		write(bad)
		if code("second") != http.StatusOK || code("clicks") != http.StatusOK {
			t.Errorf("%s: what was served is not any more", bad)
		}
	}
	write(one("third"))
	for code("third") != http.StatusOK || code("second") != http.StatusNotFound || code("clicks") != http.StatusOK {
		if time.Sleep(time.Millisecond); time.Now().After(deadline) {
			t.Fatal("the file is not followed behind one that cannot be read")
		}
	}
	close(drain)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestServeModelsGRPC asks with encryption and a token, over gRPC, with a second server that finds the address taken, and drains the server while somebody watches its health.
func TestServeModelsGRPC(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	dir := t.TempDir()
	exports, token := filepath.Join(dir, "clicks"), filepath.Join(dir, "token")
	if _, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Dir: exports, RowsPerFile: 1000, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := testbed.NewAuthority(t, dir, "authority")
	cert, key := a.Issue(t, "server")
	o := job.ServeModelsOptions{Exports: []string{exports}, HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", TLS: &secure.TLS{Cert: cert, Key: key}, TokenFile: token}
	ready, drain, done := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	first := o
	first.Ready, first.Drain = func(_, addr string) { ready <- addr }, drain
	go func() { done <- job.ServeModels(t.Context(), first) }()
	select {
	case o.GRPC = <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	if err := job.ServeModels(t.Context(), o); !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), "--grpc: ") || !strings.Contains(err.Error(), "another address of this machine with --grpc") {
		t.Errorf("a second server at %s: %v", o.GRPC, err)
	}
	dial := func(token string) *wire.Client {
		cc, err := wire.NewClient(o.GRPC, wire.ClientConfig{TLS: &wire.TLS{CA: a.File}, Token: secure.Fixed(token)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := cc.Close(); err != nil {
				t.Error(err)
			}
		})
		return cc
	}
	good, bad := dial("secret"), dial("public")
	request := &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks"}, Inputs: map[string]*tensorflow.TensorProto{
		"item": {Dtype: tensorflow.DataType_DT_INT64, TensorShape: &tensorflow.TensorShapeProto{Dim: []*tensorflow.TensorShapeProto_Dim{{Size: 2}}}, Int64Val: []int64{5, 6}},
	}}
	got, err := tfs.NewPredictionServiceClient(good).Predict(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	for name, head := range got.GetOutputs() {
		if x := head.GetFloatVal(); len(x) != 2 || x[0] <= 0 || x[0] >= 1 || x[0] == x[1] {
			t.Errorf("predictions of head %s: %v", name, x)
		}
	}
	if _, err := tfs.NewPredictionServiceClient(bad).Predict(t.Context(), request); status.Code(err) != codes.Unauthenticated {
		t.Errorf("with another token: %v", err)
	}
	watch, err := healthpb.NewHealthClient(bad).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING} {
		if got, err := watch.Recv(); err != nil || got.GetStatus() != want {
			t.Errorf("health: %v, %v, want %s", got, err, want)
		}
		if want == healthpb.HealthCheckResponse_SERVING {
			close(drain)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestServeRowShards: two processes hold the rows of an export, by a token and certificates on both sides, and a third one predicts what one that has all does; it copies nothing of the rows from a store, and waits for a
// shard that lets it in.
func TestServeRowShards(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	dir := t.TempDir()
	exports, token, other := filepath.Join(dir, "clicks"), filepath.Join(dir, "token"), filepath.Join(dir, "other")
	if _, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Dir: exports, RowsPerFile: 1000, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{token: "secret\n", other: "another\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := testbed.NewAuthority(t, dir, "authority")
	cert, key := a.Issue(t, "server")
	both := &secure.TLS{CA: a.File, Cert: cert, Key: key}
	type addrs struct{ http, grpc string }
	serve := func(o job.ServeModelsOptions) (at addrs) {
		t.Helper()
		ready, drain, done := make(chan addrs, 1), make(chan struct{}), make(chan error, 1)
		o.Ready, o.Drain, o.HTTP = func(http, grpc string) { ready <- addrs{http, grpc} }, drain, "127.0.0.1:0"
		go func() { done <- job.ServeModels(context.WithoutCancel(t.Context()), o) }() // it is drained
		select {
		case at = <-ready:
		case err := <-done:
			t.Fatal(err)
		}
		t.Cleanup(func() {
			close(drain)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		return at
	}
	rows := job.RowShards{CacheBytes: 1 << 20, TLS: both, TokenFile: token}
	shardCaches := [2]string{filepath.Join(dir, "cache0"), filepath.Join(dir, "cache1")}
	for i := range 2 {
		at := serve(job.ServeModelsOptions{Exports: []string{"file://" + exports}, Cache: job.ExportCache{Dir: shardCaches[i]}, GRPC: "127.0.0.1:0", Shard: &native.Part{Index: i, Of: 2}, TLS: both, TokenFile: token})
		rows.Addrs = append(rows.Addrs, at.grpc)
	}
	refused := rows
	refused.TokenFile = other
	cache := job.ExportCache{Dir: filepath.Join(dir, "cache")}
	all := serve(job.ServeModelsOptions{Exports: []string{exports}})
	split := serve(job.ServeModelsOptions{Exports: []string{"file://" + exports}, Cache: cache, Rows: rows})
	waits := serve(job.ServeModelsOptions{Exports: []string{exports}, Rows: refused})
	get := func(at addrs, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), map[bool]string{true: http.MethodGet, false: http.MethodPost}[body == ""], "http://"+at.http+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(a.Body)
		if err := errors.Join(err, a.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, string(b)
	}
	const path, body = "/v1/models/clicks:predict", `{"instances": [{"user": 3, "item": 5, "category": 1, "price": 0.5}, {"user": 4, "item": 1}, {}]}`
	code, want := get(all, path, body)
	if code != http.StatusOK {
		t.Fatalf("%d: %s", code, want)
	}
	for range 2 {
		if code, got := get(split, path, body); code != http.StatusOK || got != want {
			t.Errorf("%d: %s, want %s", code, got, want)
		}
	}
	slabs := func(dir string) (n int) {
		t.Helper()
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".slab") {
				n++
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		return n
	}
	if entry, one, two, all := slabs(cache.Dir), slabs(shardCaches[0]), slabs(shardCaches[1]), slabs(exports); entry != 0 || one == 0 || one >= all || two == 0 || two >= all || one+two < all {
		t.Errorf("of %d files of rows the entry copied %d, the shards %d and %d", all, entry, one, two)
	}
	if code, got := get(waits, path, body); code != http.StatusServiceUnavailable {
		t.Errorf("with another token %d: %s", code, got)
	}
	if code, got := get(waits, "/v1/models/clicks", ""); code != http.StatusOK || !strings.Contains(got, "LOADING") || !strings.Contains(got, "the token is not the server's") {
		t.Errorf("with another token %d: %s", code, got)
	}
	if code, page := get(split, "/", ""); code != http.StatusOK || !strings.Contains(page, rows.Addrs[1]) {
		t.Errorf("the page: %d %s", code, page)
	}
}

// TestClientThatStopsReading: while a caller does not read its answer, others get theirs, with one thread; a server that is drained gives it up and ends in order.
func TestClientThatStopsReading(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	dir := t.TempDir()
	exports, socket := filepath.Join(dir, "clicks"), filepath.Join(dir, "http")
	if _, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Dir: exports, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	ready, drain, done := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- job.ServeModels(context.WithoutCancel(t.Context()), job.ServeModelsOptions{
			Exports: []string{exports}, HTTP: "unix:" + socket, Limits: serving.Options{Threads: 1, Timeout: 3 * time.Second}, Ready: func(addr, _ string) { ready <- addr }, Drain: drain,
		})
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	request := func(n int) string {
		body := `{"inputs": {"price": [` + strings.Repeat("0.5, ", n-1) + `0.5]}}`
		return fmt.Sprintf("POST /v1/models/clicks:predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	ask := func(n int) net.Conn {
		t.Helper()
		c, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
		if err == nil {
			_, err = io.WriteString(c, request(n))
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const ok = "HTTP/1.1 200 OK"
	stopped := ask(60_000) // its answer has more bytes than sockets keep
	defer func() { _ = stopped.Close() }()
	begins := make([]byte, len(ok))
	if _, err := io.ReadFull(stopped, begins); err != nil || string(begins) != ok {
		t.Fatalf("%q, %v", begins, err)
	}
	for range 5 {
		c := ask(2)
		answer, err := io.ReadAll(c)
		if err := errors.Join(err, c.Close()); err != nil || !strings.HasPrefix(string(answer), ok) {
			t.Errorf("%v: %s", err, answer)
		}
	}
	close(drain)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(stopped); len(rest) > 600_000 {
		t.Errorf("the answer came all the same, %d bytes, %v", len(rest), err)
	}
}

// TestServedByMistake: who names what is no native export is told what it is.
func TestServedByMistake(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	dir := t.TempDir()
	export := func(format, at string) string {
		t.Helper()
		r, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: format, Dir: filepath.Join(dir, at), Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		return r.Dir
	}
	good := export("native", "several/clicks")
	number := filepath.Base(good)
	snap, err := filepath.Glob(filepath.Join(cfg.Dir, "snapshots", "snap-*"))
	if err != nil || len(snap) == 0 {
		t.Fatalf("%q, %v", snap, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		export("onnx", "onnx"):                 number + " is an export as onnx; monolith export --format native",
		filepath.Join(dir, "onnx"):             number + " is an export as onnx",
		export("parquet", "rows"):              "is an export as parquet",
		cfg.Dir:                                "has snapshots; ",
		snap[0]:                                "is a snapshot; ",
		file:                                   "is a file; folders",
		filepath.Join(dir, "several"):          `has the folders of several models; name each, as "` + filepath.Dir(good),
		filepath.Join(dir, "several", "click"): `click does not exist, did you mean "` + filepath.Dir(good),
		filepath.Join(dir, "elsewhere"):        "elsewhere does not exist",
	} {
		if err := job.ServeModels(t.Context(), job.ServeModelsOptions{HTTP: "127.0.0.1:0", Exports: []string{"a=" + path}}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "model a: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want one that says %q", path, err, says)
		}
	}
	o := job.ServeModelsOptions{HTTP: "127.0.0.1:0", Exports: []string{filepath.Dir(good)}, Policy: serving.Policy{Specific: []int64{77}}}
	if err := job.ServeModels(t.Context(), o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "has the versions "+number+", and none of [77]") {
		t.Errorf("another version: %v", err)
	}
	if err := os.Remove(filepath.Join(good, "dense.f32")); err != nil {
		t.Fatal(err)
	}
	o.Policy = serving.Policy{}
	if err := job.ServeModels(t.Context(), o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "dense.f32: no such file or directory: the export is damaged") || strings.Contains(err.Error(), "no complete") {
		t.Errorf("without its dense weights: %v", err)
	}
}

// TestServeModelsFaults: what cannot be served, or not safely, is refused before anything listens.
func TestServeModelsFaults(t *testing.T) {
	t.Parallel()
	empty, secret := t.TempDir(), filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for says, o := range map[string]job.ServeModelsOptions{
		"there is nothing to serve":             {HTTP: "127.0.0.1:0"},
		`"=x" does not name a model`:            {HTTP: "127.0.0.1:0", Exports: []string{"=x"}},
		"has no export":                         {HTTP: "127.0.0.1:0", Exports: []string{"a=" + empty}},
		"nothing keeps strangers from asking":   {HTTP: "0.0.0.0:0", Exports: []string{empty}},
		"can reach 0.0.0.0:1,":                  {HTTP: "127.0.0.1:0", GRPC: "0.0.0.0:1", Exports: []string{empty}},
		`--grpc: wire: address "there"`:         {HTTP: "127.0.0.1:0", GRPC: "there", Exports: []string{empty}},
		"--allow-reload needs --grpc":           {HTTP: "127.0.0.1:0", Reload: true, Exports: []string{empty}},
		"neither host:port nor unix:path":       {HTTP: "here", Exports: []string{empty}},
		"--token-file":                          {HTTP: "127.0.0.1:0", Exports: []string{empty}, TokenFile: filepath.Join(empty, "none")},
		"--shard is 2/2: such as":               {HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Exports: []string{empty}, Shard: &native.Part{Index: 2, Of: 2}},
		"--shard needs --grpc":                  {HTTP: "127.0.0.1:0", Exports: []string{empty}, Shard: &native.Part{Of: 1}},
		"not both":                              {HTTP: "127.0.0.1:0", Exports: []string{empty}, Shard: &native.Part{Of: 1}, Rows: job.RowShards{Addrs: []string{"127.0.0.1:1"}}},
		"a row shard answers no requests":       {HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Exports: []string{empty}, Shard: &native.Part{Of: 1}, RequestLog: serving.RequestLogOptions{Dir: empty}},
		"--shard and --rows are for exports":    {HTTP: "127.0.0.1:0", Jobs: []job.ServedJob{{}}, Rows: job.RowShards{Addrs: []string{"127.0.0.1:1"}}},
		`--rows: wire: address "there"`:         {HTTP: "127.0.0.1:0", Exports: []string{empty}, Rows: job.RowShards{Addrs: []string{"there"}}},
		"--rows-token-file: ":                   {HTTP: "127.0.0.1:0", Exports: []string{empty}, Rows: job.RowShards{Addrs: []string{"127.0.0.1:1"}, TokenFile: filepath.Join(empty, "none")}},
		"not sent over the network without TLS": {HTTP: "127.0.0.1:0", Exports: []string{empty}, Rows: job.RowShards{Addrs: []string{"192.0.2.1:1"}, TokenFile: secret}},
		"nothing keeps them from changing":      {HTTP: "127.0.0.1:0", GRPC: "0.0.0.0:1", Exports: []string{empty}, TLS: &secure.TLS{Cert: "none", Key: "none", CA: "none"}, Pushes: job.Pushes{Accept: true}},
		"--push-token-file is for":              {HTTP: "127.0.0.1:0", Exports: []string{empty}, Pushes: job.Pushes{TokenFile: secret}},
		"--accept-pushes needs --grpc":          {HTTP: "127.0.0.1:0", Exports: []string{empty}, Pushes: job.Pushes{Accept: true}},
		"push them to its row shards":           {HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Exports: []string{empty}, Pushes: job.Pushes{Accept: true}, Rows: job.RowShards{Addrs: []string{"127.0.0.1:1"}}},
		"there is none to serve":                {HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Jobs: []job.ServedJob{{}}, Pushes: job.Pushes{Accept: true}},
		"needs --push-token-file, with another": {HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Exports: []string{empty}, TokenFile: secret, Pushes: job.Pushes{Accept: true}},
		"--push-token-file: ":                   {HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Exports: []string{empty}, Pushes: job.Pushes{Accept: true, TokenFile: filepath.Join(empty, "none")}},
		"--pushed-bytes is -1":                  {HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Exports: []string{empty}, Pushes: job.Pushes{Accept: true, MaxBytes: -1}},
		"certificate":                           {HTTP: "0.0.0.0:0", Exports: []string{empty}, TLS: &secure.TLS{Cert: "none", Key: "none"}},
	} {
		if err := job.ServeModels(t.Context(), o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want one that says %q", err, says)
		}
	}
}

// TestServesWhatOpens: a server starts with the models that open, although others have no export yet or a damaged one. It is not ready until they have one.
func TestServesWhatOpens(t *testing.T) {
	t.Parallel()
	cfg := trainTables(t)
	dir := t.TempDir()
	export := func(at string) string {
		t.Helper()
		r, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Dir: filepath.Join(dir, at), Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		return r.Dir
	}
	export("good")
	if err := os.WriteFile(filepath.Join(export("damaged"), "dense.f32"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	late := filepath.Join(dir, "late")
	if err := os.Mkdir(late, 0o700); err != nil {
		t.Fatal(err)
	}
	var log lines
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, stop := serveModels(ctx, t, job.ServeModelsOptions{
		Exports: []string{filepath.Join(dir, "good"), filepath.Join(dir, "damaged"), late}, Poll: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	defer stop()
	is := func(path string) int {
		code, _ := a.do(http.MethodGet, path, "")
		return code
	}
	if is("/healthz") != http.StatusServiceUnavailable || is("/v1/models/good") != http.StatusOK {
		t.Errorf("health %d, the good model %d", is("/healthz"), is("/v1/models/good"))
	}
	for _, says := range []string{"model damaged: version", "model late: ", "has no export"} {
		if !strings.Contains(log.String(), says) {
			t.Errorf("the log does not say %q:\n%s", says, log.String())
		}
	}
	if code, _ := a.do(http.MethodPost, "/v1/models/good:predict", `{"instances": [{}]}`); code != http.StatusOK {
		t.Errorf("the good model predicts %d", code)
	}
	if err := os.RemoveAll(filepath.Join(dir, "damaged")); err != nil {
		t.Fatal(err)
	}
	export("damaged")
	export("late")
	for is("/healthz") != http.StatusOK {
		time.Sleep(10 * time.Millisecond)
	}
	b, stopEmpty := serveModels(ctx, t, job.ServeModelsOptions{GRPC: testbed.FreeAddr(t), Reload: true})
	defer stopEmpty()
	if code, _ := b.do(http.MethodGet, "/healthz", ""); code != http.StatusOK {
		t.Errorf("a server that waits for its models: %d", code)
	}
}

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String is all of it.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
