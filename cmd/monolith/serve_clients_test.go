//go:build unix

package main_test

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/testbed/readers"
	"github.com/monolith-go/monolith/pipeline/fid"
)

// shopRow is an example of the shop's model.
type shopRow struct {
	User  string  `json:"user"`
	Item  int64   `json:"item"`
	Price float32 `json:"price"`
}

// shop is a model of two heads that was trained and exported.
type shop struct {
	dir, exports  string
	rows          []shopRow
	click, amount []float32 // what `monolith predict` says of the rows
}

const shopJob = `
version: 1
name: shop
dir: %[1]s/run
source: {text: {files: [%[1]s/train.jsonl]}}
parse:
  format: jsonl
  features: [{name: user, slot: 1}, {name: item, slot: 2}, {name: price, kind: dense}]
heads:
  - {name: click, label: click}
  - {name: amount, label: amount, loss: squared}
model: {shared_bottom: {dim: 4, hidden: [8]}}
train: {batch: 50}
`

// newShop trains and exports the model with the program's own commands.
func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{dir: t.TempDir()}
	s.exports = filepath.Join(s.dir, "shop")
	rng := rand.New(rand.NewPCG(1, 2))
	row := func(users int) shopRow {
		return shopRow{User: fmt.Sprint("ü", rng.IntN(users)), Item: rng.Int64N(30), Price: rng.Float32() * 3}
	}
	lines := func(name string, n int, line func() any) {
		var b bytes.Buffer
		for range n {
			text, err := json.Marshal(line())
			if err != nil {
				t.Fatal(err)
			}
			b.Write(append(text, '\n'))
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	lines("train.jsonl", 1000, func() any {
		return struct {
			shopRow
			Click  int     `json:"click"`
			Amount float32 `json:"amount"`
		}{row(20), rng.IntN(2), rng.Float32()}
	})
	lines("asked.jsonl", 12, func() any { // half of the users are new
		s.rows = append(s.rows, row(40))
		return s.rows[len(s.rows)-1]
	})
	job := writeJob(t, fmt.Sprintf(shopJob, s.dir))
	monolith(t, "train", job).wants(t, 0)
	monolith(t, "export", job, "--format", "native", "--dir", s.exports).wants(t, 0)
	scores := filepath.Join(s.dir, "scores")
	monolith(t, "predict", job, "--data", filepath.Join(s.dir, "asked.jsonl"), "--to", "jsonl", "--dir", scores, "--fields", "prediction_click,prediction_amount").wants(t, 0)
	files, err := filepath.Glob(filepath.Join(scores, "*.jsonl.gz"))
	if err != nil || len(files) != 1 {
		t.Fatalf("predictions are in %q, %v", files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // read only
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(z); d.More(); {
		var p struct {
			Click  float32 `json:"prediction_click"`
			Amount float32 `json:"prediction_amount"`
		}
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		s.click, s.amount = append(s.click, p.Click), append(s.amount, p.Amount)
	}
	if len(s.click) != len(s.rows) || s.click[0] == s.click[1] {
		t.Fatalf("%v are predicted of %d rows", s.click, len(s.rows))
	}
	return s
}

// server is one that answers with the shop's model, as its clients have to know it.
type server struct {
	Name, Address, CA, Cert, Key, Token string
	http                                string
	process                             *child
}

// MarshalJSON writes it for the client in Python.
func (s *server) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"name": s.Name, "address": s.Address, "ca": s.CA, "cert": s.Cert, "key": s.Key, "token": s.Token})
}

var servingAt = regexp.MustCompile(`serving at (\S+), gRPC at (\S+)\n`)

// serve starts a server.
func (s *shop) serve(t *testing.T, name string, args ...string) *server {
	t.Helper()
	out := &server{Name: name, process: start(t, "", append([]string{"serve", s.exports, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"}, args...)...)}
	at := servingAt.FindStringSubmatch(out.process.says(", gRPC at ").text())
	if at == nil {
		t.Fatalf("does not say where it listens:\n%s", out.process.text())
	}
	out.http, out.Address = at[1], at[2]
	return out
}

// servers starts one that anybody of this machine may ask, one with encryption and a token, and one that wants a certificate too.
func (s *shop) servers(t *testing.T) []*server {
	t.Helper()
	a := testbed.NewAuthority(t, s.dir, "authority")
	cert, key := a.Issue(t, "server")
	token := filepath.Join(s.dir, "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	guarded := []string{"--tls-cert", cert, "--tls-key", key, "--token-file", token}
	out := []*server{s.serve(t, "plain"), s.serve(t, "token", guarded...), s.serve(t, "certificate", append(guarded, "--tls-ca", a.File)...)}
	for _, of := range out[1:] {
		of.CA, of.Token = a.File, "secret"
	}
	out[2].Cert, out[2].Key = a.Issue(t, "client")
	return out
}

// end ends servers in order.
func end(t *testing.T, list []*server) {
	t.Helper()
	for _, s := range list {
		s.process.end(syscall.SIGTERM).wants(t, 0)
	}
}

//go:embed testdata/serving_client.py
var servingClient string

// TestServingClient asks a server with the client of TensorFlow Serving, the package tensorflow-serving-api: in all ways, without and with encryption, token and certificate. Predictions are those of `monolith
// predict`, bit for bit, and what is wrong is refused with the code and the sentence that the client shows its user.
func TestServingClient(t *testing.T) {
	t.Parallel()
	readers.Need(t)
	s := newShop(t)
	list := s.servers(t)
	fids := map[string][]int64{}
	for _, r := range s.rows {
		fids["user"] = append(fids["user"], 1<<48|int64(fid.HashString(r.User)))
		fids["item"] = append(fids["item"], 2<<48|r.Item)
	}
	pushes := s.serve(t, "pushes", "--accept-pushes")
	b, err := json.Marshal(map[string]any{"servers": list, "rows": s.rows, "fids": fids, "pushes": pushes})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(s.dir, "asked.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	type answers struct {
		Version     int64
		Predicted   map[string]map[string][][1]float32
		Classes     [][][2]any
		Values      []float32
		OfFirstUser []float32 `json:"of_first_user"`
		Both        [2]json.RawMessage
		Signatures  json.RawMessage
		Status      [][3]any
		Refused     map[string][2]string
	}
	type pushed struct {
		Predicted     []map[string][][1]float32
		Assigned, Raw map[string]int64
		Refused       [2]string
	}
	var got struct {
		Servers map[string]answers
		Pushes  pushed
	}
	if err := json.Unmarshal(readers.Run(t, servingClient, file), &got); err != nil {
		t.Fatal(err)
	}
	column := func(list []float32) (out [][1]float32) {
		for _, x := range list {
			out = append(out, [1]float32{x})
		}
		return out
	}
	same := func(of string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", of, got, want)
		}
	}
	heads := map[string][][1]float32{"click": column(s.click), "amount": column(s.amount)}
	features := map[string]any{"user": "int64 -1 -1", "item": "int64 -1 -1", "price": "float32 -1 1"}
	examples, outputs := map[string]any{"inputs": "string -1"}, map[string]any{"click": "float32 -1 1", "amount": "float32 -1 1"}
	for _, server := range list {
		a, name := got.Servers[server.Name], server.Name+": "
		for _, form := range []string{"raw", "lists", "examples", "features"} {
			same(name+form, a.Predicted[form], heads)
		}
		same(name+"output_filter", a.Predicted["filtered"], map[string][][1]float32{"amount": heads["amount"]})
		same(name+"values", a.Values, s.amount)
		if len(a.Classes) != len(s.click) || len(a.OfFirstUser) != len(s.amount) || a.OfFirstUser[0] != s.amount[0] || reflect.DeepEqual(a.OfFirstUser, s.amount) {
			t.Errorf("%s%v are classified; with a context %v", name, a.Classes, a.OfFirstUser)
		}
		for i, c := range a.Classes {
			if len(c) != 2 || c[0][0] != "0" || c[1][0] != "1" || c[0][1] != float64(1-s.click[i]) || c[1][1] != float64(s.click[i]) {
				t.Errorf("%sexample %d has the classes %v, its prediction is %v", name, i, c, s.click[i])
			}
		}
		var both [][][2]any
		var values []float32
		if err := errors.Join(json.Unmarshal(a.Both[0], &both), json.Unmarshal(a.Both[1], &values)); err != nil {
			t.Fatal(err)
		}
		same(name+"MultiInference", both, a.Classes)
		same(name+"MultiInference", values, s.amount)
		same(name+"status", a.Status, [][3]any{{float64(a.Version), "AVAILABLE", 0.0}})
		var signatures any
		if err := json.Unmarshal(a.Signatures, &signatures); err != nil {
			t.Fatal(err)
		}
		same(name+"metadata", signatures, map[string]any{
			"serving_default": []any{"tensorflow/serving/predict", features, outputs}, "features": []any{"tensorflow/serving/predict", features, outputs},
			"classify/click": []any{"tensorflow/serving/classify", examples, map[string]any{"classes": "string -1 2", "scores": "float32 -1 2"}},
			"regress/click":  []any{"tensorflow/serving/regress", examples, map[string]any{"outputs": "float32 -1 1"}},
			"regress/amount": []any{"tensorflow/serving/regress", examples, map[string]any{"outputs": "float32 -1 1"}},
		})
		refused := map[string][2]string{
			"feature":   {"INVALID_ARGUMENT", `the model has no feature "usr", did you mean "user"`},
			"rows":      {"INVALID_ARGUMENT", `feature "user" has 12 examples, and feature "item" has 1`},
			"type":      {"INVALID_ARGUMENT", `input "item" has the type`},
			"nan":       {"INVALID_ARGUMENT", `feature "price" is NaN`},
			"bytes":     {"INVALID_ARGUMENT", "example 0: "},
			"signature": {"INVALID_ARGUMENT", `the model has no signature "serving"`},
			"output":    {"INVALID_ARGUMENT", `the model has no output "clicks"; it has click, amount`},
			"model":     {"NOT_FOUND", `did you mean "shop"`},
			"version":   {"NOT_FOUND", "999"},
			"reload":    {"PERMISSION_DENIED", "--allow-reload"},
		}
		if server.CA != "" {
			refused["no token"], refused["another token"] = [2]string{"UNAUTHENTICATED", "token"}, [2]string{"UNAUTHENTICATED", "token"}
			refused["plain text"], refused["no certificate"] = [2]string{"UNAVAILABLE", ""}, [2]string{"OK", ""}
		}
		if server.Cert != "" {
			refused["no certificate"] = [2]string{"UNAVAILABLE", ""}
		}
		if len(a.Refused) != len(refused) {
			t.Errorf("%s%d ways are tried to be refused, want %d", name, len(a.Refused), len(refused))
		}
		for what, want := range refused {
			if is := a.Refused[what]; is[0] != want[0] || !strings.Contains(is[1], want[1]) {
				t.Errorf("%s%s: %v, want %v", name, what, is, want)
			}
		}
	}
	// Rows that are pushed change the predictions of their user's examples alone.
	p := got.Pushes
	if len(p.Predicted) != 3 || len(p.Assigned) < 2 || p.Raw["result"] != int64(len(p.Assigned)-1) || p.Raw["source"] != p.Assigned["source"] || p.Refused[0] != "INVALID_ARGUMENT" || !strings.Contains(p.Refused[1], "_value") {
		t.Fatalf("pushes: %+v", p)
	}
	same("before a push", p.Predicted[0], heads)
	for i, r := range s.rows {
		a, b, c := p.Predicted[0]["click"][i], p.Predicted[1]["click"][i], p.Predicted[2]["click"][i]
		if concerned := r.User == s.rows[0].User; (a != b) != concerned || (b != c) != concerned {
			t.Errorf("pushes: example %d of %s: %v, %v, %v; the row of %s was pushed", i, r.User, a, b, c, s.rows[0].User)
		}
	}
	end(t, append(list, pushes))
}

// TestCurl asks a server over HTTP and HTTPS with curl, with what docs/serve.md tells users to write.
func TestCurl(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		testbed.Require(t, "posix", "curl(1) is not installed")
	}
	s := newShop(t)
	list := s.servers(t)
	post, err := json.Marshal(map[string]any{"instances": s.rows})
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	for i := range s.rows {
		fmt.Fprintf(&want, `,{"click":[%s],"amount":[%s]}`, jsonNumber(t, s.click[i]), jsonNumber(t, s.amount[i]))
	}
	predicted := `{"predictions":[` + strings.TrimPrefix(want.String(), ",") + `]}`
	one := fmt.Sprintf(`{"user": %q, "item": %d, "price": %s}`, s.rows[0].User, s.rows[0].Item, jsonNumber(t, s.rows[0].Price))
	for _, server := range list {
		scheme := "http"
		var trust, may []string
		if server.CA != "" {
			scheme = "https"
			trust = []string{"--cacert", server.CA}
			may = append(may, "--header", "Authorization: Bearer "+server.Token)
		}
		if server.Cert != "" {
			trust = append(trust, "--cert", server.Cert, "--key", server.Key)
		}
		at := scheme + "://" + server.http
		// ask runs curl, and returns its exit code, the status, and the body.
		ask := func(url string, args ...string) (code int, status, body string) {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), "curl", append([]string{"--silent", "--max-time", "120", "--noproxy", "*", "--write-out", "\n%{http_code}", url}, args...)...)
			out, err := cmd.Output()
			if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
				t.Fatal(err)
			} else if ok {
				code = exit.ExitCode()
			}
			cut := bytes.LastIndexByte(out, '\n')
			return code, string(out[cut+1:]), strings.TrimSpace(string(out[:max(cut, 0)]))
		}
		all := slices.Concat(trust, may)
		procs := runtime.GOMAXPROCS(0)
		if procs == 2 && runtime.NumCPU() == 2 && runtime.GOOS == "linux" { // threads are pinned
			procs = 3
		}
		for _, c := range []struct{ path, body, status, says string }{
			{"/v1/models/shop:predict", string(post), "200", predicted},
			{"/v1/models/shop:predict", `{"signature_name": "features", "instances": [{"price": 1}]}`, "200", `{"predictions":[{`},
			{"/v1/models/shop:classify", `{"examples": [` + one + `]}`, "200", fmt.Sprintf(`["1",%s]`, jsonNumber(t, s.click[0]))},
			{"/v1/models/shop:regress", `{"signature_name": "regress/amount", "examples": [` + one + `]}`, "200", fmt.Sprintf(`{"results":[%s]}`, jsonNumber(t, s.amount[0]))},
			{"/v1/models/shop", "", "200", `"state":"AVAILABLE"`},
			{"/v1/models/shop/metadata", "", "200", `"method_name":"tensorflow/serving/classify"`},
			{"/metrics", "", "200", ":tensorflow:serving:request_count"},
			{"/metrics", "", "200", "monolith_build_info{"},
			{"/metrics", "", "200", fmt.Sprintf("\ngo_sched_gomaxprocs_threads %d\n", procs)},
			{"/healthz", "", "200", ""},
			{"/v1/models/shop:predict", `{"instances": [{"usr": 1}]}`, "400", `no feature \"usr\", did you mean \"user\"`},
			{"/v1/models/shop:predict", `{"instances": [`, "400", "the body is no request"},
			{"/v1/models/shopp:predict", string(post), "404", `did you mean \"shop\"`},
			{"/v1/models/shop/versions/999:predict", string(post), "404", "999"},
		} {
			args := all
			if c.body != "" {
				args = append(slices.Clip(args), "--data", c.body)
			}
			if code, status, body := ask(at+c.path, args...); code != 0 || status != c.status || !strings.Contains(body, c.says) {
				t.Errorf("%s: %s %.60s: curl ends with %d, %s: %s; want %s with %s", server.Name, c.path, c.body, code, status, body, c.status, c.says)
			}
		}
		if server.CA == "" {
			continue
		}
		const path = "/v1/models/shop"
		if code, status, body := ask(at+path, trust...); code != 0 || status != "401" || !strings.Contains(body, "token") {
			t.Errorf("%s: without a token curl ends with %d, %s: %s", server.Name, code, status, body)
		}
		if code, status, _ := ask(at+path, may...); code != 60 { // CURLE_PEER_FAILED_VERIFICATION
			t.Errorf("%s: without the authority curl ends with %d, %s", server.Name, code, status)
		}
		if code, status, body := ask("http://"+server.http+path, may...); code != 0 || status != "400" || !strings.Contains(body, "HTTPS") {
			t.Errorf("%s: without encryption curl ends with %d, %s: %s", server.Name, code, status, body)
		}
		if server.Cert != "" {
			if code, status, body := ask(at+path, append([]string{"--cacert", server.CA}, may...)...); code == 0 || body != "" {
				t.Errorf("%s: without a certificate curl ends with %d, %s: %s", server.Name, code, status, body)
			}
		}
	}
	end(t, list)
}

// jsonNumber writes a number as JSON.
func jsonNumber(t *testing.T, x float32) string {
	t.Helper()
	b, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
