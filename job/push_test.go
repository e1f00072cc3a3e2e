package job_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
)

// editRows gives rows of a running job other weights, as many of each as its table has.
func editRows(ctx context.Context, t *testing.T, cfg *job.Config, tbl string, dim int, ids []int64, from float32) {
	t.Helper()
	var lines bytes.Buffer
	for i, id := range ids {
		weights := make([]float32, dim)
		for k := range weights {
			weights[k] = from + float32(i*dim+k)/64
		}
		if err := json.NewEncoder(&lines).Encode(map[string]any{"id": id, "weights": weights}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := job.Edit(ctx, cfg, job.EditOptions{Op: param.Assign, Table: tbl, From: &lines}); err != nil {
		t.Fatal(err)
	}
}

// TestPushToServer: a server of a job's export is pushed what has changed since: it predicts what a server predicts that follows the shards, bit for bit, also when it was started again and has lost what it had been given.
func TestPushToServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	addrs := []string{testbed.FreeAddr(t), testbed.FreeAddr(t)}
	cfg := rolesJob(t, dir, "", usersAndItems(t, dir), "jsonl", "ps.addresses=["+strings.Join(addrs, ", ")+"]")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	stop := serveShards(ctx, t, cfg)
	defer stop()
	r, err := job.Run(ctx, cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	exports, secret := filepath.Join(dir, "exports"), filepath.Join(dir, "push-token")
	if _, err := job.ExportModel(ctx, job.ExportModelOptions{Snapshot: r.Snapshot, Format: "native", Dir: exports, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(secret, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := testbed.FreeAddr(t)
	o := job.ServeModelsOptions{
		Exports: []string{"pushed=" + exports}, GRPC: address, Pushes: job.Pushes{Accept: true, TokenFile: secret},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	live, endLive := serveModels(ctx, t, job.ServeModelsOptions{Jobs: []job.ServedJob{{Name: "live", Load: func() (*job.Config, error) { return cfg, nil }}}})
	defer endLive()
	a, end := serveModels(ctx, t, o)
	push := job.PushOptions{To: address, Model: "pushed", TokenFile: secret, Logger: o.Logger}
	// same pushes, and compares; it returns how many rows were pushed.
	same := func(what string) (rows int64) {
		t.Helper()
		live.fresh("live")
		pushed, err := job.Push(ctx, cfg, push)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got, want := a.predict("pushed"), live.predict("live"); got != want {
			t.Fatalf("%s: predicts\n%s\nwant\n%s", what, got, want)
		}
		return pushed.Rows
	}
	before := a.predict("pushed")
	all := same("at first")
	if all == 0 || a.predict("pushed") != before {
		t.Errorf("%d rows at first, after which predictions are others", all)
	}
	if n := same("again"); n != 0 {
		t.Errorf("%d rows though nothing has changed", n)
	}
	slots, err := job.InspectShards(ctx, cfg, job.Asking{})
	if err != nil {
		t.Fatal(err)
	}
	tbl := slots.Slots[0].Table
	found, err := job.LookUp(ctx, cfg, job.LookUpOptions{Table: tbl, IDs: []int64{1<<48 | 3}})
	if err != nil || len(found.Entries) != 1 {
		t.Fatal(found, err)
	}
	dim := len(found.Entries[0].Weights)
	ids := []int64{1<<48 | 3, 2<<48 | 4, 1<<48 | 39} // the last has no row
	editRows(ctx, t, cfg, tbl, dim, ids, 1)
	if n := same("edited"); n != 3 || a.predict("pushed") == before {
		t.Errorf("%d rows of 3 that were edited", n)
	}
	if _, err := job.Edit(ctx, cfg, job.EditOptions{Op: param.Reinitialize, Table: tbl, IDs: ids[1:]}); err != nil {
		t.Fatal(err)
	}
	push.Raw, push.Consumer = "tables", "by the raw signature"
	if n := same("reinitialized"); n != all+1 {
		t.Errorf("%d rows to a consumer that is new, want all %d", n, all+1)
	}
	end() // what was pushed goes with it
	a, end = serveModels(ctx, t, o)
	defer func() { end() }()
	if a.predict("pushed") != before {
		t.Error("the server that was started again does not serve its export")
	}
	if n := same("started again"); n != all+1 {
		t.Errorf("%d rows to a server that was started again, want all %d", n, all+1)
	}

	// Row shards take the same pushes, each those of its part; who reads them has kept what the export has.
	rowShards := o
	var places []string
	for i := range 2 {
		rowShards.GRPC, rowShards.Shard = testbed.FreeAddr(t), &native.Part{Index: i, Of: 2}
		_, end := serveModels(ctx, t, rowShards)
		defer end()
		places = append(places, rowShards.GRPC)
	}
	entry, endEntry := serveModels(ctx, t, job.ServeModelsOptions{Exports: o.Exports, Rows: job.RowShards{Addrs: places}, Logger: o.Logger})
	defer endEntry()
	if entry.predict("pushed") != before {
		t.Error("row shards do not serve their export")
	}
	for _, to := range places {
		p := push
		p.To, p.Raw, p.Consumer = to, "", ""
		if _, err := job.Push(ctx, cfg, p); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := entry.predict("pushed"), live.predict("live"); got != want || got == before {
		t.Errorf("with the rows of row shards it predicts\n%s\nwant\n%s", got, want)
	}
	for what, c := range map[string]struct {
		o    job.PushOptions
		want error
		says string
	}{
		"no token":      {job.PushOptions{To: address, Model: "pushed"}, pipeline.ErrConfig, "--push-token-file"},
		"another model": {job.PushOptions{To: address, Model: "push", TokenFile: secret}, pipeline.ErrConfig, `there is no model "push", did you mean "pushed"`},
		"no table":      {job.PushOptions{To: address, Model: "pushed", TokenFile: secret, Tables: map[string]string{"tbl": "x"}}, pipeline.ErrConfig, `no table "tbl"`},
		"other tables":  {job.PushOptions{To: address, Model: "pushed", TokenFile: secret, Tables: map[string]string{tbl: "x"}}, pipeline.ErrConfig, `"x_id"`},
		"no address":    {job.PushOptions{To: "there", Model: "pushed"}, pipeline.ErrConfig, `--to: wire: address "there"`},
		"nobody":        {job.PushOptions{To: testbed.FreeAddr(t), Model: "pushed"}, pipeline.ErrUnavailable, "Unavailable"},
	} {
		if _, err := job.Push(ctx, cfg, c.o); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v that says %q", what, err, c.want, c.says)
		}
	}
}

// receiver is a PredictionService that is not ours: it keeps the rows of a table, and calls asked with the number of each request that has rows.
type receiver struct {
	tfs.UnimplementedPredictionServiceServer
	t     *testing.T
	table string
	asked func(n int) error

	mu   sync.Mutex
	n    int
	rows map[int64][]float32
}

// Predict implements [tfs.PredictionServiceServer].
func (r *receiver) Predict(_ context.Context, m *tfs.PredictRequest) (*tfs.PredictResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids, weights := m.Inputs[r.table+"_id"].GetInt64Val(), m.Inputs[r.table+"_value"].GetFloatVal()
	if m.ModelSpec.GetSignatureName() != "hashtable_assign" || m.Inputs[r.table+"_id"] == nil || proto.Size(m) > 4<<20 {
		r.t.Errorf("a request of %d bytes: %v", proto.Size(m), m.ModelSpec)
	}
	if len(ids) == 0 {
		return &tfs.PredictResponse{}, nil
	}
	dim := len(weights) / len(ids)
	for i, id := range ids {
		r.rows[id] = slices.Clone(weights[i*dim:][:dim])
	}
	r.n++
	return &tfs.PredictResponse{}, r.asked(r.n)
}

// same compares the rows with those of the shards, bit for bit, and returns how many there are.
func (r *receiver) same(ctx context.Context, cfg *job.Config, tbl string) int {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]int64, 0, len(r.rows))
	for id := range r.rows {
		ids = append(ids, id)
	}
	found, err := job.LookUp(ctx, cfg, job.LookUpOptions{Table: tbl, IDs: ids})
	if err != nil || len(found.Missing) > 0 {
		r.t.Fatalf("%v are missing: %v", found.Missing, err)
	}
	for _, e := range found.Entries {
		if !slices.EqualFunc(r.rows[e.ID], e.Weights, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
			r.t.Errorf("row %x is %v, the shard's %v", e.ID, r.rows[e.ID], e.Weights)
		}
	}
	return len(ids)
}

// TestPushResumes: a push whose process dies at any request, before or after the server has its rows, and one whose server refuses for a while, leave the server with the rows of the shards once a push has ended; what was
// acknowledged is not pushed again.
func TestPushResumes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := rolesJob(t, dir, testbed.FreeAddr(t), usersAndItems(t, dir), "jsonl")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	stop := serveShards(ctx, t, cfg)
	defer stop()
	if _, err := job.Run(ctx, cfg, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	slots, err := job.InspectShards(ctx, cfg, job.Asking{})
	if err != nil {
		t.Fatal(err)
	}
	tbl := slots.Slots[0].Table
	to := &receiver{t: t, table: "theirs", rows: map[int64][]float32{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, served := grpc.NewServer(), make(chan error, 1)
	tfs.RegisterPredictionServiceServer(g, to)
	go func() { served <- g.Serve(l) }()
	defer func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	o := job.PushOptions{To: l.Addr().String(), Model: "m", Tables: map[string]string{tbl: "theirs"}, Every: time.Millisecond}
	// push pushes; asked says what becomes of each request, counted from 1.
	push := func(ctx context.Context, follow bool, asked func(n int) error) (*job.Pushed, error) {
		to.mu.Lock()
		to.n, to.asked = 0, asked
		to.mu.Unlock()
		o.Follow = follow
		return job.Push(ctx, cfg, o)
	}
	// dies has the process die when the server has a request of that number.
	dies := func(at int) {
		t.Helper()
		ctx, kill := context.WithCancel(ctx)
		defer kill()
		_, err := push(ctx, false, func(n int) error {
			if n == at {
				kill()
			}
			return nil
		})
		if err == nil {
			t.Error("who has died has no error")
		}
	}
	fine := func(int) error { return nil }
	dies(1)
	done, err := push(ctx, false, fine)
	if err != nil || done.Rows == 0 || to.same(ctx, cfg, tbl) != int(done.Rows) || int64(len(to.rows)) != slots.Rows {
		t.Fatalf("%+v, %d rows of %d: %v", done, len(to.rows), slots.Rows, err)
	}
	if done, err = push(ctx, false, fine); err != nil || done.Rows != 0 {
		t.Errorf("%+v though nothing has changed: %v", done, err)
	}
	dim := len(to.rows[1<<48|3])
	for round := range 3 {
		editRows(ctx, t, cfg, tbl, dim, []int64{1<<48 | 3, 2<<48 | 4, 1<<48 | int64(100+round)}, float32(round+1))
		dies(1)
		if _, err := push(ctx, false, func(int) error { return status.Error(codes.Unavailable, "busy") }); !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), "busy") {
			t.Errorf("a server that is busy: %v", err)
		}
		if _, err := push(ctx, false, func(int) error { return status.Error(codes.InvalidArgument, "no") }); !errors.Is(err, pipeline.ErrConfig) {
			t.Errorf("a server that refuses: %v", err)
		}
		if done, err := push(ctx, false, fine); err != nil || done.Rows != 3 {
			t.Errorf("%+v of 3 rows that have changed: %v", done, err)
		}
		to.same(ctx, cfg, tbl)
	}
	// A follower waits for a server that is busy, and ends without an error.
	editRows(ctx, t, cfg, tbl, dim, []int64{1<<48 | 3}, 9)
	following, end := context.WithCancel(ctx)
	defer end()
	done, err = push(following, true, func(n int) error {
		switch {
		case n < 4:
			return status.Error([]codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded}[n-1], "busy")
		case n == 4:
			end()
		}
		return nil
	})
	if err != nil || to.n < 4 {
		t.Errorf("%+v after %d requests: %v", done, to.n, err)
	}
	if to.same(ctx, cfg, tbl); to.rows[1<<48|3][0] != 9 {
		t.Errorf("the follower has not pushed: %v", to.rows[1<<48|3])
	}
}

// TestPushFollows: while nothing changes, a follower gives a server that was started again all rows. A row that was pushed after a snapshot's cut outlasts the export of that snapshot, without being pushed
// again.
func TestPushFollows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := rolesJob(t, dir, testbed.FreeAddr(t), usersAndItems(t, dir), "jsonl")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stop := serveShards(ctx, t, cfg)
	defer stop()
	trained, err := job.Run(ctx, cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	exports := filepath.Join(dir, "exports")
	export := func(snapshot string) (number string) {
		t.Helper()
		r, err := job.ExportModel(ctx, job.ExportModelOptions{Snapshot: snapshot, Format: "native", Dir: exports, Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Base(r.Dir)
	}
	export(trained.Snapshot)
	o := job.ServeModelsOptions{
		Exports: []string{"pushed=" + exports}, GRPC: testbed.FreeAddr(t), Pushes: job.Pushes{Accept: true}, Poll: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	live, endLive := serveModels(ctx, t, job.ServeModelsOptions{Jobs: []job.ServedJob{{Name: "live", Load: func() (*job.Config, error) { return cfg, nil }}}})
	defer endLive()
	a, end := serveModels(ctx, t, o)
	defer func() { end() }()
	following, endFollowing := context.WithCancel(ctx)
	defer endFollowing()
	followed := make(chan *job.Pushed, 1)
	go func() {
		p, err := job.Push(following, cfg, job.PushOptions{To: o.GRPC, Model: "pushed", Follow: true, Every: 10 * time.Millisecond, Logger: o.Logger})
		if err != nil {
			t.Error(err)
		}
		followed <- p
	}()
	// same waits until the server predicts what the shards do.
	same := func(what string) {
		t.Helper()
		live.fresh("live")
		want := live.predict("live")
		for until := time.Now().Add(30 * time.Second); a.predict("pushed") != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s: predicts\n%s\nwant\n%s", what, a.predict("pushed"), want)
			}
		}
	}
	slots, err := job.InspectShards(ctx, cfg, job.Asking{})
	if err != nil {
		t.Fatal(err)
	}
	tbl := slots.Slots[0].Table
	found, err := job.LookUp(ctx, cfg, job.LookUpOptions{Table: tbl, IDs: []int64{1<<48 | 3}})
	if err != nil || len(found.Entries) != 1 {
		t.Fatal(found, err)
	}
	dim := len(found.Entries[0].Weights)
	before := a.predict("pushed")
	editRows(ctx, t, cfg, tbl, dim, []int64{1<<48 | 3, 1<<48 | 4}, 1)
	same("edited")
	end()
	a, end = serveModels(ctx, t, o)
	same("started again while the job is idle")
	if a.predict("pushed") == before {
		t.Error("the rows that were edited change no prediction")
	}

	taken, err := job.TakeSnapshot(ctx, cfg, job.TakeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	editRows(ctx, t, cfg, tbl, dim, []int64{1<<48 | 5, 1<<48 | 6}, 2)
	same("edited after the snapshot")
	number := export(taken.Path)
	for {
		if _, status := a.do(http.MethodGet, "/v1/models/pushed/versions/"+number, ""); strings.Contains(status, "AVAILABLE") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got, want := a.predict("pushed"), live.predict("live"); got != want {
		t.Errorf("the export of an earlier cut predicts\n%s\nwant\n%s", got, want)
	}
	endFollowing()
	if p := <-followed; p.Rows != 2*slots.Rows+4 {
		t.Errorf("%d rows were pushed, want all %d twice, and 4 that were edited", p.Rows, slots.Rows)
	}
}
