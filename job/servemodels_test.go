package job_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
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
		done <- job.ServeModels(t.Context(), job.ServeModelsOptions{Exports: []string{exports}, HTTP: "127.0.0.1:0", TokenFile: token, Ready: func(addr string) { ready <- addr }, Drain: drain})
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

// TestServeModelsFaults: what cannot be served, or not safely, is refused before anything listens.
func TestServeModelsFaults(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for says, o := range map[string]job.ServeModelsOptions{
		"there is nothing to serve":           {HTTP: "127.0.0.1:0"},
		`"=x" does not name a model`:          {HTTP: "127.0.0.1:0", Exports: []string{"=x"}},
		"has no export":                       {HTTP: "127.0.0.1:0", Exports: []string{"a=" + empty}},
		"nothing keeps strangers from asking": {HTTP: "0.0.0.0:0", Exports: []string{empty}},
		"neither host:port nor unix:path":     {HTTP: "here", Exports: []string{empty}},
		"--token-file":                        {HTTP: "127.0.0.1:0", Exports: []string{empty}, TokenFile: filepath.Join(empty, "none")},
		"certificate":                         {HTTP: "0.0.0.0:0", Exports: []string{empty}, TLS: &secure.TLS{Cert: "none", Key: "none"}},
	} {
		if err := job.ServeModels(t.Context(), o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want one that says %q", err, says)
		}
	}
}
