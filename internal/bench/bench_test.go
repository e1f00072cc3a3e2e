package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
)

// TestCompare: with a clock that each candidate turns by itself, rates and ratios are what they must be.
func TestCompare(t *testing.T) {
	t.Parallel()
	now, calls := 0.0, []string{}
	candidate := func(name string, seconds, work float64) bench.Candidate {
		return bench.Candidate{Name: name, Run: func() (float64, error) {
			now += seconds
			calls = append(calls, name)
			return work, nil
		}}
	}
	r, err := bench.Compare(t.Context(), bench.Options{Rounds: 3, Each: 1}, "x", "MB/s", func() float64 { return now },
		candidate("ours", 2, 100), candidate("slow", 4, 40), candidate("fast", 1, 100))
	if err != nil {
		t.Fatal(err)
	}
	if r.Ours != 50 || r.Theirs["slow"] != 10 || r.Theirs["fast"] != 100 || r.Ratio != .5 || r.Control != 1 {
		t.Errorf("got %+v", r)
	}
	if got := strings.Join(calls[3:7], " "); got != "ours slow fast ours" {
		t.Errorf("a round runs %s", got)
	}
	if r.Machine == "" || r.Name != "x" || r.Unit != "MB/s" {
		t.Errorf("got %+v", r)
	}
}

// TestSliceIsLongEnough: a candidate is run again until its slice is over.
func TestSliceIsLongEnough(t *testing.T) {
	t.Parallel()
	n := 0
	_, err := bench.Compare(t.Context(), bench.Options{Rounds: 1, Each: 20 * time.Millisecond}, "x", "1/s", bench.Wall,
		bench.Candidate{Run: func() (float64, error) { n++; time.Sleep(time.Millisecond); return 1, nil }})
	if err != nil || n < 6 {
		t.Errorf("%d runs, %v", n, err)
	}
}

func TestCompareFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	fails := bench.Candidate{Name: "theirs", Run: func() (float64, error) { return 0, broken }}
	works := bench.Candidate{Name: "ours", Run: func() (float64, error) { return 1, nil }}
	if _, err := bench.Compare(t.Context(), bench.Options{Rounds: 1}, "x", "1/s", bench.Wall, works, fails); !errors.Is(err, broken) || !strings.Contains(err.Error(), "theirs") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bench.Compare(ctx, bench.Options{Rounds: 1}, "x", "1/s", bench.Wall, works); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := bench.Compare(t.Context(), bench.Options{Rounds: 1, Each: 1}, "x", "1/s", func() float64 { return 0 }, works); err == nil {
		t.Error("a clock that does not run was believed")
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		in   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := bench.Median(x.in); got != x.want {
			t.Errorf("%v: got %v, want %v", x.in, got, x.want)
		}
	}
	if !math.IsNaN(bench.Median(nil)) {
		t.Error("a median of nothing")
	}
}

// TestForms: the text for people and the keys of the JSON, which other programs read.
func TestForms(t *testing.T) {
	t.Parallel()
	r := bench.Result{Name: "wire lookup 256 KiB", Ours: 1234.5, Theirs: map[string]float64{"tcp framing": 2500, "grpc": .123456}, Ratio: .4938, Control: 1.01, Unit: "MB/cpu-s", Machine: "m"}
	const want = "wire lookup 256 KiB                                1234 MB/cpu-s; grpc 0.1235; tcp framing 2500; ratio 0.49; control 1.01\non m\n"
	if got := bench.Text([]bench.Result{r}); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	small, other := bench.Result{Name: "x", Machine: "m"}, bench.Result{Name: "y", Machine: "n"}
	text := strings.Fields(bench.Text([]bench.Result{small, small, other, small}))
	if want := strings.Fields("x 0 x 0 on m y 0 on n x 0 on m"); !slices.Equal(text, want) {
		t.Errorf("of several machines: got %q, want %q", text, want)
	}
	b, err := json.Marshal(r)
	const keys = `{"name":"wire lookup 256 KiB","ours":1234.5,"theirs":{"grpc":0.123456,"tcp framing":2500},"ratio":0.4938,"control":1.01,"unit":"MB/cpu-s","machine":"m"}`
	if err != nil || string(b) != keys {
		t.Errorf("got %s, %v", b, err)
	}
	o := bench.Options{Only: regexp.MustCompile("lookup")}
	if !o.Wants("wire lookup") || o.Wants("wire push") || !(bench.Options{}).Wants("x") {
		t.Error("Only chooses wrongly")
	}
}
