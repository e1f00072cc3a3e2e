package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/remote"
)

// The endpoint of the user's profile is the one that is asked; a bucket that is not there and an endpoint that is none have codes of their own.
func TestProfileNamesTheEndpoint(t *testing.T) {
	asked := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.URL.Path:
		default:
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `<?xml version="1.0"?><Error><Code>NoSuchBucket</Code></Error>`)
	}))
	defer server.Close()
	config := filepath.Join(t.TempDir(), "config")
	text := "[default]\nendpoint_url = http://127.0.0.1:1\n[profile  minio]\nregion = eu-1\nendpoint_url = " + server.URL + "\ns3 =\n  endpoint_url = http://127.0.0.1:2\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": config, "AWS_SHARED_CREDENTIALS_FILE": config, "AWS_PROFILE": "minio", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
		"AWS_ENDPOINT_URL_S3": "", "AWS_ENDPOINT_URL": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "",
	} {
		t.Setenv(name, value)
	}
	u := fsx.URL{Scheme: "s3", Host: "models", Path: "/"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store, err := remote.Open(ctx, u)
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.List(ctx, ".")
	if !errors.Is(err, fsx.ErrNoBucket) || failure.Of(err).Class() != failure.Environment {
		t.Errorf("a bucket that is not there: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-asked:
	default:
		t.Error("the profile's endpoint was not asked")
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", "127.0.0.1:9000")
	if _, err := remote.Open(ctx, u); failure.Of(err).Class() != failure.Mistake {
		t.Errorf("an endpoint without a scheme: %v", err)
	}
}
