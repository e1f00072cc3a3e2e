package serving_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/serving"
)

// TestPage shows what is served, answers its form, escapes what it is given, and needs nothing from elsewhere.
func TestPage(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	const odd = `<b>"clicks"&`
	m := models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports}, serving.ModelConfig{Name: odd, Dir: tr.exports})
	h := serving.NewServer(serving.Options{Models: m}).Handler(nil)
	show := func(r *http.Request) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if policy := w.Header().Get("Content-Security-Policy"); w.Code == http.StatusOK && !strings.Contains(policy, "default-src 'none'") {
			t.Errorf("policy %q", policy)
		}
		return w.Code, w.Body.String()
	}
	code, page := show(httptest.NewRequest(http.MethodGet, "/", nil))
	for _, want := range []string{"<h2>clicks</h2>", "&lt;b&gt;&#34;clicks&#34;&amp;", "AVAILABLE", "&#34;item&#34;: 1", ">serving<"} {
		if code != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("%d, without %s: %s", code, want, page)
		}
	}
	if outside := regexp.MustCompile(`(?i)<script|<img|<link|<b>|(src|href)="?(https?:|//)`).FindString(page); outside != "" {
		t.Errorf("the page has %s", outside)
	}
	try := func(model, verb, body, site string) (int, string) {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(url.Values{"model": {model}, "verb": {verb}, "body": {body}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", site)
		return show(r)
	}
	for _, c := range []struct{ model, verb, body, says string }{
		{"clicks", "predict", `{"instances": [{"item": 5}]}`, "{&#34;predictions&#34;:[["},
		{"clicks", "classify", `{"examples": [{"item": 5}]}`, "{&#34;results&#34;:[[[&#34;0&#34;,"},
		{"clicks", "predict", `{"instances": [{"<i>": 5}]}`, "the model has no feature &#34;&lt;i&gt;&#34;"},
		{"clicks", "predict", "<script>", "&lt;script&gt;</textarea>"},
		{"clicks", "<i>", "{}", "not :&lt;i&gt;"},
		{odd, "regress", `{"examples": [{"item": 5}]}`, "{&#34;results&#34;:["},
	} {
		if code, page := try(c.model, c.verb, c.body, "same-origin"); code != http.StatusOK || !strings.Contains(page, c.says) || strings.Contains(page, "<i>") || strings.Contains(page, "<script>") {
			t.Errorf("%s: %d, without %s: %s", c.body, code, c.says, page)
		}
	}
	if code, page := try("clicks", "predict", `{"instances": [{"item": 5}]}`, "cross-site"); code != http.StatusForbidden {
		t.Errorf("from another site: %d: %s", code, page)
	}
}

// TestPageAsksForToken: where a token is wanted, a browser gets a page that asks for it and holds nothing of the server, whose script alone may run and sends it as a header alone; with the token it gets the page that it would get without.
func TestPageAsksForToken(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	m := models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports})
	guard := secure.NewGuard([]secure.Rule{{Right: secure.Read, Token: secure.Fixed("secret")}})
	server := httptest.NewServer(serving.NewServer(serving.Options{Models: m, Guard: guard}).Handler(nil))
	t.Cleanup(server.Close)
	ask := func(method, path, token, accept, body string) (code int, header http.Header, text string) {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", accept)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		if body != "" {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded;charset=UTF-8")
		}
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, string(b)
	}
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	code, header, page := ask(http.MethodGet, "/", "", browser, "")
	if code != http.StatusUnauthorized || !strings.Contains(page, `<input name="token"`) || strings.Contains(page, "clicks") || strings.Contains(page, "secret") {
		t.Errorf("%d: %s", code, page)
	}
	// Its own script may run, nothing else may be loaded, and what it is asked for goes to this server alone.
	_, script, _ := strings.Cut(page, "<script>")
	script, _, _ = strings.Cut(script, "</script>")
	sum := sha256.Sum256([]byte(script))
	policy := header.Get("Content-Security-Policy")
	for _, want := range []string{
		"default-src 'none'", "script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'", "connect-src 'self'", "form-action 'none'", "frame-ancestors 'none'", "base-uri 'none'",
	} {
		if !slices.Contains(strings.Split(policy, "; "), want) {
			t.Errorf("policy %q, without %s", policy, want)
		}
	}
	if header.Get("Cache-Control") != "no-store" || header.Get("Set-Cookie") != "" {
		t.Errorf("%v", header)
	}
	if kept := regexp.MustCompile(`(?i)storage|cookie|indexedDB|caches|history|location\.(href|search|hash|assign)|[?&]token|https?://`).FindString(page); kept != "" {
		t.Errorf("the page has %s", kept)
	}
	// What its script asks for.
	form := url.Values{"model": {"clicks"}, "verb": {"predict"}, "body": {`{"instances": [{"item": 5}]}`}}.Encode()
	for _, c := range []struct {
		method, token, accept, body string
		code                        int
		says                        string
	}{
		{http.MethodGet, "secret", "*/*", "", http.StatusOK, "<h2>clicks</h2>"},
		{http.MethodGet, "secret", browser, "", http.StatusOK, "<h2>clicks</h2>"},
		{http.MethodPost, "secret", "*/*", form, http.StatusOK, "{&#34;predictions&#34;:[["},
		{http.MethodGet, "public", "*/*", "", http.StatusUnauthorized, `{"error":"the token is not the server's"`},
		{http.MethodPost, "public", "*/*", form, http.StatusUnauthorized, `{"error":"the token is not the server's"`},
		{http.MethodPost, "", browser, form, http.StatusUnauthorized, `{"error":"`},
		{http.MethodGet, "", "*/*", "", http.StatusUnauthorized, `{"error":"`},
	} {
		code, _, text := ask(c.method, "/", c.token, c.accept, c.body)
		if code != c.code || !strings.Contains(strings.ReplaceAll(text, " \"", "\""), c.says) {
			t.Errorf("%s with %q for %s: %d, without %s: %s", c.method, c.token, c.accept, code, c.says, text)
		}
	}
	for _, path := range []string{"/v1/models/clicks", "/elsewhere"} { // a page is at one place
		if code, _, text := ask(http.MethodGet, path, "", browser, ""); code != http.StatusUnauthorized || !strings.HasPrefix(text, "{") {
			t.Errorf("%s: %d: %s", path, code, text)
		}
	}
}
