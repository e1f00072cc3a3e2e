package serving_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/export/native"
	servingv1 "github.com/monolith-go/monolith/proto/monolith/serving/v1"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/serving"
	"github.com/monolith-go/monolith/serving/rows"
)

// rowShard is a row shard whose process can be ended and started again.
type rowShard struct {
	t    testing.TB
	part native.Part
	push func(*native.Export) serving.Pushable // of its next process; nil: no rows are pushed
	conn *grpc.ClientConn

	mu      sync.Mutex
	lis     *bufconn.Listener // nil: nobody listens
	server  *grpc.Server
	models  *serving.Models
	done    chan error
	lookups atomic.Int64
	fails   atomic.Bool // no lookup reaches it
}

// newRowShard starts a row shard.
func newRowShard(t testing.TB, part native.Part, lease time.Duration, configs ...serving.ModelConfig) *rowShard {
	t.Helper()
	s := &rowShard{t: t, part: part}
	s.start(lease, configs...)
	var err error
	s.conn, err = grpc.NewClient("passthrough:///shard", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: time.Millisecond}, MinConnectTimeout: time.Minute}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			s.mu.Lock()
			l := s.lis
			s.mu.Unlock()
			if l == nil {
				return nil, errors.New("nobody listens")
			}
			return l.DialContext(ctx)
		}),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, in, out any, cc *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
			if strings.HasSuffix(method, "/Lookup") {
				s.lookups.Add(1)
				if s.fails.Load() {
					return status.Error(codes.Unavailable, "it has just gone")
				}
			}
			return next(ctx, method, in, out, cc, o...)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.conn.Close(); err != nil {
			t.Error(err)
		}
		s.kill()
	})
	return s
}

// start makes its process.
func (s *rowShard) start(lease time.Duration, configs ...serving.ModelConfig) {
	s.t.Helper()
	s.models = serving.NewModels(serving.ModelsOptions{Recipe: recipe, Part: &s.part, Push: s.push, Lease: lease, Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil))})
	if err := s.models.Configure(s.t.Context(), configs); err != nil {
		s.t.Fatal(err)
	}
	s.server, s.done = serving.NewServer(serving.Options{Models: s.models}).GRPC(serving.GRPCOptions{}), make(chan error, 1)
	l := bufconn.Listen(1 << 20)
	go func(server *grpc.Server, done chan error) { done <- server.Serve(l) }(s.server, s.done)
	s.mu.Lock()
	s.lis = l
	s.mu.Unlock()
}

// kill ends its process.
func (s *rowShard) kill() {
	s.mu.Lock()
	l := s.lis
	s.lis = nil
	s.mu.Unlock()
	if l == nil {
		return
	}
	s.server.Stop()
	if err := <-s.done; err != nil {
		s.t.Error(err)
	}
	s.models.Close()
}

// newRowShards starts n of them.
func newRowShards(t testing.TB, n int, configs ...serving.ModelConfig) (out []*rowShard) {
	t.Helper()
	for i := range n {
		out = append(out, newRowShard(t, native.Part{Index: i, Of: n}, 0, configs...))
	}
	return out
}

// entryOf serves models whose rows are in shards.
func entryOf(t testing.TB, cache int64, metrics *serving.Metrics, shards []*rowShard, configs ...serving.ModelConfig) *serving.Models {
	t.Helper()
	o := rows.Options{CacheBytes: cache, Timeout: time.Minute, Hold: time.Hour}
	if metrics != nil {
		o.Observer = metrics
	}
	for i, s := range shards {
		o.Shards = append(o.Shards, rows.Shard{{Addr: fmt.Sprint("host", i), Conn: s.conn}})
	}
	m := serving.NewModels(serving.ModelsOptions{Recipe: recipe, Rows: rows.NewClient(o), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	t.Cleanup(m.Close)
	if err := m.Configure(t.Context(), configs); err != nil {
		t.Fatal(err)
	}
	return m
}

// counted is the sum of a counter over the series that have these labels.
func counted(t *testing.T, reg *prometheus.Registry, name string, labels ...string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var has []string
			for _, l := range m.GetLabel() {
				has = append(has, l.GetValue())
			}
			if !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(has, l) }) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// TestRowShards: predictions with rows of 1, 2 and 3 shards, with no cache, one that is too small and one that has all, are those of an evaluation to the bit, also of ids that have no row; nothing of the
// rows has to be where the entry is.
func TestRowShards(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ model, heads string }{"deepfm": {"{deepfm: {dim: 4, hidden: [8]}}", ""}, "shared_bottom": {"{shared_bottom: {dim: 4, hidden: [8]}}", heads}} {
		tr := train(t, c.model, c.heads)
		config := serving.ModelConfig{Name: "clicks", Dir: tr.exports}
		without := serving.ModelConfig{Name: "clicks", Dir: t.TempDir()}
		slabs, err := filepath.Glob(filepath.Join(linked(t, tr.export(t), without.Dir, 7), "*", "*.slab"))
		if err != nil || len(slabs) == 0 {
			t.Fatalf("%q, %v", slabs, err)
		}
		for _, file := range slabs {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range []int{1, 2, 3} {
			for _, cache := range []int64{0, 4 << 10, 1 << 20} {
				t.Run(fmt.Sprintf("%s/shards=%d/cache=%d", name, n, cache), func(t *testing.T) {
					t.Parallel()
					reg := prometheus.NewRegistry()
					metrics, err := serving.NewMetrics(reg)
					if err != nil {
						t.Fatal(err)
					}
					m := entryOf(t, cache, metrics, newRowShards(t, n, config), without)
					metrics.Watch(m)
					h := serving.NewServer(serving.Options{Models: m, Metrics: metrics}).Handler(nil)
					for pass := range 2 {
						before := counted(t, reg, "monolith_serving_rows_total", "shard")
						for from := 0; from < len(tr.asked); from += 30 {
							code, body := ask(t, h, "/v1/models/clicks:predict", instances(t, tr.asked[from:from+30]))
							if code != http.StatusOK {
								t.Fatalf("%d: %s", code, body)
							}
							for head, got := range predictions(t, body) {
								if want := tr.want[column(head)][from : from+30]; !slices.Equal(got, want) {
									t.Errorf("head %q of rows from %d: %v, an evaluation gives %v", head, from, got, want)
								}
							}
						}
						asked := counted(t, reg, "monolith_serving_rows_total", "shard") - before
						if pass == 1 && (asked == 0) != (cache == 1<<20) {
							t.Errorf("%v rows were asked for again", asked)
						}
					}
					if kept := counted(t, reg, "monolith_serving_row_cache_bytes"); (kept == 0) != (cache == 0) || kept > float64(cache) {
						t.Errorf("the cache has %v bytes of %d", kept, cache)
					}
				})
			}
		}
	}
}

// TestRowShardGone: while a shard is gone, requests whose rows the cache has are answered, also where they are computed together with others, which get UNAVAILABLE with its name; when it is back, all are.
func TestRowShardGone(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	config := serving.ModelConfig{Name: "clicks", Dir: tr.exports}
	shards := newRowShards(t, 2, config)
	m := entryOf(t, 1<<20, nil, shards, config)
	h := serving.NewServer(serving.Options{Models: m}).Handler(nil)
	good := func(h http.Handler, from, to int) {
		if code, body := ask(t, h, "/v1/models/clicks:predict", instances(t, tr.asked[from:to])); code != http.StatusOK || !slices.Equal(predictions(t, body)[""], tr.want["prediction"][from:to]) {
			t.Errorf("rows %d to %d: %d: %s", from, to, code, body)
		}
	}
	lost := func(h http.Handler, from, to int) {
		if code, body := ask(t, h, "/v1/models/clicks:predict", instances(t, tr.asked[from:to])); code != http.StatusServiceUnavailable || !strings.Contains(body, "row shard 1 of 2 at host1: ") {
			t.Errorf("rows %d to %d: %d: %s", from, to, code, body)
		}
	}
	good(h, 0, 20)
	shards[1].kill()
	good(h, 0, 20)
	lost(h, 20, 300)                                                                                                      // rows 30, 40 and so on have ids that nobody has asked for, of both shards
	for _, requests := range [][][2]int{{{0, 5}, {5, 10}, {20, 115}, {10, 20}}, {{20, 115}, {0, 5}, {5, 10}, {10, 20}}} { // the first leads
		reg := prometheus.NewRegistry()
		metrics, err := serving.NewMetrics(reg)
		if err != nil {
			t.Fatal(err)
		}
		s := serving.NewServer(serving.Options{Models: m, Threads: 1, BatchExamples: 115, BatchDelay: time.Hour, Timeout: 2 * time.Hour, Metrics: metrics})
		h := s.Handler(nil)
		var wg sync.WaitGroup
		for i, r := range requests {
			wg.Go(func() {
				if r[0] < 20 {
					good(h, r[0], r[1])
				} else {
					lost(h, r[0], r[1])
				}
			})
			if i < len(requests)-1 {
				eventually(t, func() bool { return s.Waiting() == int64(i+1) })
			}
		}
		wg.Wait()
		if got := batches(t, reg); got != 1+len(requests) {
			t.Errorf("%d batches, of all requests and of each", got)
		}
	}
	shards[1].start(0, config)
	eventually(t, func() bool {
		code, _ := ask(t, h, "/v1/models/clicks:predict", instances(t, tr.asked[200:300]))
		return code == http.StatusOK
	})
	good(h, 0, 300)
}

// TestRowReplicas: lookups go to the replicas of a shard by turns. While one is ended and started again, the other answers, and no request fails; one whose last call failed is asked after the other until it
// answers; once both are gone, the error names both. A version serves as soon as one replica of each shard has it.
func TestRowReplicas(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	config := serving.ModelConfig{Name: "clicks", Dir: tr.exports}
	first := newRowShard(t, native.Part{Index: 0, Of: 2}, 0, config)
	pair := []*rowShard{newRowShard(t, native.Part{Index: 1, Of: 2}, 0, config), newRowShard(t, native.Part{Index: 1, Of: 2}, 0, serving.ModelConfig{Name: "clacks", Dir: tr.exports})}
	o := rows.Options{Timeout: time.Minute, Hold: time.Hour, Shards: []rows.Shard{{{Addr: "host0", Conn: first.conn}}, {{Addr: "host1", Conn: pair[0].conn}, {Addr: "host2", Conn: pair[1].conn}}}}
	client := func() (*rows.Client, *serving.Models, http.Handler) {
		c := rows.NewClient(o)
		m := serving.NewModels(serving.ModelsOptions{Recipe: recipe, Rows: c, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		t.Cleanup(m.Close)
		if err := m.Configure(t.Context(), []serving.ModelConfig{config}); err != nil {
			t.Fatal(err)
		}
		return c, m, serving.NewServer(serving.Options{Models: m}).Handler(nil)
	}
	good := func(h http.Handler) {
		t.Helper()
		if code, body := ask(t, h, "/v1/models/clicks:predict", instances(t, tr.asked[:50])); code != http.StatusOK || !slices.Equal(predictions(t, body)[""], tr.want["prediction"][:50]) {
			t.Errorf("%d: %s", code, body)
		}
	}
	asked := func(n int, h http.Handler) (of [2]int64) {
		t.Helper()
		before := [2]int64{pair[0].lookups.Load(), pair[1].lookups.Load()}
		for range n {
			good(h)
		}
		return [2]int64{pair[0].lookups.Load() - before[0], pair[1].lookups.Load() - before[1]}
	}

	// The second replica has no such model: it is known when the version is opened, and not asked.
	_, m, h := client()
	if !m.Ready() {
		t.Fatal("one replica of each shard has the version, and it does not serve")
	}
	if got := asked(10, h); got != [2]int64{10, 0} {
		t.Errorf("replicas were asked %d times, want 10 and 0", got)
	}
	pair[1].kill()
	pair[1].start(0, config)
	back := func(s *rowShard) {
		t.Helper()
		if _, err := servingv1.NewRowsClient(s.conn).Hold(t.Context(), &servingv1.HoldRequest{Model: "clicks"}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
	}
	back(pair[1])
	from, _, h := client()
	if got := asked(10, h); got != [2]int64{5, 5} {
		t.Errorf("replicas were asked %d times, want 5 and 5", got)
	}

	// One fails: its call is repeated elsewhere, once.
	pair[0].fails.Store(true)
	if got := asked(10, h); got[0] != 1 || got[1] != 10 {
		t.Errorf("replicas were asked %d times, want 1 and 10", got)
	}
	pair[0].fails.Store(false)
	if got := asked(10, h); got != [2]int64{0, 10} {
		t.Errorf("replicas were asked %d times, want 0 and 10: nothing says that the first is back", got)
	}
	for i, s := range from.Status() {
		if lost := i == 1; (s.Err != nil) != lost || s.Shard != min(i, 1) || s.Addr != fmt.Sprint("host", i) {
			t.Errorf("%+v", s)
		}
	}
	o.Hold = time.Millisecond // asks who is back
	_, _, h = client()
	pair[0].fails.Store(true)
	if got := asked(2, h); got[0] < 1 || got[1] != 2 {
		t.Errorf("replicas were asked %d times, want 1 or 2, and 2", got)
	}
	pair[0].fails.Store(false)
	eventually(t, func() bool { return asked(2, h) == [2]int64{1, 1} })

	// Both by turns, while requests are under way.
	var stop atomic.Bool
	var wg sync.WaitGroup
	var answered [3]atomic.Int64
	for i := range answered {
		wg.Go(func() {
			for !stop.Load() {
				good(h)
				answered[i].Add(1)
			}
		})
	}
	for i := range 6 {
		s := pair[i%2]
		before := pair[1-i%2].lookups.Load()
		s.kill()
		eventually(t, func() bool { return pair[1-i%2].lookups.Load() > before })
		s.start(0, config)
		back(s)
		for k := range answered { // a request that has found the one gone must not lose the other too
			before := answered[k].Load()
			eventually(t, func() bool { return answered[k].Load() > before+1 })
		}
	}
	stop.Store(true)
	wg.Wait()
	pair[0].kill()
	pair[1].kill()
	code, body := ask(t, h, "/v1/models/clicks:predict", instances(t, tr.asked[:50]))
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "row shard 1 of 2 at host1: ") || !strings.Contains(body, "row shard 1 of 2 at host2: ") {
		t.Errorf("%d: %s", code, body)
	}
	pair[1].start(0, config)
	eventually(t, func() bool {
		code, _ := ask(t, h, "/v1/models/clicks:predict", instances(t, tr.asked[:50]))
		return code == http.StatusOK
	})
	good(h)
}

// TestRowShardsSwitch: a version serves once all row shards have it, and the one before until then and without a request that fails; a shard keeps what is asked for, and gives up what is not.
func TestRowShardsSwitch(t *testing.T) {
	t.Parallel()
	one, two := train(t, "{fm: {dim: 4}}", ""), train(t, "{deepfm: {dim: 2, hidden: [4]}}", "")
	var configs []serving.ModelConfig // of two shards and the entry
	for range 3 {
		dir := t.TempDir()
		linked(t, one.export(t), dir, 1)
		configs = append(configs, serving.ModelConfig{Name: "clicks", Dir: dir})
	}
	shards := []*rowShard{newRowShard(t, native.Part{Index: 0, Of: 2}, time.Hour, configs[0]), newRowShard(t, native.Part{Index: 1, Of: 2}, time.Nanosecond, configs[1])}
	m := entryOf(t, 0, nil, shards, configs[2])
	h := serving.NewServer(serving.Options{Models: m}).Handler(nil)
	body := instances(t, one.asked[:20])
	var stop, switched atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				was := switched.Load()
				code, got := ask(t, h, "/v1/models/clicks:predict", body)
				is := predictions(t, got)[""]
				if code != http.StatusOK || !slices.Equal(is, two.want["prediction"][:20]) && (was || !slices.Equal(is, one.want["prediction"][:20])) {
					t.Errorf("%d: %s", code, got)
					return
				}
			}
		})
	}
	next := two.export(t)
	refresh := func(m *serving.Models) {
		t.Helper()
		if err := m.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
	}
	waits := func(says ...string) {
		t.Helper()
		refresh(m)
		list, err := m.Status("clicks", serving.Which{})
		if err != nil || len(list) != 2 || list[0].State != serving.Loading || list[1].State != serving.Available || list[0].Err == nil {
			t.Fatalf("%+v, %v", list, err)
		}
		for _, s := range says {
			if !strings.Contains(list[0].Err.Error(), s) {
				t.Errorf("%v does not say %q", list[0].Err, s)
			}
		}
	}
	linked(t, next, configs[2].Dir, 2)
	waits("row shard 0 of 2 at host0: it does not have version 2 (manifest ", "; of the versions it has 1 (manifest ", "row shard 1 of 2 at host1: ")
	linked(t, next, configs[0].Dir, 2)
	refresh(shards[0].models)
	if got := states(t, shards[0].models, "clicks"); got != "2 AVAILABLE, 1 AVAILABLE" {
		t.Errorf("while the entry asks for version 1: %s", got)
	}
	waits("row shard 1 of 2")
	// The other shard would keep nothing that its policy gives up: both versions are asked of it.
	configs[1].Policy.Latest = 2
	if err := shards[1].models.Configure(t.Context(), []serving.ModelConfig{configs[1]}); err != nil {
		t.Error(err)
	}
	linked(t, next, configs[1].Dir, 2)
	refresh(shards[1].models)
	refresh(m)
	switched.Store(true)
	eventually(t, func() bool { return states(t, m, "clicks") == "2 AVAILABLE, 1 END" })
	configs[1].Policy.Latest = 1
	if err := shards[1].models.Configure(t.Context(), []serving.ModelConfig{configs[1]}); err != nil {
		t.Error(err)
	}
	stop.Store(true)
	wg.Wait()
	if got := states(t, shards[1].models, "clicks"); got != "2 AVAILABLE, 1 END" {
		t.Errorf("when nobody asks for version 1: %s", got)
	}
}

// TestRowShardGoneAtWarmUp: a version whose warm-up requests meet a shard that has gone waits for it, and is not refused for good.
func TestRowShardGoneAtWarmUp(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	config := serving.ModelConfig{Name: "clicks", Dir: tr.exports}
	stored(t, tr.exports, logged(t, "item", 1, 2))
	shards := newRowShards(t, 1, config)
	shards[0].fails.Store(true)
	m := entryOf(t, 0, nil, shards, config)
	st, err := m.Status("clicks", serving.Which{})
	if err != nil || len(st) != 1 || st[0].State != serving.Loading || st[0].Err == nil || !strings.Contains(st[0].Err.Error(), "row shard 0 of 1 at host0: it has just gone") {
		t.Fatalf("%+v, %v", st, err)
	}
	shards[0].fails.Store(false)
	if err := m.Refresh(t.Context()); err != nil || !m.Ready() {
		t.Errorf("it is back, and the version does not serve: %v", err)
	}
}

// TestRowShardsCached: rows that are kept are those of one export: models whose tables and ids are called alike get their own.
func TestRowShardsCached(t *testing.T) {
	t.Parallel()
	one, two := train(t, "{fm: {dim: 4}}", ""), train(t, "{deepfm: {dim: 4, hidden: [8]}}", "")
	configs := []serving.ModelConfig{{Name: "one", Dir: one.exports}, {Name: "two", Dir: two.exports}}
	h := serving.NewServer(serving.Options{Models: entryOf(t, 1<<20, nil, newRowShards(t, 2, configs...), configs...)}).Handler(nil)
	for range 2 {
		for name, tr := range map[string]*trained{"one": one, "two": two} {
			if code, body := ask(t, h, "/v1/models/"+name+":predict", instances(t, tr.asked)); code != http.StatusOK || !slices.Equal(predictions(t, body)[""], tr.want["prediction"]) {
				t.Errorf("%s: %d: %s", name, code, body)
			}
		}
	}
}

// TestRowShardRequests: what a shard cannot answer is a code with a sentence, and it predicts nothing.
func TestRowShardRequests(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	config := serving.ModelConfig{Name: "clicks", Dir: tr.exports}
	shard := newRowShard(t, native.Part{Index: 1, Of: 2}, 0, config)
	client := servingv1.NewRowsClient(shard.conn)
	held, err := client.Hold(t.Context(), &servingv1.HoldRequest{Model: "clicks"})
	if err != nil || held.GetShard() != 1 || held.GetShards() != 2 || len(held.GetExports()) != 1 {
		t.Fatalf("%v, %v", held, err)
	}
	manifest := held.GetExports()[0].GetManifest()
	mine, theirs := int64(0), int64(0)
	for native.PartOf(mine, 2) != 1 {
		mine++
	}
	for native.PartOf(theirs, 2) != 0 {
		theirs++
	}
	request := func(change func(*servingv1.LookupRequest)) *servingv1.LookupRequest {
		r := &servingv1.LookupRequest{Model: "clicks", Manifest: manifest, Tables: []*servingv1.Ids{{Table: "users", Ids: []int64{mine}}}}
		change(r)
		return r
	}
	good, err := client.Lookup(t.Context(), request(func(*servingv1.LookupRequest) {}))
	if err != nil || len(good.GetTables()) != 1 || len(good.GetTables()[0].GetRows()) == 0 {
		t.Fatalf("%v, %v", good, err)
	}
	dim := len(good.GetTables()[0].GetRows()) / 4
	ids := func(n int) func(*servingv1.LookupRequest) {
		return func(r *servingv1.LookupRequest) { r.Tables[0].Ids = slices.Repeat([]int64{mine}, n) }
	}
	for says, c := range map[string]struct {
		code   codes.Code
		change func(*servingv1.LookupRequest)
	}{
		`there is no model "click", did you mean "clicks"?`:                       {codes.NotFound, func(r *servingv1.LookupRequest) { r.Model = "click" }},
		fmt.Sprintf(`the manifest %08x is not open; version `, manifest+1):        {codes.FailedPrecondition, func(r *servingv1.LookupRequest) { r.Manifest++ }},
		`the model has no table "user", did you mean "users"?`:                    {codes.NotFound, func(r *servingv1.LookupRequest) { r.Tables[0].Table = "user" }},
		fmt.Sprintf(`rows of table "users" have %d numbers, not %d`, dim, dim+1):  {codes.InvalidArgument, func(r *servingv1.LookupRequest) { r.Tables[0].Dim = uint32(dim) + 1 }},
		fmt.Sprintf(`id %d of table "users" is of row shard 0 of 2, and`, theirs): {codes.InvalidArgument, func(r *servingv1.LookupRequest) { r.Tables[0].Ids = []int64{mine, theirs} }},

		// More than an answer may be, and than a message.
		"ask for fewer at a time": {codes.ResourceExhausted, ids(rows.MaxLookup / 8)},
		"larger than max":         {codes.ResourceExhausted, ids(10_000_000)},
	} {
		if got, err := client.Lookup(t.Context(), request(c.change)); status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), says) {
			t.Errorf("%v, %v; want %s that says %q", got, err, c.code, says)
		}
	}
	h := serving.NewServer(serving.Options{Models: shard.models}).Handler(nil)
	if code, body := ask(t, h, "/v1/models/clicks:predict", instances(t, tr.asked[:1])); code != http.StatusBadRequest || !strings.Contains(body, "this server is a row shard") {
		t.Errorf("%d: %s", code, body)
	}
	if code, page := ask(t, h, "/", ""); code != http.StatusOK || !strings.Contains(page, "Row shard 1 of 2") || strings.Contains(page, "<form") {
		t.Errorf("%d: %s", code, page)
	}
}

// TestLargeLookup: a batch whose rows are too many for one call is asked for by several.
func TestLargeLookup(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	config := serving.ModelConfig{Name: "clicks", Dir: tr.exports}
	shards := newRowShards(t, 2, config)
	const n = 200_000
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = fidOf(2, int64(i))
	}
	predict := func(m *serving.Models) [][]float32 {
		t.Helper()
		v, _, done, err := m.Use("clicks", serving.Which{})
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		offsets := make([]int32, n+1)
		for i := range offsets {
			offsets[i] = int32(i)
		}
		out, err := v.Predict(t.Context(), &serving.Input{Form: serving.FormFeatures, Rows: n, Columns: map[string]*serving.Column{"item": {Type: serving.Ints, Ints: ids, Offsets: offsets}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	got, want := predict(entryOf(t, 0, nil, shards, config)), predict(models(t, config))
	if !slices.Equal(got[0], want[0]) {
		t.Error("predictions are not those of a server that has all rows")
	}
	for _, s := range shards {
		if calls := s.lookups.Load(); calls < 2 || calls > 20 {
			t.Errorf("shard %s was asked %d times", s.part, calls)
		}
	}
}

// TestPushedRowShards: what is pushed to all row shards is what predictions read at once, as where one server has all rows, bit for bit; a shard takes the rows of its part alone. An entry that kept rows when nothing was
// pushed to the shards finds out that they were started again.
func TestPushedRowShards(t *testing.T) {
	t.Parallel()
	tr := train(t, "{shared_bottom: {dim: 4, hidden: [8]}}", heads)
	config := serving.ModelConfig{Name: "clicks", Dir: tr.exports}
	one := newPushed(t, tr, nil, serving.Options{})
	shards := newRowShards(t, 3, config)
	o := rows.Options{CacheBytes: 1 << 20, Timeout: time.Minute, Hold: 10 * time.Millisecond}
	for i, s := range shards {
		o.Shards = append(o.Shards, rows.Shard{{Addr: fmt.Sprint("host", i), Conn: s.conn}})
	}
	m := serving.NewModels(serving.ModelsOptions{Recipe: recipe, Rows: rows.NewClient(o), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	t.Cleanup(m.Close)
	if err := m.Configure(t.Context(), []serving.ModelConfig{config}); err != nil {
		t.Fatal(err)
	}
	entry := *one
	entry.client = tfs.NewPredictionServiceClient(dial(t, serving.NewServer(serving.Options{Models: m}), serving.GRPCOptions{}))
	before := one.predict()
	if !slices.Equal(entry.predict(), before) {
		t.Fatal("predictions are not those of a server that has all rows")
	}
	assign := func(v float32) (inputs map[string]*tensorflow.TensorProto, n int) {
		inputs = map[string]*tensorflow.TensorProto{}
		for _, spec := range one.tables {
			seen := map[int64]bool{}
			for i := range tr.asked {
				id := fidOf(2, tr.asked[i].Item)
				if spec.Name == "users" {
					id = fidOf(1, hashed(tr.asked[i].User))
				}
				if i%2 == 0 {
					seen[id] = true
				}
			}
			ids := slices.Sorted(maps.Keys(seen))
			inputs[spec.Name+"_id"] = int64s(ids...)
			inputs[spec.Name+"_value"] = float32s(ramp(len(ids)*spec.Dim(), v), int64(len(ids)), int64(spec.Dim()))
			n += len(ids)
		}
		return inputs, n
	}
	inputs, _ := assign(1)
	if _, err := tfs.NewPredictionServiceClient(shards[0].conn).Predict(t.Context(), &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks", SignatureName: "hashtable_assign"}, Inputs: inputs}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a shard that takes none: %v", err)
	}
	for _, s := range shards {
		s.kill()
		s.push = takesPushes(nil)
		s.start(0, config)
	}
	within, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, v := range []float32{1, -2} {
		inputs, n := assign(v)
		if _, err := one.push(t.Context(), "hashtable_assign", inputs); err != nil {
			t.Fatal(err)
		}
		taken := 0
		for _, s := range shards {
			out, err := tfs.NewPredictionServiceClient(s.conn).Predict(t.Context(), &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks", SignatureName: "hashtable_assign"}, Inputs: inputs}, grpc.WaitForReady(true))
			if err != nil {
				t.Fatal(err)
			}
			of := 0
			for name, x := range out.GetOutputs() {
				if strings.HasSuffix(name, "_result") {
					of += int(x.GetIntVal()[0])
				}
			}
			if taken += of; of == 0 || of == n {
				t.Errorf("shard %s takes %d of %d rows", s.part, of, n)
			}
		}
		if taken != n {
			t.Errorf("shards take %d of %d rows", taken, n)
		}
		want := one.predict()
		if slices.Equal(want, before) {
			t.Fatal("the push changes nothing")
		}
		for !slices.Equal(entry.predict(), want) {
			if v < 0 || within.Err() != nil { // it knows since the first that rows change
				t.Fatal("predictions are not those of a server that has all rows")
			}
		}
		before = want
	}
}

// TestRowShardsInDisorder: shards that are named in another order than that of their numbers, or are others, are not read.
func TestRowShardsInDisorder(t *testing.T) {
	t.Parallel()
	tr := train(t, "{lr: {}}", "")
	config := serving.ModelConfig{Name: "clicks", Dir: tr.exports}
	shards := newRowShards(t, 2, config)
	other := newRowShard(t, native.Part{Index: 0, Of: 2}, 0, serving.ModelConfig{Name: "clacks", Dir: tr.exports})
	for says, list := range map[string][]*rowShard{
		"row shard 1 of 2 at host1: it is shard 0 of 2":         {shards[1], shards[0]},
		"row shard 0 of 1 at host0: it is shard 0 of 2":         {shards[0]},
		`row shard 0 of 2 at host0: there is no model "clicks"`: {other, shards[1]},
	} {
		m := entryOf(t, 0, nil, list, config)
		st, err := m.Status("clicks", serving.Which{})
		if err != nil || len(st) != 1 || st[0].Err == nil || !strings.Contains(st[0].Err.Error(), says) || m.Ready() {
			t.Errorf("%+v, %v; want one that says %q", st, err, says)
		}
	}
}

// FuzzRowLookup: no request ends a shard.
func FuzzRowLookup(f *testing.F) {
	tr := train(f, "{fm: {dim: 4}}", "")
	m := serving.NewModels(serving.ModelsOptions{Recipe: recipe, Part: &native.Part{Of: 1}})
	f.Cleanup(m.Close)
	if err := m.Configure(f.Context(), []serving.ModelConfig{{Name: "clicks", Dir: tr.exports}}); err != nil {
		f.Fatal(err)
	}
	held, err := m.Held("clicks")
	if err != nil {
		f.Fatal(err)
	}
	s := rows.NewServer(native.Part{Of: 1}, m, nil)
	for _, tables := range [][]*servingv1.Ids{nil, {{Table: "users", Ids: []int64{1, -5, 0}}}, {{Table: "users", Dim: 3}, {Table: "x"}}} {
		b, err := proto.Marshal(&servingv1.LookupRequest{Model: "clicks", Manifest: held[0].Manifest, Tables: tables})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &servingv1.LookupRequest{}
		if proto.Unmarshal(b, r) != nil {
			return
		}
		out, err := s.Lookup(t.Context(), r)
		if err == nil && len(out.GetTables()) != len(r.GetTables()) {
			t.Errorf("%d tables of %d", len(out.GetTables()), len(r.GetTables()))
		}
		if err != nil && status.Code(err) == codes.Unknown {
			t.Errorf("no status: %v", err)
		}
	})
}

// TestCachedRowsAllocateNothing: a batch whose rows the cache has is read without an allocation. It runs alone: it counts what the process allocates.
func TestCachedRowsAllocateNothing(t *testing.T) {
	tr := train(t, "{fm: {dim: 4}}", "")
	config := serving.ModelConfig{Name: "clicks", Dir: tr.exports}
	v, _, done, err := entryOf(t, 1<<20, nil, newRowShards(t, 2, config), config).Use("clicks", serving.Which{})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	in := &serving.Input{Form: serving.FormFeatures, Rows: 1, Columns: map[string]*serving.Column{"item": {Type: serving.Ints, Ints: []int64{fidOf(2, 1), fidOf(2, 2)}, Offsets: []int32{0, 2}}}}
	if _, err := v.Predict(t.Context(), in, nil); err != nil {
		t.Fatal(err)
	}
	again := v.LookupAgain()
	if n := testing.AllocsPerRun(1000, func() {
		if err := again(t.Context()); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
