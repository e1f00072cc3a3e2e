package serving_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

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
