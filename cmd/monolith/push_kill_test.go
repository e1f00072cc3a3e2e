//go:build unix

package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
)

// TestKilledPushes edits rows of running shards, has them pushed to a server of an export, and kills who pushes and the server, each of which is alive, at random moments, also while all rows are pushed. Whenever the
// server has died it comes to predict what an export of the shards as they are then says, bit for bit.
func TestKilledPushes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes half a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed of the kills: %d", seed)
	rng := rand.New(rand.NewPCG(seed, 11))
	const examples = 8000
	records := killRecords(t)[:examples]
	b := keptBroker(t)
	p := startShards(t, path, fmt.Sprintf(clusterJob, strings.Join(b.Addrs(), ","), examples/killPartitions, "wal", "rollback"), 2)
	fill(t, b.Addrs()[0], records, 0, examples)
	monolith(t, "train", p.job).wants(t, 0)

	// The rows, in pieces that are edited one after the other.
	type row struct {
		Table   string    `json:"table,omitempty"`
		ID      int64     `json:"id"`
		Weights []float32 `json:"weights,omitempty"`
	}
	o := monolith(t, "ps", "changes", p.job, "--consumer", "editor", "--weights")
	o.wants(t, 0)
	var rows []row
	for line := range strings.Lines(o.stdout) {
		var r row
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if len(r.Weights) > 0 {
			rows = append(rows, r)
		}
	}
	if len(rows) < 500 {
		t.Fatalf("%d rows in\n%.500s", len(rows), o.stdout)
	}
	monolith(t, "ps", "changes", p.job, "--consumer", "editor", "--leave").wants(t, 0)
	edit := func() {
		t.Helper()
		var lines bytes.Buffer
		enc := json.NewEncoder(&lines)
		for _, i := range rng.Perm(len(rows))[:300] {
			for k := range rows[i].Weights {
				rows[i].Weights[k] = float32(rng.NormFloat64())
			}
			if err := enc.Encode(row{ID: rows[i].ID, Weights: rows[i].Weights}); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(t.TempDir(), "rows.jsonl")
		if err := os.WriteFile(file, lines.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		monolith(t, "ps", "assign", p.job, rows[0].Table, "--from", file).wants(t, 0)
	}

	// served serves the newest snapshot's export.
	serve := func(name string, more ...string) served {
		t.Helper()
		exports := filepath.Join(t.TempDir(), name)
		monolith(t, "export", p.dir, "--format", "native", "--dir", exports).wants(t, 0)
		s := served{t, testbed.FreeAddr(t)}
		p.launch(name, append([]string{"serve", name + "=" + exports, "--http", s.addr}, more...)...)
		s.awaits(name, time.Time{})
		return s
	}
	to := testbed.FreeAddr(t)
	pushed := serve("pushed", "--grpc", to, "--accept-pushes")
	before := pushed.predict("pushed", records[:1000])
	push := []string{"ps", "push", p.job, "--to", to, "--model", "pushed"}
	p.launch("pusher", append(push, "--follow", "--every", "5ms")...)
	rounds := [][]string{{"pusher"}, {"pusher"}, {"pushed"}, {"pusher"}, {"pushed", "pusher"}}
	kills := 0
	for i, victims := range rounds {
		edit()
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		for _, victim := range victims { // where the server dies first, who pushes dies before it knows of the next one
			p.procs[victim].kill(t)
			kills++
		}
		if len(victims) == 1 && victims[0] == "pusher" {
			continue
		}
		edit()
		monolith(t, "snapshot", "take", p.job).wants(t, 0)
		name := fmt.Sprint("exported", i)
		want := serve(name, "--grpc", "").predict(name, records[:1000])
		p.procs[name].end(syscall.SIGTERM)
		pushed.awaits("pushed", time.Time{})
		got := pushed.predict("pushed", records[:1000])
		for deadline := time.Now().Add(3 * time.Minute); got != want && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			got = pushed.predict("pushed", records[:1000])
		}
		if got != want {
			p.dump()
			t.Fatalf("round %d: the server that rows were pushed to predicts\n%.500s\nwant\n%.500s", i, got, want)
		}
		if got == before {
			t.Fatal("predictions are as before the edits: nothing is tested here")
		}
	}
	p.procs["pusher"].end(syscall.SIGTERM)
	monolith(t, push...).wants(t, 0) // the last answer's acknowledgement may have been lost

	var again struct{ Result struct{ Rows int64 } }
	o = monolith(t, append(push, "--json")...)
	if err := json.Unmarshal([]byte(o.stdout), &again); err != nil || o.code != 0 || again.Result.Rows != 0 {
		t.Errorf("pushed once more: %v, exit code %d: %s", err, o.code, o.stdout)
	}
	if n := p.procs["pusher"].kills + p.procs["pushed"].kills; n != kills {
		t.Errorf("%d kills, want %d", n, kills)
	}
}
