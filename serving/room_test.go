package serving_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/serving"
)

// TestRequestsHaveRoomTogether: what requests have together is bounded, however they come, so that some that are allowed each do not take the server's memory; one
// that is there alone may be as large as a request may, small ones always come in, and what they had is given back.
func TestRequestsHaveRoomTogether(t *testing.T) {
	t.Parallel()
	tr := train(t, "{lr: {}}", "")
	s := serving.NewServer(serving.Options{Models: models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports}), Room: 3000, MaxCalls: 30})
	h, client := s.Handler(nil), tfs.NewPredictionServiceClient(dial(t, s, serving.GRPCOptions{}))
	const path = "/v1/models/clicks:predict"
	body := func(size int) string {
		return `{"instances": [{"user": "u1", "item": 2}` + strings.Repeat(" ", size) + `]}`
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := io.WriteString(z, body(2000)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	post := func(path, kind, by, body string) (int, string) {
		r, w := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)), httptest.NewRecorder()
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Content-Encoding", by)
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	ways := map[string]func() (refused bool, says string){
		"HTTP": func() (bool, string) {
			code, says := post(path, "application/json", "", body(2000))
			return code == http.StatusTooManyRequests, says
		},
		"HTTP, compressed": func() (bool, string) {
			code, says := post(path, "application/json", "gzip", zipped.String())
			return code == http.StatusTooManyRequests, says
		},
		"the page": func() (bool, string) {
			code, says := post("/", "application/x-www-form-urlencoded", "", url.Values{"model": {"clicks"}, "verb": {"predict"}, "body": {body(2000)}}.Encode())
			return code == http.StatusTooManyRequests, says
		},
		"Predict": func() (bool, string) {
			_, err := client.Predict(t.Context(), items(2000))
			return status.Code(err) == codes.ResourceExhausted, status.Convert(err).Message()
		},
		"Classify": func() (bool, string) {
			_, err := client.Classify(t.Context(), &tfs.ClassificationRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks", SignatureName: strings.Repeat("x", 2000)}})
			return status.Code(err) == codes.ResourceExhausted, status.Convert(err).Message()
		},
	}
	first, sends := io.Pipe()
	answered := make(chan int, 1)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, first))
		answered <- w.Code
	}()
	half := body(2000)
	if _, err := io.WriteString(sends, half[:2000]); err != nil { // it has read so much then
		t.Fatal(err)
	}
	for s.Taken() < 2000 { // and counts it
		select {
		case code := <-answered:
			t.Fatalf("the first was answered before it was there: %d", code)
		default:
		}
	}
	for name, ask := range ways {
		if refused, says := ask(); !refused || !strings.Contains(says, "requests of 2000 bytes are being answered already, and ") || !strings.Contains(says, "with smaller requests, or with another replica") {
			t.Errorf("%s beside another: %t, %s", name, refused, says)
		}
	}
	if code, says := post(path, "application/json", "", body(500)); code != http.StatusOK {
		t.Errorf("one that there is room for: %d %s", code, says)
	}
	free := s.Fill(3000)
	if code, says := post(path, "application/json", "", body(0)); code != http.StatusOK {
		t.Errorf("a small one where there is no room: %d %s", code, says)
	}
	free()
	if _, err := io.WriteString(sends, half[2000:]); err != nil {
		t.Fatal(err)
	}
	if err := sends.Close(); err != nil {
		t.Fatal(err)
	}
	if code := <-answered; code != http.StatusOK {
		t.Errorf("the first: %d", code)
	}
	for name, ask := range ways {
		if refused, says := ask(); refused {
			t.Errorf("%s alone: %s", name, says)
		}
	}
	if code, says := post(path, "application/json", "", body(5000)); code != http.StatusOK {
		t.Errorf("one that is larger than the room, alone: %d %s", code, says)
	}
	if n := s.Taken(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}
