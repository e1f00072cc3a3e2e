package serving

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"io"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/serving/rows"
)

//go:embed page.html
var pageText string

// pageTemplate escapes whatever it is given.
var pageTemplate = template.Must(template.New("page").Parse(pageText))

// pageData is what the page shows.
type pageData struct {
	Healthy bool
	Models  []pageModel
	Part    *native.Part  // of a row shard
	Shards  []rows.Status // of a server with row shards
	Cache   int64         // bytes of their rows
	Tried   *tried
}

// pageModel is a model.
type pageModel struct {
	Name     string
	Versions []VersionStatus
	Waiting  bool   // none of its versions serves
	Sample   string // the body of a request
}

// tried is a request that was made with the form.
type tried struct{ Model, Verb, Body, Answer, Fault string }

//go:embed token.html
var tokenPage string

// admittedPage asks the guard before the page. A browser, which has no way to send a token by itself, gets a page that asks for it and then sends it with what it loads and with the form, as a header. That page is
// the same for all, and holds nothing of the server.
func (s *Server) admittedPage(next http.HandlerFunc) http.HandlerFunc {
	_, script, _ := strings.Cut(tokenPage, "<script>")
	script, _, _ = strings.Cut(script, "</script>")
	sum := sha256.Sum256([]byte(script))
	policy := "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
	return func(w http.ResponseWriter, r *http.Request) {
		switch err := s.admits(r); {
		case err == nil:
			next(w, r)
		case status.Code(err) == codes.Unauthenticated && strings.Contains(r.Header.Get("Accept"), "text/html"):
			asPage(w, policy)
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(tokenPage)) // a client that has gone away needs no answer
		default:
			reply(w, err, nil)
		}
	}
}

// asPage says what an answer is, and what a browser may do for it.
func asPage(w http.ResponseWriter, policy string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}

// page shows what is served.
func (s *Server) page(w http.ResponseWriter, _ *http.Request) { s.writePage(w, nil) }

// tryPage shows what is served, with the answer to the form's request.
func (s *Server) tryPage(w http.ResponseWriter, r *http.Request) {
	if err := s.begin(); err != nil {
		reply(w, err, nil)
		return
	}
	defer s.ended()
	g := guest{of: &s.room}
	defer g.leave()
	r.Body = http.MaxBytesReader(w, struct {
		io.Reader
		io.Closer
	}{g.reading(r.Body), r.Body}, s.o.MaxBytes)
	if err := r.ParseForm(); status.Code(err) == codes.ResourceExhausted { // there is no room
		reply(w, err, nil)
		return
	} else if err != nil {
		reply(w, invalid("the form cannot be read: %v", err), nil)
		return
	}
	t := &tried{Model: r.PostForm.Get("model"), Verb: r.PostForm.Get("verb"), Body: r.PostForm.Get("body")}
	path, err := readPath("/v1/models/" + t.Model + ":" + t.Verb)
	if err == nil && path.verb != t.Verb {
		err = invalid("a model can predict, classify and regress, not %q", t.Verb)
	}
	var answer []byte
	if err == nil {
		answer, err = s.answerJSON(r.Context(), []byte(t.Body), path)
	}
	if t.Answer = string(answer); err != nil {
		t.Fault = status.Convert(err).Message()
	}
	s.writePage(w, t)
}

// writePage writes the page. Browsers are told to load nothing for it and to run nothing in it.
func (s *Server) writePage(w http.ResponseWriter, t *tried) {
	data := pageData{Healthy: s.ready() == nil, Part: s.models.o.Part, Tried: t}
	if from := s.models.o.Rows; from != nil {
		data.Shards, data.Cache = from.Status(), from.CacheBytes()
	}
	for _, name := range s.models.Names() {
		versions, err := s.models.Status(name, Which{})
		if err != nil {
			continue // it has gone meanwhile
		}
		m := pageModel{Name: name, Versions: versions, Waiting: true}
		if v, _, done, err := s.models.Use(name, Which{}); err == nil {
			m.Waiting, m.Sample = false, v.sample()
			done()
		}
		if t != nil && t.Model == name {
			m.Sample = t.Body
		}
		data.Models = append(data.Models, m)
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, data); err != nil {
		reply(w, err, nil)
		return
	}
	asPage(w, "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	_, _ = w.Write(b.Bytes()) // a client that has gone away needs no answer
}

// sample is a request to begin with: one example with a value for each feature.
func (v *Version) sample() string {
	row, request := map[string]any{}, map[string]any{}
	sig := v.signatures()[0]
	if sig.name != SignatureDefault {
		request["signature_name"] = sig.name
	}
	for _, in := range sig.inputs {
		var value any
		switch in.dtype {
		case dtString:
			value = ""
		case dtFloat:
			value = 0.0
		default:
			value = 1
		}
		if n := in.shape[len(in.shape)-1]; n > 1 {
			list := make([]any, n)
			for i := range list {
				list[i] = value
			}
			value = list
		}
		row[in.name] = value
	}
	request["instances"] = []any{row}
	b, err := json.MarshalIndent(request, "", "  ")
	if err != nil {
		return ""
	}
	return string(b)
}
