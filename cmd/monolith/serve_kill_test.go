//go:build unix

package main_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
)

// served asks a process that serves models over HTTP.
type served struct {
	t    *testing.T
	addr string
}

// ask returns an answer, or that there is none.
func (s served) ask(method, path, body string) (code int, answer string, err error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+"/v1/models/"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = a.Body.Close() }()
	b, err := io.ReadAll(a.Body)
	return a.StatusCode, string(b), err
}

// awaits waits until a model is served, and, where it says how old it is, serves all that was applied before since.
func (s served) awaits(model string, since time.Time) {
	s.t.Helper()
	var said string
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		asked := time.Now()
		_, body, err := s.ask(http.MethodGet, model, "")
		var status struct {
			Versions []struct {
				State     string   `json:"state"`
				Freshness *float64 `json:"freshness_seconds"`
			} `json:"model_version_status"`
		}
		if err == nil && json.Unmarshal([]byte(body), &status) == nil {
			for _, v := range status.Versions {
				if v.State == "AVAILABLE" && (v.Freshness == nil || asked.Add(-time.Duration(*v.Freshness*float64(time.Second))).After(since)) {
					return
				}
			}
		}
		said = fmt.Sprint(body, err)
		if time.Now().After(deadline) {
			s.t.Fatalf("model %s is not served, or not what was applied before %v: %s", model, since, said)
		}
	}
}

// predict asks about examples as the stream has them.
func (s served) predict(model string, records [][]byte) string {
	s.t.Helper()
	var list []string
	for _, r := range records {
		list = append(list, fmt.Sprintf(`{"b64": %q}`, base64.StdEncoding.EncodeToString(r)))
	}
	code, body, err := s.ask(http.MethodPost, model+":predict", `{"instances": [`+strings.Join(list, ",")+`]}`)
	if err != nil || code != http.StatusOK {
		s.t.Fatalf("%s: %d, %v: %s", model, code, err, body)
	}
	return body
}

// TestServedJobUnderKills trains on a stream and kills shards, worker and the process that serves the job while it is trained, each of which is alive and has a part of the stream
// before it. In the end the job's predictions are those of its last snapshot, bit for bit: once with shards that come back with their logs, once with a standby for one of them, which is
// killed after it was put in charge, and with certificates and a token.
func TestServedJobUnderKills(t *testing.T) {
	t.Parallel()
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	const examples = 7000
	records := killRecords(t)[:examples]
	for _, standby := range []bool{false, true} {
		t.Run(fmt.Sprintf("standby=%v", standby), func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed of the kills: %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			b := keptBroker(t)
			text := fmt.Sprintf(clusterJob, strings.Join(b.Addrs(), ","), examples/killPartitions, "wal", "rollback")
			second := testbed.FreeAddr(t)
			if standby {
				text = strings.Replace(text, "lease: 3s}", fmt.Sprintf("lease: 3s, standby: {addresses: [\"\", %q], lease: 500ms}, %s}", second, admitted(t)), 1)
			}
			p := startShards(t, path, text, 2)
			if standby {
				p.launch("standby", "ps", p.job, "--shard", "1", "--standby", "-v")
			}
			live := served{t, testbed.FreeAddr(t)}
			worker := p.launch("worker", "train", p.job, "--worker", "w")
			p.launch("replica", "serve", "live="+p.job, "--http", live.addr, "--grpc", "", "--every", "20ms", "--poll", "100ms")
			victims := []string{shardName(0), shardName(1), "worker", "worker", "replica", "replica"}
			if standby {
				victims[1] = "standby"
			}
			rng.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
			part := examples / (len(victims) + 1)
			for i, victim := range victims {
				began := time.Now()
				fill(t, b.Addrs()[0], records, i*part, (i+1)*part)
				if victim == "replica" { // it follows
					live.awaits("live", began)
				}
				time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
				if victim == "standby" { // it dies in charge
					for deadline := time.Now().Add(3 * time.Minute); monolith(t, "ps", "promote", p.job, "--shard", "1").code != 0; {
						if time.Now().After(deadline) {
							p.dump()
							t.Fatal("the standby does not catch up")
						}
					}
					p.await(p.procs[victim], "the standby is in charge from now on")
				}
				p.procs[victim].kill(t)
			}
			fill(t, b.Addrs()[0], records, len(victims)*part, examples)
			p.wait(worker)
			live.awaits("live", time.Now())
			got := live.predict("live", records[:1000])

			exports := filepath.Join(t.TempDir(), "exports")
			monolith(t, "export", p.dir, "--format", "native", "--dir", exports).wants(t, 0)
			last := served{t, testbed.FreeAddr(t)}
			p.launch("last", "serve", "last="+exports, "--http", last.addr, "--grpc", "")
			last.awaits("last", time.Time{})
			if want := last.predict("last", records[:1000]); got != want {
				p.dump()
				t.Errorf("what is served of the job is not what its last snapshot says:\n%.500s\nwant\n%.500s", got, want)
			}
			var different struct{ Predictions [][]float64 }
			if err := json.Unmarshal([]byte(got), &different); err != nil {
				t.Fatal(err)
			}
			seen := map[float64]bool{}
			for _, p := range different.Predictions {
				seen[p[0]] = true
			}
			if len(seen) < 500 { // of a model that has learned nothing they would be few
				t.Errorf("%d different predictions of %d", len(seen), len(different.Predictions))
			}
			for _, victim := range victims {
				if p.procs[victim].kills == 0 {
					t.Errorf("%s was not killed", victim)
				}
			}
		})
	}
}

// admitted writes certificates and a token, and returns what of a job's section ps names them.
func admitted(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ca, key := issue(t, dir, "ca", "", nil, nil)
	issue(t, dir, "node", "127.0.0.1", ca, key)
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("a token of the test"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("tls: {cert: %[1]s/node.pem, key: %[1]s/node.key, ca: %[1]s/ca.pem}, token: {file: %[1]s/token}", dir)
}
