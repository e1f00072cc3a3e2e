package serving

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/nearest"
)

// Handler is the HTTP interface of TensorFlow Serving:
//
//	POST /v1/models/NAME[/versions/N|/labels/L]:predict, :classify, :regress
//	GET  /v1/models/NAME[/versions/N|/labels/L]           which versions there are
//	GET  /v1/models/NAME[/versions/N|/labels/L]/metadata  signatures
//	GET  /                                                a page for people: what is served, and a form to ask it; where a token is wanted it asks for that first
//	GET  /healthz                                         200 as long as each model has a version that serves, until Drain
//
// A body may be compressed (Content-Encoding: gzip). metrics, if not nil, is served under /metrics and /monitoring/prometheus/metrics. Errors are {"error": "..."} with a status of HTTP.
func (s *Server) Handler(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/models", s.admitted(s.ofModels))
	mux.HandleFunc("/v1/models/", s.admitted(s.ofModels))
	mux.HandleFunc("/", s.admitted(func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, fmt.Sprintf("%s %q: there is nothing; models are at /v1/models/NAME", r.Method, r.URL.Path))
	}))
	mux.HandleFunc("GET /{$}", s.admittedPage(s.page))
	mux.Handle("POST /{$}", http.NewCrossOriginProtection().Handler(s.admitted(s.tryPage)))
	if metrics != nil {
		mux.Handle("GET /metrics", s.admitted(metrics.ServeHTTP))
		mux.Handle("GET /monitoring/prometheus/metrics", s.admitted(metrics.ServeHTTP))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.ready(); err != nil {
			reply(w, err, nil)
			return
		}
		_, _ = io.WriteString(w, "ok\n") // a client that has gone away needs no answer
	})
	return mux
}

// HTTP makes a server of Handler that a client cannot hold up: its request has to come within [Options].Timeout, and its answer to be read within as long again. The caller serves and stops
// it, after Drain.
func (s *Server) HTTP(metrics http.Handler) *http.Server {
	return &http.Server{
		Handler: s.Handler(metrics), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, ReadTimeout: s.o.Timeout, WriteTimeout: 2 * s.o.Timeout,
		ErrorLog: slog.NewLogLogger(complaints{s.o.Logger.Handler()}, slog.LevelDebug),
	}
}

// complaints are what net/http has to say: that nobody can be accepted, as where no more files may be open, is a warning, a panic an error, and what single clients do wrong is for who looks for it.
type complaints struct{ slog.Handler }

// Enabled implements [slog.Handler]: what matters is known by the text.
func (complaints) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (c complaints) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case strings.HasPrefix(r.Message, "http: Accept error"):
		r.Level = slog.LevelWarn
		if strings.Contains(r.Message, syscall.EMFILE.Error()) {
			r.Message += "; new connections wait until others end: raise the limit of open files (ulimit -n), or have fewer clients"
		}
	case strings.HasPrefix(r.Message, "http: panic serving"):
		r.Level = slog.LevelError
	}
	if !c.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return c.Handler.Handle(ctx, r)
}

// admitted asks the guard before a handler.
func (s *Server) admitted(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.admits(r); err != nil {
			reply(w, err, nil)
			return
		}
		next(w, r)
	}
}

// admits decides whether the caller of a request may ask.
func (s *Server) admits(r *http.Request) error {
	if s.o.Guard == nil {
		return nil
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	var cert *x509.Certificate
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		cert = r.TLS.VerifiedChains[0][0]
	}
	return s.admit(s.o.Guard.Admit(token, cert))
}

// httpCode is the status of HTTP for a code of gRPC.
func httpCode(c codes.Code) int {
	switch c {
	case codes.OK:
		return http.StatusOK
	case codes.InvalidArgument, codes.FailedPrecondition:
		return http.StatusBadRequest
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.NotFound:
		return http.StatusNotFound
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unimplemented:
		return http.StatusNotImplemented
	case codes.Unavailable, codes.Canceled:
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// reply writes a body of JSON, or an error.
func reply(w http.ResponseWriter, err error, body []byte) {
	code := httpCode(status.Code(err))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		code = http.StatusRequestEntityTooLarge
	}
	if err != nil {
		text := err.Error()
		if st, ok := status.FromError(err); ok {
			text = st.Message()
		}
		fail(w, code, text)
		return
	}
	write(w, code, body)
}

// fail writes an error.
func fail(w http.ResponseWriter, code int, text string) {
	body, _ := json.Marshal(map[string]string{"error": text}) // a text is always written
	write(w, code, body)
}

func write(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // a client that has gone away needs no answer
}

// target is what the path of a request names.
type target struct {
	model, verb string // verb is "" for the status
	which       Which
}

// readPath takes a path below /v1/models/ apart.
func readPath(path string) (t target, err error) {
	path = strings.TrimPrefix(strings.TrimPrefix(path, "/v1/models"), "/")
	if at := strings.LastIndexByte(path, ':'); at >= 0 {
		path, t.verb = path[:at], path[at+1:]
		if t.verb != "predict" && t.verb != "classify" && t.verb != "regress" {
			return t, refuse(codes.NotFound, "a model can :predict, :classify and :regress, not :%s", t.verb)
		}
	} else if rest, ok := strings.CutSuffix(path, "/metadata"); ok {
		path, t.verb = rest, "metadata"
	}
	parts := strings.Split(path, "/")
	t.model = parts[0]
	switch {
	case len(parts) == 1:
	case len(parts) == 3 && parts[1] == "versions":
		n, err := parseVersion(parts[2])
		if err != nil {
			return t, err
		}
		t.which.Number = &n
	case len(parts) == 3 && parts[1] == "labels" && parts[2] != "":
		t.which.Label = parts[2]
	default:
		return t, refuse(codes.NotFound, "%q is no path of a model: /v1/models/NAME[/versions/N][:predict|:classify|:regress|/metadata]", path)
	}
	return t, nil
}

// ofModels answers what is below /v1/models/.
func (s *Server) ofModels(w http.ResponseWriter, r *http.Request) {
	t, err := readPath(r.URL.Path)
	if err == nil && t.model == "" {
		err = refuse(codes.NotFound, "the path names no model: /v1/models/NAME%s", nearest.Suggest("", s.models.Names()))
	}
	if err != nil {
		reply(w, err, nil)
		return
	}
	asks := t.verb == "" || t.verb == "metadata"
	if method := map[bool]string{true: http.MethodGet, false: http.MethodPost}[asks]; r.Method != method {
		w.Header().Set("Allow", method)
		fail(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s is asked by %s, not %s", r.URL.Path, method, r.Method))
		return
	}
	var body []byte
	switch t.verb {
	case "":
		body, err = s.statusJSON(t)
	case "metadata":
		body, err = s.metadataJSON(t)
	default:
		body, err = s.predictJSON(w, r, t)
	}
	reply(w, err, body)
}

func (s *Server) statusJSON(t target) ([]byte, error) {
	list, err := s.models.Status(t.model, t.which)
	if err != nil {
		return nil, err
	}
	type state struct {
		Code    string `json:"error_code"`
		Message string `json:"error_message"`
	}
	type version struct {
		Version string `json:"version"`
		State   string `json:"state"`
		Status  state  `json:"status"`
		// Freshness is how old the parameters are, of a model whose parameters change.
		Freshness *float64 `json:"freshness_seconds,omitempty"`
	}
	out := struct {
		Versions []version `json:"model_version_status"`
	}{[]version{}}
	for _, v := range list {
		st := state{Code: "OK"}
		if v.Err != nil {
			st = state{"UNKNOWN", v.Err.Error()}
		}
		of := version{Version: strconv.FormatInt(v.Version, 10), State: v.State.String(), Status: st}
		if !v.AsOf.IsZero() {
			age := time.Since(v.AsOf).Seconds()
			of.Freshness = &age
		}
		out.Versions = append(out.Versions, of)
	}
	return json.Marshal(out)
}

// dtypeNames are the types of tensors that signatures have.
var dtypeNames = map[int]string{dtFloat: "DT_FLOAT", dtString: "DT_STRING", dtInt64: "DT_INT64"}

func (s *Server) metadataJSON(t target) ([]byte, error) {
	v, number, done, err := s.models.Use(t.model, t.which)
	if err != nil {
		return nil, err
	}
	defer done()
	infos := func(list []tensorInfo) map[string]any {
		out := map[string]any{}
		for _, i := range list {
			dims := []map[string]string{}
			for _, d := range i.shape {
				dims = append(dims, map[string]string{"size": strconv.FormatInt(d, 10), "name": ""})
			}
			out[i.name] = map[string]any{"dtype": dtypeNames[i.dtype], "name": i.name, "tensor_shape": map[string]any{"dim": dims, "unknown_rank": false}}
		}
		return out
	}
	defs := map[string]any{}
	for _, sig := range v.signatures() {
		defs[sig.name] = map[string]any{"method_name": sig.method, "inputs": infos(sig.inputs), "outputs": infos(sig.outputs)}
	}
	return json.Marshal(map[string]any{
		"model_spec": map[string]string{"name": t.model, "signature_name": "", "version": strconv.FormatInt(number, 10)},
		"metadata":   map[string]any{"signature_def": map[string]any{"signature_def": defs}},
	})
}

// question is the body of a request for predictions.
type question struct {
	Signature string                     `json:"signature_name"`
	Instances []json.RawMessage          `json:"instances"`
	Inputs    json.RawMessage            `json:"inputs"`
	Context   map[string]json.RawMessage `json:"context"`
	Examples  []json.RawMessage          `json:"examples"`
}

// readQuestion reads a body and refuses what is not one of its verb.
func readQuestion(body []byte, verb string) (*question, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	var q question
	if err := d.Decode(&q); err != nil {
		if bad, ok := errors.AsType[*json.SyntaxError](err); ok && notNumber(body, int(bad.Offset)) {
			return nil, invalid("the body is no request: it has NaN or an infinity, which no feature may be; what is missing is null")
		}
		return nil, noQuestion(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("there is something behind the object of the request")
	}
	switch {
	case verb == "predict" && (q.Instances == nil) == (q.Inputs == nil):
		return nil, invalid(`the request needs "instances", a list with an object an example, or "inputs", an object with a list a feature, and not both`)
	case verb == "predict" && (q.Examples != nil || q.Context != nil):
		return nil, invalid(`"examples" and "context" are for :classify and :regress; :predict takes "instances" or "inputs"`)
	case verb != "predict" && (q.Examples == nil || q.Instances != nil || q.Inputs != nil):
		return nil, invalid(`the request needs "examples", a list with an object an example, and nothing else but "context" and "signature_name"`)
	}
	return &q, nil
}

// notNumber reports whether what is no JSON, with the byte before that at an offset, is NaN, Inf or Infinity, which TensorFlow Serving reads.
func notNumber(body []byte, offset int) bool {
	at := body[max(0, min(offset-1, len(body))):]
	return bytes.HasPrefix(at, []byte("NaN")) || bytes.HasPrefix(at, []byte("Inf"))
}

// fieldsOf are those of a question, and what each is.
var fieldsOf = map[string]string{
	"signature_name": "the name of a signature", "instances": "a list with an object an example", "inputs": "an object with a list a feature", "context": "an object with values of features",
	"examples": "a list with an object an example",
}

// noQuestion says what is wrong with a body that is no request.
func noQuestion(err error) error {
	if bad, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if bad.Field == "" {
			return invalid("the body is no request: it is %s %s, not an object such as %s", article(bad.Value), bad.Value, `{"instances": [{"FEATURE": 1}]}`)
		}
		return invalid("the body is no request: %q is %s %s, not %s", bad.Field, article(bad.Value), bad.Value, fieldsOf[bad.Field])
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if text, bad := strconv.Unquote(name); bad == nil {
			name = text
		}
		return invalid("the body is no request: it has no field %q%s", name, nearest.Suggest(name, slices.Sorted(maps.Keys(fieldsOf))))
	}
	if errors.Is(err, io.EOF) {
		return invalid("the body is no request: it is empty")
	}
	return invalid("the body is no request: %v", err)
}

func article(noun string) string {
	if noun != "" && strings.ContainsRune("aeio", rune(noun[0])) {
		return "an"
	}
	return "a"
}

// predictJSON answers :predict, :classify and :regress.
func (s *Server) predictJSON(w http.ResponseWriter, r *http.Request, t target) ([]byte, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.ended()
	_, _, done, err := s.models.Use(t.model, t.which) // before the body, which may be long
	if err != nil {
		return nil, err
	}
	done()
	g := guest{of: &s.room}
	defer g.leave()
	raw, err := s.readBody(w, r, &g)
	if err != nil {
		return nil, err
	}
	return s.answerJSON(r.Context(), raw, t)
}

// readBody reads a body into the room of its request, with what it was compressed by undone.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, g *guest) ([]byte, error) {
	tooLarge := &http.MaxBytesError{Limit: s.o.MaxBytes}
	large := func() error {
		return fmt.Errorf("the request has more than %d bytes, which is the most; send several requests: %w", s.o.MaxBytes, tooLarge)
	}
	if r.ContentLength > s.o.MaxBytes { // nothing of it is read
		return nil, large()
	}
	body := http.MaxBytesReader(w, r.Body, s.o.MaxBytes)
	var raw []byte
	var err error
	switch by := strings.ToLower(r.Header.Get("Content-Encoding")); by {
	case "", "identity":
		// Who says how much it will be is refused before it is read: of many that are too many together some are answered.
		if r.ContentLength < 0 {
			raw, err = io.ReadAll(g.reading(body))
		} else if err = g.take(r.ContentLength); err == nil {
			raw, err = io.ReadAll(body)
		}
	case "gzip", "x-gzip":
		var z *gzip.Reader
		if z, err = gzip.NewReader(body); err == nil {
			raw, err = io.ReadAll(g.reading(io.LimitReader(z, s.o.MaxBytes+1))) // a few bytes may stand for many
		}
		if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return nil, invalid("the body is not gzip, as its Content-Encoding says, or not all of it: %v", err)
		}
	default:
		return nil, invalid("the body is compressed by %q; gzip is read, or what is not compressed", by)
	}
	switch {
	case errors.As(err, &tooLarge), int64(len(raw)) > s.o.MaxBytes:
		return nil, large()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, status.Errorf(codes.DeadlineExceeded, "the body has not come within %v, of which %d bytes have; send it at once", s.o.Timeout, len(raw))
	case status.Code(err) == codes.ResourceExhausted: // there is no room
		return nil, err
	case err != nil:
		return nil, invalid("the body cannot be read: %v", err)
	}
	return raw, nil
}

// answerJSON answers a body.
func (s *Server) answerJSON(ctx context.Context, raw []byte, t target) (body []byte, err error) {
	q, err := readQuestion(raw, t.verb)
	if err != nil {
		return nil, err
	}
	entry := map[string]string{"predict": "Predict", "classify": "Classify", "regress": "Regress"}[t.verb]
	err = s.do(ctx, call{model: t.model, which: t.which, api: entry, entry: entryREST, input: func(v *Version, l limits) (*Input, error) {
		if t.verb == "predict" {
			return v.readInstances(q, l)
		}
		if _, err := v.headOf(t.verb, q.Signature); err != nil {
			return nil, err
		}
		return v.readExamples(q, l)
	}}, func(v *Version, a *answer) error {
		switch t.verb {
		case "predict":
			body = v.writePredictions(a, q.Instances != nil)
			return nil
		}
		head, err := v.headOf(t.verb, q.Signature)
		if err != nil {
			return err
		}
		if t.verb == "classify" {
			body = writeClasses(v.scores(a, head), v.classes[head])
		} else {
			body = append(appendNumbers([]byte(`{"results":`), a.heads[head]), '}')
		}
		return nil
	})
	return body, err
}

// readInstances makes the examples of a request to predict.
func (v *Version) readInstances(q *question, l limits) (*Input, error) {
	form, err := v.predictForm(q.Signature)
	if err != nil {
		return nil, err
	}
	if form == FormFeatures && q.Inputs != nil {
		return v.readFeatureLists(q.Inputs, l)
	}
	rows, err := q.rows(l)
	if err != nil {
		return nil, err
	}
	if form == FormFeatures {
		return v.readFeatures(rows)
	}
	if len(rows) == 0 {
		return v.jsonRows(rows, l)
	}
	name := v.recordInput(form, func(name string) bool { return rows[0][name] != nil }, len(rows[0]))
	if name == "" {
		return v.jsonRows(rows, l)
	}
	var list [][]byte
	for i, row := range rows {
		if len(row) != 1 || row[name] == nil {
			return nil, invalid("example %d: has not only %q, as the first one has", i, name)
		}
		b, ok := decodeB64(row[name])
		if !ok {
			return nil, invalid(`example %d: %q is not {"b64": "..."} of a serialized %s`, i, name, messageOf(name))
		}
		list = append(list, b)
	}
	return v.readRecords(name, list, l)
}

// rows are the examples of a request, with the values of features by name.
func (q *question) rows(l limits) ([]map[string]json.RawMessage, error) {
	if q.Inputs == nil {
		out, err := objects(q.Instances, l)
		if err != nil {
			return nil, err
		}
		for i, raw := range q.Instances {
			if _, ok := out[i]["b64"]; ok && len(out[i]) == 1 { // the one input of a signature may stand alone
				out[i] = map[string]json.RawMessage{InputExamples: raw}
			}
		}
		return out, nil
	}
	var columns map[string][]json.RawMessage
	var alone []json.RawMessage
	switch _, one := decodeB64(q.Inputs); {
	case one:
		columns = map[string][]json.RawMessage{InputExamples: {q.Inputs}}
	case json.Unmarshal(q.Inputs, &alone) == nil && alone != nil:
		columns = map[string][]json.RawMessage{InputExamples: alone}
	case json.Unmarshal(q.Inputs, &columns) != nil || len(columns) == 0:
		return nil, errNoLists()
	}
	names := slices.Sorted(maps.Keys(columns))
	if err := l.count(len(columns[names[0]])); err != nil {
		return nil, err
	}
	out := make([]map[string]json.RawMessage, len(columns[names[0]]))
	for i := range out {
		out[i] = make(map[string]json.RawMessage, len(names))
	}
	for _, name := range names {
		if n := len(columns[name]); n != len(out) {
			return nil, invalid("feature %q has %d examples, and feature %q has %d", name, n, names[0], len(out))
		}
		for i, value := range columns[name] {
			out[i][name] = value
		}
	}
	return out, nil
}

func errNoLists() error {
	return invalid(`"inputs" is no object with a list of values, one an example, for each feature, and no list of {"b64": "..."} of serialized tf.Examples`)
}

// readFeatureLists makes columns of "inputs" that has what parsing makes: for each feature a list with a number or a list of numbers an example.
func (v *Version) readFeatureLists(inputs json.RawMessage, l limits) (*Input, error) {
	var lists map[string]json.RawMessage
	if err := json.Unmarshal(inputs, &lists); err != nil || len(lists) == 0 {
		return nil, errNoLists()
	}
	in := &Input{Form: FormFeatures, Columns: map[string]*Column{}}
	names := slices.Sorted(maps.Keys(lists))
	for i, name := range names {
		if err := known(name, v.in.names); err != nil {
			return nil, err
		}
		c := &Column{Type: v.in.types[name], Offsets: []int32{0}}
		if err := c.readLists(name, lists[name], l.examples); err != nil {
			return nil, err
		}
		rows := len(c.Offsets) - 1
		if i > 0 && rows != in.Rows {
			return nil, invalid("feature %q has %d examples, and feature %q has %d", name, rows, names[0], in.Rows)
		}
		in.Rows, in.Columns[name] = rows, c
	}
	return in, nil
}

// readLists reads a list of JSON, which is sound, with an element an example: a number, a list of numbers, or null for none.
func (c *Column) readLists(name string, b []byte, most int) error {
	b = bytes.TrimLeft(b, jsonSpace)
	if len(b) == 0 || b[0] != '[' {
		return errNoLists()
	}
	deep := false // in the list of an example
	for b = bytes.TrimLeft(b[1:], jsonSpace); len(b) > 0; b = bytes.TrimLeft(b, jsonSpace) {
		row := len(c.Offsets) - 1
		switch {
		case b[0] == ',':
			b = b[1:]
			continue
		case b[0] == ']' && !deep:
			return nil
		case b[0] == ']':
			deep, b = false, b[1:]
		case b[0] == '[' && !deep:
			deep, b = true, b[1:]
			continue
		default:
			end := bytes.IndexAny(b, ",]"+jsonSpace)
			if end < 0 {
				return errNoLists()
			}
			if err := c.readNumber(b[:end]); err != nil {
				return invalid("example %d: feature %q is not made of %s: %v", row, name, c.Type, err)
			}
			if b = b[end:]; deep {
				continue
			}
		}
		if row >= most {
			return (limits{examples: most}).count(row + 1)
		}
		if c.len() > math.MaxInt32 {
			return invalid("feature %q has more than %d values", name, math.MaxInt32)
		}
		c.Offsets = append(c.Offsets, int32(c.len()))
	}
	return errNoLists()
}

// jsonSpace may lie between the tokens of JSON.
const jsonSpace = " \t\r\n"

// readNumber adds a number, or nothing for null.
func (c *Column) readNumber(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if c.Type == Ints {
		x, err := strconv.ParseInt(string(b), 10, 64)
		c.Ints = append(c.Ints, x)
		return err
	}
	x, err := strconv.ParseFloat(string(b), 32)
	c.Floats = append(c.Floats, float32(x))
	return err
}

// objects reads a list of objects, one an example.
func objects(list []json.RawMessage, l limits) ([]map[string]json.RawMessage, error) {
	if err := l.count(len(list)); err != nil {
		return nil, err
	}
	out := make([]map[string]json.RawMessage, len(list))
	for i, raw := range list {
		if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &out[i]) != nil {
			return nil, invalid("example %d is no object with the values of features by their names: %.40s", i, raw)
		}
	}
	return out, nil
}

// readExamples makes the examples of a request to classify or regress. What the context has counts where an example has it not.
func (v *Version) readExamples(q *question, l limits) (*Input, error) {
	rows, err := objects(q.Examples, l)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		for name, value := range q.Context {
			if _, ok := row[name]; !ok {
				row[name] = value
			}
		}
	}
	return v.jsonRows(rows, l)
}

// jsonRows writes rows as records of JSON.
func (v *Version) jsonRows(rows []map[string]json.RawMessage, l limits) (*Input, error) {
	in := &Input{Form: FormJSON, Records: make([][]byte, len(rows))}
	for i, row := range rows {
		b := []byte{'{'}
		for name, value := range row {
			if err := v.jsonName(i, name, value); err != nil {
				return nil, err
			}
			if len(b) > 1 {
				b = append(b, ',')
			}
			b = append(appendText(b, []byte(name)), ':')
			b = appendValue(b, value)
		}
		if err := l.spend(len(b)); err != nil {
			return nil, err
		}
		in.Records[i] = append(b, '}')
	}
	return in, nil
}

// jsonName refuses what is no feature of example i.
func (v *Version) jsonName(i int, name string, value json.RawMessage) error {
	err := knownOf(i, name, v.in.raw)
	if _, ok := decodeB64(value); err != nil && ok && name == InputExamples {
		return invalid(`example %d: {"b64": ...} is a serialized tf.Example, and the first example is not one; send one kind in a request`, i)
	}
	return err
}

// appendValue appends a value, with text in place of {"b64": "..."}.
func appendValue(b []byte, value json.RawMessage) []byte {
	if text, ok := decodeB64(value); ok {
		return appendText(b, text)
	}
	var list []json.RawMessage
	if bytes.IndexByte(value, '{') < 0 || json.Unmarshal(value, &list) != nil {
		return append(b, value...)
	}
	b = append(b, '[')
	for i, one := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if text, ok := decodeB64(one); ok {
			b = appendText(b, text)
		} else {
			b = append(b, one...)
		}
	}
	return append(b, ']')
}

// decodeB64 reads {"b64": "..."}.
func decodeB64(value json.RawMessage) ([]byte, bool) {
	var object map[string]string
	if len(value) == 0 || value[0] != '{' || json.Unmarshal(value, &object) != nil || len(object) != 1 {
		return nil, false
	}
	text, ok := object["b64"]
	b, err := base64.StdEncoding.DecodeString(text)
	return b, ok && err == nil
}

// appendText appends text in quotes. Bytes that are no UTF-8 stay as they are, as the reader of records takes them.
func appendText(b, text []byte) []byte {
	b = append(b, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// readFeatures makes columns of rows that have what parsing makes: a number or a list of them for each feature.
func (v *Version) readFeatures(rows []map[string]json.RawMessage) (*Input, error) {
	in := &Input{Form: FormFeatures, Columns: map[string]*Column{}, Rows: len(rows)}
	for i, row := range rows {
		for name := range row {
			if err := knownOf(i, name, v.in.names); err != nil {
				return nil, err
			}
			if in.Columns[name] == nil {
				in.Columns[name] = &Column{Type: v.in.types[name], Offsets: make([]int32, i+1, len(rows)+1)}
			}
		}
		for name, c := range in.Columns {
			value, ok := row[name]
			if ok && len(value) > 0 && value[0] != '[' && string(value) != "null" {
				value = slices.Concat([]byte{'['}, value, []byte{']'})
			}
			if !ok {
				value = json.RawMessage("[]")
			}
			var err error
			if c.Type == Ints {
				var ids []int64
				err = json.Unmarshal(value, &ids)
				c.Ints = append(c.Ints, ids...)
			} else {
				var xs []float32
				err = json.Unmarshal(value, &xs)
				c.Floats = append(c.Floats, xs...)
			}
			if err != nil {
				return nil, invalid("example %d: feature %q is not made of %s: %v", i, name, c.Type, err)
			}
			if c.len() > math.MaxInt32 {
				return nil, invalid("feature %q has more than %d values", name, math.MaxInt32)
			}
			c.Offsets = append(c.Offsets, int32(c.len()))
		}
	}
	return in, nil
}

// writePredictions writes the answer to :predict, by rows or by columns.
func (v *Version) writePredictions(a *answer, byRow bool) []byte {
	one := len(v.heads) == 1
	if !byRow {
		b := []byte(`{"outputs":`)
		if !one {
			b = append(b, '{')
		}
		for i, h := range v.heads {
			if i > 0 {
				b = append(b, ',')
			}
			if !one {
				b = append(appendText(b, []byte(h.Name)), ':')
			}
			b = append(b, '[')
			for r := range a.rows {
				if r > 0 {
					b = append(b, ',')
				}
				b = appendNumbers(b, a.heads[i][r*h.Width:][:h.Width])
			}
			b = append(b, ']')
		}
		if !one {
			b = append(b, '}')
		}
		return append(b, '}')
	}
	b := []byte(`{"predictions":[`)
	for r := range a.rows {
		if r > 0 {
			b = append(b, ',')
		}
		if !one {
			b = append(b, '{')
		}
		for i, h := range v.heads {
			if i > 0 {
				b = append(b, ',')
			}
			if !one {
				b = append(appendText(b, []byte(h.Name)), ':')
			}
			b = appendNumbers(b, a.heads[i][r*h.Width:][:h.Width])
		}
		if !one {
			b = append(b, '}')
		}
	}
	return append(b, "]}"...)
}

// writeClasses writes the answer to :classify, of each example its classes with their scores.
func writeClasses(scores []float32, classes []string) []byte {
	b := []byte(`{"results":[`)
	for at := 0; at < len(scores); at += len(classes) {
		if at > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		for i, class := range classes {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendText(append(b, '['), []byte(class)), ',')
			b = append(appendNumber(b, scores[at+i]), ']')
		}
		b = append(b, ']')
	}
	return append(b, "]}"...)
}

func appendNumbers(b []byte, values []float32) []byte {
	b = append(b, '[')
	for i, x := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendNumber(b, x)
	}
	return append(b, ']')
}

// appendNumber writes a number that reads back as itself; what is none is written as TensorFlow Serving does, NaN or Infinity.
func appendNumber(b []byte, x float32) []byte {
	switch y := float64(x); {
	case math.IsNaN(y):
		return append(b, "NaN"...)
	case math.IsInf(y, 0):
		if y < 0 {
			b = append(b, '-')
		}
		return append(b, "Infinity"...)
	}
	return strconv.AppendFloat(b, float64(x), 'g', -1, 32)
}
