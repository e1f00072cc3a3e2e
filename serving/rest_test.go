package serving_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/serving"
)

// TestREST asks in every way that there is, and gets what an evaluation gives, or a sentence that says what is wrong.
func TestREST(t *testing.T) {
	t.Parallel()
	tr := train(t, "{shared_bottom: {dim: 4, hidden: [8]}}", heads)
	number := filepath.Base(tr.export(t))
	reg := prometheus.NewRegistry()
	metrics, err := serving.NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	m := models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports, Labels: map[string]int64{"stable": 1}})
	s := serving.NewServer(serving.Options{Models: m, MaxBytes: 4000, MaxExamples: 5, Metrics: metrics})
	h := s.Handler(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	click, late := tr.want["prediction_click"], tr.want["prediction_late"]
	g := func(x float32) string { return fmt.Sprintf("%v", x) }
	object := func(i int) string {
		r := tr.asked[i]
		return fmt.Sprintf(`{"user": %q, "item": %d, "tags": %s, "price": %v}`, r.User, r.Item, strings.ReplaceAll(fmt.Sprint(append([]int64{}, r.Tags...)), " ", ","), r.Price)
	}
	record := forms(tr.asked)["tf.Example"].Records[0]
	b64 := fmt.Sprintf(`{"b64": %q}`, base64.StdEncoding.EncodeToString(record))
	row0, row1 := object(0), object(1)
	want0 := fmt.Sprintf(`{"click":[%s],"late":[%s]}`, g(click[0]), g(late[0]))
	want1 := fmt.Sprintf(`{"click":[%s],"late":[%s]}`, g(click[1]), g(late[1]))
	byRow := `{"predictions":[` + want0 + `,` + want1 + `]}`
	one := `{"predictions":[` + want0 + `]}`
	r0, r1 := tr.asked[0], tr.asked[1]
	for _, c := range []struct {
		path, body string
		code       int
		says       string // all of a good answer
	}{
		{":predict", `{"instances": [` + row0 + `, ` + row1 + `]}`, 200, byRow},
		{"/versions/" + number + ":predict", `{"signature_name": "serving_default", "instances": [` + row0 + `]}`, 200, one},
		{"/labels/stable:predict", `{"instances": [` + row0 + `]}`, 200, one},
		{":predict", `{"instances": [` + b64 + `]}`, 200, one},
		{":predict", `{"instances": [{"examples": ` + b64 + `}]}`, 200, one},
		{":predict", `{"inputs": {"examples": [` + b64 + `]}}`, 200, fmt.Sprintf(`{"outputs":{"click":[[%s]],"late":[[%s]]}}`, g(click[0]), g(late[0]))},
		{":predict", `{"inputs": [` + b64 + `]}`, 200, fmt.Sprintf(`{"outputs":{"click":[[%s]],"late":[[%s]]}}`, g(click[0]), g(late[0]))},
		{":predict", `{"inputs": ` + b64 + `}`, 200, fmt.Sprintf(`{"outputs":{"click":[[%s]],"late":[[%s]]}}`, g(click[0]), g(late[0]))},
		{":predict", strings.Replace(`{"instances": [`+row0+`]}`, fmt.Sprintf("%q", r0.User), fmt.Sprintf(`{"b64": %q}`, base64.StdEncoding.EncodeToString([]byte(r0.User))), 1), 200, one},
		{
			":predict", fmt.Sprintf(`{"inputs": {"user": [%q, %q], "item": [[%d], %d], "tags": [%s, %s], "price": [%v, %v]}}`, r0.User, r1.User, r0.Item, r1.Item,
				strings.ReplaceAll(fmt.Sprint(append([]int64{}, r0.Tags...)), " ", ","), strings.ReplaceAll(fmt.Sprint(append([]int64{}, r1.Tags...)), " ", ","), r0.Price, r1.Price),
			200, fmt.Sprintf(`{"outputs":{"click":[[%s],[%s]],"late":[[%s],[%s]]}}`, g(click[0]), g(click[1]), g(late[0]), g(late[1])),
		},
		{":classify", `{"examples": [` + row0 + `, ` + row1 + `]}`, 200, fmt.Sprintf(`{"results":[[["0",%s],["1",%s]],[["0",%s],["1",%s]]]}`, g(1-click[0]), g(click[0]), g(1-click[1]), g(click[1]))},
		{":regress", `{"signature_name": "regress/late", "examples": [` + row0 + `]}`, 200, `{"results":[` + g(late[0]) + `]}`},
		{":regress", `{"signature_name": "regress/click", "context": {"user": "nobody", "item": ` + fmt.Sprint(r0.Item) + `}, "examples": [` + strings.Replace(row0, fmt.Sprintf(`"item": %d, `, r0.Item), "", 1) + `]}`, 200, `{"results":[` + g(click[0]) + `]}`},

		{":regress", `{"examples": [` + row0 + `]}`, 400, "name a signature, regress/click or regress/late"},
		{":regress", `{"signature_name": "regress/lat", "examples": [` + row0 + `]}`, 400, `did you mean \"regress/late\"`},
		{":classify", `{"signature_name": "classify/late", "examples": [` + row0 + `]}`, 400, `did you mean \"classify/click\"`},
		{":predict", `{"signature_name": "feature", "instances": [` + row0 + `]}`, 400, `did you mean \"features\"`},
		{":predict", `{"instances": [{"user": "a"}, {"usr": "a"}]}`, 400, `example 1: the model has no feature`},
		{":predict", `{"instances": [{"user": "a"}, {"b64": ""}]}`, 400, `example 1: {\"b64\": ...} is a serialized tf.Example, and the first example is not one`},
		{":predict", `{"instances": [{"` + strings.Repeat("x", 3000) + `": 1}]}`, 400, `... (3000 bytes)`},
		{":predict", `{"instances": [{"item": ` + strings.Repeat("9", 3000) + `}]}`, 400, `... (3000 bytes) has more than 64 bits`},
		{":predict", `{"instances": [{"item": [[1]]}]}`, 400, `column \"item\": an array within an array`},
		{":predict", `{"instances": [{"usr": "a"}]}`, 400, `the model has no feature \"usr\", did you mean \"user\"?`},
		{":predict", `{"instances": [` + row0 + `, {"item": "a", "price": "dear"}]}`, 400, `example 1: wrong type: feature \"price\" has text, not numbers`},
		{":predict", `{"instances": [{"item": -4}]}`, 400, `feature \"item\" is -4`},
		{":predict", `{"instances": [{"item": [[1]]}]}`, 400, "an array within an array"},
		{":predict", `{"instances": [{"price": [1, 2]}]}`, 400, "has 2 values, not 1"},
		{":predict", `{"instances": [{"price": NaN}]}`, 400, "it has NaN or an infinity"},
		{":predict", `{"inputs": {"price": [1, -Infinity]}}`, 400, "it has NaN or an infinity"},
		{":predict", `{"instances": [{"price": Na`, 400, "invalid character"},
		{":predict", `{"instances": [{"price": None}]}`, 400, "invalid character"},
		{":predict", `{"instances": [{"price": 1e300}]}`, 400, "example 0"},
		{":predict", `{"instances": [3]}`, 400, "example 0 is no object"},
		{":predict", `{"instances": []}`, 400, "no examples"},
		{":predict", `{"inputs": {"user": ["a"], "item": [1, 2]}}`, 400, `has 1 examples, and feature \"item\" has 2`},
		{":predict", `{"inputs": 3}`, 400, "no object with a list"},
		{":predict", `{}`, 400, "needs \\\"instances\\\""},
		{":predict", `{"instances": [{}], "extra": 1}`, 400, `no field \"extra\" (there are [\"context\"`},
		{":predict", `{"instance": [{}]}`, 400, `did you mean \"instances\"`},
		{":predict", `{"instances": {"user": 1}}`, 400, `\"instances\" is an object, not a list with an object an example`},
		{":predict", `{"signature_name": 3}`, 400, `\"signature_name\" is a number, not the name of a signature`},
		{":predict", `[{}]`, 400, "is an array, not an object such as"},
		{":predict", ` `, 400, "it is empty"},
		{":predict", `{"inputs": null}`, 400, "no object with a list"},
		{":predict", `{"inputs": []}`, 400, "no examples"},
		{":predict", `{"inputs": [3]}`, 400, "serialized tf.Example"},
		{":predict", `{"instances": [{}]} 1`, 400, "something behind"},
		{":predict", `{"instances": [{"examples": {"b64": "////"}}]}`, 400, "example 0"},
		{":predict", `{"instances": [{"examples": "x"}]}`, 400, "serialized tf.Example"},
		{":predict", `{"instances": [{},{},{},{},{},{}]}`, 429, "6 examples, 5 is the most"},
		{":predict", `{"instances": [{"user": "` + strings.Repeat("x", 5000) + `"}]}`, 413, "more than 4000 bytes"},
		{":classify", `{"instances": [{}]}`, 400, `needs \"examples\"`},
		{":regress", `{"signature_name": "regress/late", "examples": [null]}`, 400, "null"},
		{":explain", `{}`, 404, ":predict, :classify and :regress"},
		{"/versions/9:predict", `{"instances": [{}]}`, 404, "version 9"},
		{"/versions/x:predict", `{"instances": [{}]}`, 400, "no number"},
		{"/labels/stabel:predict", `{"instances": [{}]}`, 404, `did you mean \"stable\"`},
		{"/a/b", "", 404, "no path of a model"},
		{"s:predict", `no JSON`, 404, `there is no model \"clickss\", did you mean \"clicks\"?`},
		{"s:predict", `{"instances": [{}]}`, 404, `there is no model \"clickss\", did you mean \"clicks\"?`},
		{"/versions/" + number, "", 200, `{"model_version_status":[{"version":"` + number + `","state":"AVAILABLE","status":{"error_code":"OK","error_message":""}}]}`},
	} {
		code, got := ask(t, h, "/v1/models/clicks"+c.path, c.body)
		switch {
		case code != c.code:
			t.Errorf("%s %s: %d, want %d: %s", c.path, c.body, code, c.code, got)
		case code == 200 && got != c.says:
			t.Errorf("%s %s:\n%s\nwant\n%s", c.path, c.body, got, c.says)
		case code != 200 && (!strings.Contains(got, c.says) || !strings.HasPrefix(got, `{"error":"`)):
			t.Errorf("%s %s: %s; want %s", c.path, c.body, got, c.says)
		}
	}
	if code, got := ask(t, h, "/v1/models/clicks/metadata", ""); code != 200 || !strings.Contains(got, `"user":{"dtype":"DT_INT64"`) || !strings.Contains(got, `"classify/click"`) || strings.Contains(got, `"classify/late"`) {
		t.Errorf("%d: %s", code, got)
	}
	for _, c := range []struct {
		path string
		code int
		says string
	}{
		{"/v1/models/clicks:predict", http.StatusMethodNotAllowed, "is asked by POST, not GET"},
		{"/v1/models", http.StatusNotFound, `names no model: /v1/models/NAME (there are [\"clicks\"])`},
		{"/v1/models/", http.StatusNotFound, "names no model"},
		{"/v2/models/clicks", http.StatusNotFound, "models are at /v1/models/NAME"},
	} {
		if code, got := ask(t, h, c.path, ""); code != c.code || !strings.HasPrefix(got, `{"error":"`) || !strings.Contains(got, c.says) {
			t.Errorf("%s: %d %s; want %d, %s", c.path, code, got, c.code, c.says)
		}
	}
	code, got := ask(t, h, "/monitoring/prometheus/metrics", "")
	for _, want := range []string{`:tensorflow:serving:request_count{model_name="clicks",status="OK"} 13`, `monolith_serving_version{model_name="clicks"} ` + number, ":tensorflow:serving:request_latency_bucket"} {
		if code != 200 || !strings.Contains(got, want) {
			t.Errorf("%d: the metrics do not have %s:\n%s", code, want, got)
		}
	}
}

// TestCompressedBodies: a body that was compressed is the body; what it becomes is bounded, and what cannot be read is refused with a reason.
func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	tr := train(t, "{deepfm: {dim: 4, hidden: [8]}}", "")
	h := serving.NewServer(serving.Options{Models: models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports}), MaxBytes: 4000}).Handler(nil)
	zip := func(body string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := io.WriteString(z, body); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	const body = `{"instances": [{"user": "u1", "item": 2}]}`
	code, want := ask(t, h, "/v1/models/clicks:predict", body)
	if code != 200 {
		t.Fatalf("%d: %s", code, want)
	}
	long := `{"instances": [{"user": "` + strings.Repeat("x", 4000) + `"}]}`
	for _, c := range []struct {
		by, body string
		code     int
		says     string
	}{
		{"gzip", zip(body), 200, want},
		{"GZIP", zip(body), 200, want},
		{"x-gzip", zip(body), 200, want},
		{"identity", body, 200, want},
		{"gzip", zip(long), 413, "more than 4000 bytes"},
		{"gzip", body, 400, "is not gzip, as its Content-Encoding says, or not all of it"},
		{"gzip", zip(body)[:20], 400, "is not gzip, as its Content-Encoding says, or not all of it"},
		{"gzip", "", 400, "is not gzip, as its Content-Encoding says, or not all of it"},
		{"br", body, 400, `compressed by \"br\"; gzip is read`},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/models/clicks:predict", strings.NewReader(c.body))
		r.Header.Set("Content-Encoding", c.by)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := strings.TrimSpace(w.Body.String()); w.Code != c.code || !strings.Contains(got, c.says) {
			t.Errorf("%s of %q: %d %s; want %d, %s", c.by, c.body, w.Code, got, c.code, c.says)
		}
	}
}

// TestFeatures: fids and final numbers give what the recipe's values give; missing ones and negative fids are none.
func TestFeatures(t *testing.T) {
	t.Parallel()
	tr := train(t, "{deepfm: {dim: 4, hidden: [8]}}", "")
	h := serving.NewServer(serving.Options{Models: models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports})}).Handler(nil)
	var rows []string
	for _, r := range tr.asked[:9] {
		tags := r.Tags
		if tags == nil {
			tags = []int64{7}
		}
		fids := []int64{-1}
		for _, tag := range tags[:min(3, len(tags))] {
			fids = append(fids, fidOf(3, tag))
		}
		rows = append(rows, fmt.Sprintf(`{"user": %d, "item": [%d], "tags": %s, "price": %v}`, fidOf(1, hashed(r.User)), fidOf(2, r.Item),
			strings.ReplaceAll(fmt.Sprint(append(fids, -1)), " ", ","), float32((math.Log1p(float64(r.Price))-2)/3)))
	}
	code, got := ask(t, h, "/v1/models/clicks:predict", `{"signature_name": "features", "instances": [`+strings.Join(rows, ",")+`]}`)
	if code != 200 || !slices.Equal(predictions(t, got)[""], tr.want["prediction"][:9]) {
		t.Errorf("%d: %s, want %v", code, got, tr.want["prediction"][:9])
	}
	for body, says := range map[string]string{
		`{"instances": [{}, {"item": 1.5}]}`:            `example 1: feature "item" is not made of integers`,
		`{"instances": [{"price": "x"}]}`:               `feature "price" is not made of floats`,
		`{"instances": [{"price": 1e30}]}`:              "a dense value is a number",
		`{"instances": [{}, {"price": [1, 2]}]}`:        "example 1: feature \"price\" has 2 values, not 1",
		`{"inputs": {"prise": [1]}}`:                    `did you mean "price"`,
		`{"instances": [{"user": [1, null, "a", {}]}]}`: `feature "user" is not made of integers`,
	} {
		body = strings.Replace(body, "{", `{"signature_name": "features", `, 1)
		if code, got := ask(t, h, "/v1/models/clicks:predict", body); code != 400 || !strings.Contains(strings.ReplaceAll(got, `\"`, `"`), says) {
			t.Errorf("%s: %d: %s; want %s", body, code, got, says)
		}
	}
}

// TestGuard: who has no token gets nothing but the health.
func TestGuard(t *testing.T) {
	t.Parallel()
	m := serving.NewModels(serving.ModelsOptions{Recipe: recipe})
	h := serving.NewServer(serving.Options{Models: m, Guard: secure.NewGuard([]secure.Rule{{Right: secure.Read, Token: secure.Fixed("secret")}})}).Handler(http.NotFoundHandler())
	for _, c := range []struct {
		path, token string
		code        int
	}{{"/v1/models/a", "", 401}, {"/v1/models/a", "public", 401}, {"/metrics", "", 401}, {"/v1/models/a", "secret", 404}, {"/metrics", "secret", 404}, {"/healthz", "", 200}} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.code {
			t.Errorf("%s with %q: %d, want %d", c.path, c.token, w.Code, c.code)
		}
	}
}

// blanks is a body that counts what is read of it.
type blanks struct{ read int64 }

func (b *blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	b.read += int64(len(p))
	return len(p), nil
}

// TestRequestOf100MB: a request of 100 MB is refused, by the size that its caller says before anything of it is read, otherwise at the limit, over HTTP and gRPC; the next one is answered.
func TestRequestOf100MB(t *testing.T) {
	t.Parallel()
	const size, most = 100_000_000, 64 << 20
	tr := train(t, "{lr: {}}", "")
	s := serving.NewServer(serving.Options{Models: models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports})})
	h := s.Handler(nil)
	for says, atMost := range map[int64]int64{size: 0, -1: most + 1<<20} {
		body := &blanks{}
		r, w := httptest.NewRequest(http.MethodPost, "/v1/models/clicks:predict", io.LimitReader(body, size)), httptest.NewRecorder()
		r.ContentLength = says
		h.ServeHTTP(w, r)
		if w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), fmt.Sprintf("more than %d bytes", most)) || body.read > atMost {
			t.Errorf("of a length of %d: %d after %d bytes: %s", says, w.Code, body.read, w.Body)
		}
	}
	client := tfs.NewPredictionServiceClient(dial(t, s, serving.GRPCOptions{}))
	_, err := client.Predict(t.Context(), &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks"}, Inputs: map[string]*tensorflow.TensorProto{"item": {TensorContent: make([]byte, size)}}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("over gRPC: %v", err)
	}
	if code, body := ask(t, h, "/v1/models/clicks:predict", instances(t, tr.asked[:3])); code != http.StatusOK || !slices.Equal(predictions(t, body)[""], tr.want["prediction"][:3]) {
		t.Errorf("the next one: %d: %s", code, body)
	}
}

// FuzzREST: whatever the body, there is an answer, which is one of the request's fault where it is no good one.
func FuzzREST(f *testing.F) {
	tr := train(f, "{shared_bottom: {dim: 2, hidden: [4]}}", heads)
	h := serving.NewServer(serving.Options{Models: models(f, serving.ModelConfig{Name: "clicks", Dir: tr.exports})}).Handler(nil)
	for _, body := range []string{
		`{"instances": [{"user": "u1", "item": 3, "tags": [1, 2], "price": 1.5}]}`, `{"inputs": {"user": ["a", "b"], "price": [1, 2]}}`, `{"instances": [{"b64": "CgA="}]}`,
		`{"signature_name": "features", "instances": [{"user": [1, -1], "price": 0}]}`, `{"examples": [{"user": {"b64": "/w=="}}], "signature_name": "regress/late"}`, `{"instances": [{"examples": {"b64": ""}}]}`,
		`{"instances": [{"user": null, "tags": [null, {"b64": "YQ=="}]}]}`, `{"examples": [{}], "context": {"item": 2}}`, `{"inputs": {"tags": [[1, [2]]]}}`, "{", "null", `{"instances": null}`,
	} {
		for verb := range 3 {
			f.Add(body, uint8(verb))
		}
	}
	f.Fuzz(func(t *testing.T, body string, verb uint8) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/models/clicks"+[]string{":predict", ":classify", ":regress"}[verb%3], strings.NewReader(body)))
		if w.Code != 200 && w.Code != 400 && w.Code != 429 {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
	})
}

// TestMetricsDocs: docs/serve.md has the metrics as they are registered.
func TestMetricsDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	list := serving.Descriptions()
	for _, d := range list {
		if row := fmt.Sprintf("| `%s` | %s | %s | %s |\n", d.Name, d.Type, strings.Join(d.Labels, ", "), d.Help); !strings.Contains(string(page), row) {
			t.Errorf("docs/serve.md does not have %s", row)
		}
	}
	if n := strings.Count(string(page), "\n| `:tensorflow") + strings.Count(string(page), "\n| `monolith_serving"); n != len(list) {
		t.Errorf("docs/serve.md has %d metrics, there are %d", n, len(list))
	}
}

// TestZeroOptions: a server of which nothing was said serves no model, over HTTP and gRPC, and says so.
func TestZeroOptions(t *testing.T) {
	t.Parallel()
	s := serving.NewServer(serving.Options{})
	for path, code := range map[string]int{"/v1/models/clicks:predict": http.StatusNotFound, "/v1/models/clicks": http.StatusNotFound, "/": http.StatusOK} {
		method := http.MethodGet
		if strings.HasSuffix(path, "predict") {
			method = http.MethodPost
		}
		w := httptest.NewRecorder()
		s.Handler(nil).ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(`{"instances": [{}]}`)))
		if w.Code != code {
			t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, code)
		}
	}
	if _, err := tfs.NewPredictionServiceClient(dial(t, s, serving.GRPCOptions{})).Predict(t.Context(), &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks"}}); status.Code(err) != codes.NotFound {
		t.Errorf("gRPC: %v", err)
	}
}
