package serving_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/serving"
)

// eventually waits for an event that has to come.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for !is() {
		if t.Context().Err() != nil {
			t.Fatal("it did not come")
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// batches is how many batches were computed.
func batches(t *testing.T, reg *prometheus.Registry) int {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "monolith_serving_batches_total" {
			return int(f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	return 0
}

// TestTogether: requests that wait for the only thread are computed together, as many as a batch may have, and each gets its own predictions, which are those of an evaluation to the
// bit; also with features of lists, ids that have no row, several forms and several heads.
func TestTogether(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ model, heads string }{
		"fm": {"{fm: {dim: 4}}", ""}, "deepfm": {"{deepfm: {dim: 4, hidden: [8]}}", ""}, "dcnv2": {"{dcnv2: {dim: 4, hidden: [8]}}", ""},
		"shared_bottom": {"{shared_bottom: {dim: 4, hidden: [8]}}", heads},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := train(t, c.model, c.heads)
			m := models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports})
			reg := prometheus.NewRegistry()
			metrics, err := serving.NewMetrics(reg)
			if err != nil {
				t.Fatal(err)
			}
			const most = 40
			s := serving.NewServer(serving.Options{Models: m, Threads: 1, BatchExamples: most, Metrics: metrics})
			h := s.Handler(nil)
			release := s.Hold()
			var wg sync.WaitGroup
			requests := int64(0)
			for from, size := 0, 1; from < len(tr.asked); from, size = from+size, size%13+1 {
				to := min(from+size, len(tr.asked))
				requests++
				wg.Go(func() {
					code, body := ask(t, h, "/v1/models/clicks:predict", instances(t, tr.asked[from:to]))
					if code != http.StatusOK {
						t.Errorf("%d: %s", code, body)
						return
					}
					for head, got := range predictions(t, body) {
						if want := tr.want[column(head)][from:to]; !slices.Equal(got, want) {
							t.Errorf("head %q of rows %d to %d: %v, an evaluation gives %v", head, from, to, got, want)
						}
					}
				})
			}
			eventually(t, func() bool { return s.Waiting() == requests })
			release()
			wg.Wait()
			// The last request that had a thread may have been alone, and rows that did not fit begin a batch of their own.
			if got, least := batches(t, reg), len(tr.asked)/most; got < least || got > 2*least+1 {
				t.Errorf("%d batches of %d requests with %d examples", got, requests, len(tr.asked))
			}
			if s.Waiting() != 0 {
				t.Errorf("%d wait", s.Waiting())
			}
		})
	}
}

// TestWaitsForOthers: with a delay requests wait for each other though threads are idle, until a batch is full or one of them goes, and no more of them than may wait.
func TestWaitsForOthers(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	m := models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports})
	reg := prometheus.NewRegistry()
	metrics, err := serving.NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	s := serving.NewServer(serving.Options{Models: m, Threads: 2, Waiting: 3, BatchExamples: 4, BatchDelay: time.Hour, Timeout: 2 * time.Hour, Metrics: metrics})
	h := s.Handler(nil)
	post := func(ctx context.Context, from, to int) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/models/clicks:predict", strings.NewReader(instances(t, tr.asked[from:to]))))
		return w.Code, w.Body.String()
	}
	good := func(ctx context.Context, from, to int) {
		if code, body := post(ctx, from, to); code != http.StatusOK || !slices.Equal(predictions(t, body)[""], tr.want["prediction"][from:to]) {
			t.Errorf("rows %d to %d: %d: %s", from, to, code, body)
		}
	}
	var wg sync.WaitGroup
	first, leave := context.WithCancel(t.Context())
	wg.Go(func() {
		if code, body := post(first, 0, 1); code != http.StatusServiceUnavailable {
			t.Errorf("who has left: %d %s", code, body)
		}
	})
	eventually(t, func() bool { return s.Waiting() == 1 })
	for i := 1; i < 3; i++ {
		wg.Go(func() { good(t.Context(), i, i+1) })
		eventually(t, func() bool { return s.Waiting() == int64(i+1) })
	}
	if code, body := post(t.Context(), 3, 4); code != http.StatusTooManyRequests {
		t.Errorf("a fourth that waits: %d %s", code, body)
	}
	good(t.Context(), 3, 7) // as large as a batch: by itself
	if got := batches(t, reg); got != 1 || s.Waiting() != 3 {
		t.Errorf("%d batches while %d wait", got, s.Waiting())
	}
	leave() // who began the batch
	wg.Wait()
	if got := batches(t, reg); got != 2 || s.Waiting() != 0 {
		t.Errorf("%d batches, and %d wait", got, s.Waiting())
	}
	for _, rows := range [][2]int{{10, 11}, {11, 13}, {13, 14}} { // a full one
		wg.Go(func() { good(t.Context(), rows[0], rows[1]) })
	}
	wg.Wait()
	if got := batches(t, reg); got != 3 || s.Waiting() != 0 {
		t.Errorf("%d batches, and %d wait", got, s.Waiting())
	}
}
