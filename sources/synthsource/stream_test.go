package synthsource_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/synthsource"
)

func newStream(tb testing.TB, opts synthsource.Options) *synthsource.Stream {
	tb.Helper()
	s, err := synthsource.NewStream(opts)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// auc ranks examples by score.
func auc(t *testing.T, examples []synthsource.Example, score func(ex *synthsource.Example) float64) float64 {
	t.Helper()
	scores, labels := make([]float32, len(examples)), make([]float32, len(examples))
	for i := range examples {
		scores[i] = float32(score(&examples[i]))
		if examples[i].Click {
			labels[i] = 1
		}
	}
	a, ok := metric.AUC(scores, labels, nil)
	if !ok {
		t.Fatal("the examples have one class only")
	}
	return a
}

func truth(ex *synthsource.Example) float64 { return ex.Probability }

func TestGolden(t *testing.T) {
	t.Parallel()
	s := newStream(t, synthsource.Options{Seed: 1})
	var got strings.Builder
	var ex synthsource.Example
	for _, i := range []int64{0, 1, 2, 199_999} {
		s.At(i, &ex)
		fmt.Fprintf(&got, "%d %s user=%d item=%d category=%d audience=%d hour=%d %s %s history=%v price=%.3f p=%.6f click=%t minutes=%.3f of %.3f\n",
			ex.Index, time.UnixMicro(ex.Time).UTC().Format(time.RFC3339), ex.User, ex.Item, ex.Category, ex.Audience, ex.Hour,
			ex.Country, ex.Device, ex.History, ex.Price, ex.Probability, ex.Click, ex.Minutes, ex.ExpectedMinutes)
	}
	want := `0 2026-01-01T00:00:00Z user=46 item=298 category=2 audience=2 hour=10 cn phone history=[9] price=0.252 p=0.169001 click=false minutes=0.000 of 1.353
1 2026-01-01T00:00:03Z user=340 item=247 category=5 audience=1 hour=4 sa phone history=[11] price=0.089 p=0.721364 click=true minutes=6.151 of 4.827
2 2026-01-01T00:00:06Z user=19 item=25 category=3 audience=1 hour=14 nz phone history=[3 3 2 3] price=1.780 p=0.317152 click=true minutes=1.417 of 2.045
199999 2026-01-07T22:39:57Z user=8 item=106 category=8 audience=6 hour=10 au desktop history=[] price=1.214 p=0.067775 click=false minutes=0.000 of 0.809
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("examples differ (-want +got):\n%s", diff)
	}
	h := sha256.New()
	var buf []byte
	for i := range int64(1000) {
		s.At(i, &ex)
		buf = ex.AppendTFExample(buf[:0])
		h.Write(buf)
	}
	if got, want := hex.EncodeToString(h.Sum(nil)[:8]), "41aa5f49a9261afa"; got != want {
		t.Errorf("the first 1000 records hash to %s, want %s", got, want)
	}
}

func TestAtIsAFunctionOfSeedAndIndex(t *testing.T) {
	t.Parallel()
	opts := synthsource.Options{Seed: 5, Examples: 3000}
	forward, backward := newStream(t, opts), newStream(t, opts)
	var want [3000]synthsource.Example
	for i := range want {
		forward.At(int64(i), &want[i])
	}
	var reused synthsource.Example
	for i := len(want) - 1; i >= 0; i-- {
		backward.At(int64(i), &reused)
		if got, want := reused.AppendTFExample(nil), want[i].AppendTFExample(nil); !bytes.Equal(got, want) {
			t.Fatalf("example %d differs when it is made in another order:\n%x\n%x", i, got, want)
		}
		if reused.Probability != want[i].Probability || reused.Time != want[i].Time {
			t.Fatalf("example %d: probability %v at %d, want %v at %d", i, reused.Probability, reused.Time, want[i].Probability, want[i].Time)
		}
		if i > 0 && want[i].Time <= want[i-1].Time {
			t.Fatalf("time stands still at example %d", i)
		}
	}
	opts.Seed++
	same := 0
	other := newStream(t, opts)
	for i := range want {
		if other.At(int64(i), &reused); reused.User == want[i].User && reused.Item == want[i].Item {
			same++
		}
	}
	if same > len(want)/50 {
		t.Errorf("another seed gives the same user and item in %d of %d examples", same, len(want))
	}
}

func TestRecordHoldsTheExample(t *testing.T) {
	t.Parallel()
	s := newStream(t, synthsource.Options{Seed: 2})
	names := []string{
		synthsource.FeatureUser, synthsource.FeatureItem, synthsource.FeatureCategory, synthsource.FeatureAudience,
		synthsource.FeatureHour, synthsource.FeatureHistory, synthsource.FeatureCountry, synthsource.FeatureDevice,
		synthsource.FeaturePrice, synthsource.FeatureClick, synthsource.FeatureMinutes,
	}
	scanner, err := example.NewScanner(names)
	if err != nil {
		t.Fatal(err)
	}
	var ex synthsource.Example
	for i := range int64(500) {
		s.At(i, &ex)
		values, err := scanner.Scan(ex.AppendTFExample(nil))
		if err != nil {
			t.Fatal(err)
		}
		var ints [6][]int64
		for k := range ints {
			if ints[k], err = values[k].AppendInt64s(nil); err != nil {
				t.Fatalf("%s: %v", names[k], err)
			}
		}
		want := [6][]int64{{ex.User}, {ex.Item}, {ex.Category}, {ex.Audience}, {ex.Hour}, ex.History}
		if diff := cmp.Diff(want, ints, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("example %d (-want +got):\n%s", i, diff)
		}
		for k, want := range map[int]string{6: ex.Country.String(), 7: ex.Device.String()} {
			if got, err := values[k].AppendBytes(nil); err != nil || len(got) != 1 || string(got[0]) != want {
				t.Errorf("example %d: %s is %q (%v), want %q", i, names[k], got, err, want)
			}
		}
		click := float32(0)
		if ex.Click {
			click = 1
		}
		minutes, err := values[10].AppendFloats(nil)
		if err != nil || len(minutes) != int(click) || ex.Click && (minutes[0] != ex.Minutes || !(ex.Minutes > 0)) || !ex.Click && ex.Minutes != 0 {
			t.Errorf("example %d: minutes are %v in the record and %v (%v), click %v", i, minutes, ex.Minutes, err, ex.Click)
		}
		for k, want := range map[int]float32{8: ex.Price, 9: click} {
			if got, err := values[k].AppendFloats(nil); err != nil || len(got) != 1 || got[0] != want {
				t.Errorf("example %d: %s is %v (%v), want %v", i, names[k], got, err, want)
			}
		}
	}
}

func TestProbabilitiesAreCalibrated(t *testing.T) {
	t.Parallel()
	const n = 100_000
	s := newStream(t, synthsource.Options{Seed: 3, Examples: n})
	stream := make([]synthsource.Example, n)
	for i := range stream {
		s.At(int64(i), &stream[i])
	}
	for name, examples := range map[string][]synthsource.Example{"stream": stream, "held out": s.HeldOut(n, n)} {
		var clicks, expected, variance [11]float64 // by tenth of the probability; the last is the total
		for i := range examples {
			p := examples[i].Probability
			for _, k := range []int{int(p * 10), 10} {
				expected[k] += p
				variance[k] += p * (1 - p)
				if examples[i].Click {
					clicks[k]++
				}
			}
		}
		for k := range clicks {
			if z := (clicks[k] - expected[k]) / math.Sqrt(variance[k]+1e-9); math.Abs(z) > 4 {
				t.Errorf("%s, tenth %d: %v clicks, want %.1f: %.1f standard deviations apart", name, k, clicks[k], expected[k], z)
			}
		}
	}
}

// TestMinutesAreAsExpected: the mean of what clicks were watched over what was expected is 1 wherever the odds are, and the
// expectation is a better guess than the mean of all.
func TestMinutesAreAsExpected(t *testing.T) {
	t.Parallel()
	const n = 200_000
	s := newStream(t, synthsource.Options{Seed: 3, Examples: n})
	var clicks, ratio, squares [11]float64 // by tenth of the probability; the last is the total
	var sum, sumSquares, left float64
	var ex synthsource.Example
	for i := range int64(n) {
		if s.At(i, &ex); !ex.Click {
			continue
		}
		if want := 3 * math.Sqrt(ex.Probability/(1-ex.Probability)); math.Abs(ex.ExpectedMinutes-want) > 1e-9*want {
			t.Fatalf("example %d is expected to be watched for %v minutes at probability %v, want %v", i, ex.ExpectedMinutes, ex.Probability, want)
		}
		y := float64(ex.Minutes)
		for _, k := range []int{int(ex.Probability * 10), 10} {
			clicks[k]++
			ratio[k] += y / ex.ExpectedMinutes
			squares[k] += (y/ex.ExpectedMinutes - 1) * (y/ex.ExpectedMinutes - 1)
		}
		sum, sumSquares, left = sum+y, sumSquares+y*y, left+(y-ex.ExpectedMinutes)*(y-ex.ExpectedMinutes)
	}
	for k, c := range clicks {
		if c < 10 {
			continue
		}
		if z := (ratio[k]/c - 1) / math.Sqrt(squares[k]) * c; math.Abs(z) > 4 {
			t.Errorf("tenth %d: %.0f clicks are watched %.4f of what is expected, %.1f standard deviations from 1", k, c, ratio[k]/c, z)
		}
	}
	variance := sumSquares - sum*sum/clicks[10]
	if share := left / variance; share < 0.18 || share > 0.32 {
		t.Errorf("%.3f of the variance is left over, want about a quarter", share)
	}
}

func TestWorldsOfAllSeedsAreAlike(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		s := newStream(t, synthsource.Options{Seed: seed})
		held := s.HeldOut(s.Len(), 10_000)
		rate := 0.0
		for i := range held {
			rate += held[i].Probability / float64(len(held))
		}
		if rate < 0.25 || rate > 0.38 {
			t.Errorf("seed %d: %.3f of the examples are clicks", seed, rate)
		}
		best := auc(t, held, truth)
		if best < 0.77 || best > 0.88 {
			t.Errorf("seed %d: the best AUC is %.4f", seed, best)
		}
		// Tastes point everywhere, so their mean over the audiences leaves what a model without interactions may know.
		additive := auc(t, held, func(ex *synthsource.Example) float64 {
			sum, plain := 0.0, *ex
			plain.History = nil
			for a := range s.Options().Audiences {
				plain.Audience = int64(a) + 1
				p := s.ProbabilityAt(&plain, s.Len())
				sum += math.Log(p / (1 - p))
			}
			return sum
		})
		if additive > best-0.07 {
			t.Errorf("seed %d: AUC %.4f without interactions, the best is %.4f: the interactions hardly matter", seed, additive, best)
		}
	}
}

func TestDrift(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		drift     *synthsource.Drift
		low, high float64 // AUC that knowledge of the middle of the period loses at its end
	}{
		{"default", nil, 0.015, 0.15},
		{"still", &synthsource.Drift{}, 0, 0},
		{"turnover only", &synthsource.Drift{Turnover: 1}, 0.015, 0.15},
		{"rotation only", &synthsource.Drift{Rotation: 0.25}, 0.015, 0.15},
		{"shifts only", &synthsource.Drift{Shifts: []float64{0.5, 0.6, 0.7, 0.8}}, 0.015, 0.15},
		{"shifts of the first half", &synthsource.Drift{Shifts: []float64{0, 0.2, 0.4}}, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(5) {
				s := newStream(t, synthsource.Options{Seed: seed, Drift: test.drift})
				held := s.HeldOut(s.Len()-1, 20_000)
				lost := auc(t, held, truth) - auc(t, held, func(ex *synthsource.Example) float64 { return s.ProbabilityAt(ex, s.Len()/2) })
				if lost < test.low || lost > test.high {
					t.Errorf("seed %d: knowledge of the middle loses %.4f of AUC, want %v to %v", seed, lost, test.low, test.high)
				}
			}
		})
	}
}

func TestItemsAreBornAllTheTime(t *testing.T) {
	t.Parallel()
	s := newStream(t, synthsource.Options{Seed: 4})
	const tenths = 10
	var fresh [tenths]int
	seen := map[int64]bool{}
	var ex synthsource.Example
	for i := range s.Len() {
		if s.At(i, &ex); !seen[ex.Item] {
			seen[ex.Item] = true
			fresh[i*tenths/s.Len()]++
		}
	}
	// 300 at the beginning, then 0.4 · 300 in a period: 12 in a tenth of it.
	if fresh[0] < 300 || fresh[0] > 300+20 {
		t.Errorf("%d items in the first tenth", fresh[0])
	}
	for k, n := range fresh[1:] {
		if n < 6 || n > 18 {
			t.Errorf("%d items are born in tenth %d, want about 12", n, k+1)
		}
	}
}

func TestHeldOutShowsThePresentAndNothingOfTheStream(t *testing.T) {
	t.Parallel()
	s := newStream(t, synthsource.Options{Seed: 6, Examples: 5000})
	held := s.HeldOut(s.Len(), 2000)
	same := 0
	var ex synthsource.Example
	for i := range held {
		if got := s.ProbabilityAt(&held[i], s.Len()); got != held[i].Probability {
			t.Fatalf("held-out example %d has probability %v as of the end, not %v", i, got, held[i].Probability)
		}
		if held[i].Index != s.Len()+int64(i) {
			t.Fatalf("held-out example %d has index %d", i, held[i].Index)
		}
		if s.At(held[i].Index, &ex); ex.User == held[i].User && ex.Item == held[i].Item && ex.Device == held[i].Device {
			same++
		}
		if s.At(int64(i), &ex); s.ProbabilityAt(&ex, ex.Index) != ex.Probability {
			t.Fatalf("example %d: probability as of its own time is not its probability", i)
		}
	}
	if same > len(held)/50 {
		t.Errorf("%d of %d held-out examples repeat one of the stream", same, len(held))
	}
}

func TestOptionsFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		opts synthsource.Options
		want []string
	}{
		{"defaults", synthsource.Options{}, nil},
		{"unbounded", synthsource.Options{Examples: synthsource.Unbounded}, nil},
		{
			"everything",
			synthsource.Options{
				Examples: -2, HeldOut: -3, Period: -1, Splits: -1, Users: -1, Items: -1, Categories: 4, Audiences: -1, Interval: time.Nanosecond,
				Start: time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC), Rate: math.NaN(), BlockRows: -1,
				Drift: &synthsource.Drift{Turnover: -1, Rotation: math.Inf(1), Shifts: []float64{0, 1}},
			},
			[]string{
				"examples is -2", "held_out is -3", "period is -1", "splits is -1", "users is -1", "items is -1", "categories is 4", "audiences is -1", "interval is 1ns",
				"start is 1969", "rate is NaN", "block_rows is -1", "turnover is -1", "rotation is +Inf", "shift 1 is 1",
			},
		},
		{"only the length", synthsource.Options{Examples: -5}, []string{"examples is -5"}},
		{"held out behind no end", synthsource.Options{Examples: synthsource.Unbounded, HeldOut: 5}, []string{"held_out is 5, but a stream without end"}},
		{"times overflow", synthsource.Options{Examples: synthsource.Unbounded, Interval: time.Hour}, []string{"examples × interval is"}},
		{"item numbers overflow", synthsource.Options{Examples: synthsource.Unbounded, Period: 1}, []string{"drift would number"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := synthsource.New(test.opts)
			if test.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, pipeline.ErrConfig) {
				t.Fatalf("%v does not wrap ErrConfig", err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(test.want) {
				t.Errorf("%d faults, want %d:\n%v", len(lines), len(test.want), err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no fault says %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestOptionsAreCopied(t *testing.T) {
	t.Parallel()
	drift := synthsource.DefaultDrift()
	s := newStream(t, synthsource.Options{Drift: drift})
	drift.Turnover, drift.Shifts[0] = 9, 0.9
	got := s.Options()
	if diff := cmp.Diff(synthsource.DefaultDrift(), got.Drift); diff != "" {
		t.Errorf("a change of the caller's drift changed the stream's:\n%s", diff)
	}
	got.Drift.Shifts[0] = 0.9
	if diff := cmp.Diff(synthsource.DefaultDrift(), s.Options().Drift); diff != "" {
		t.Errorf("a change of the options returned changed the stream's:\n%s", diff)
	}
}

func TestAtAllocatesNothing(t *testing.T) {
	s := newStream(t, synthsource.Options{})
	ex := synthsource.Example{History: make([]int64, 0, 4)}
	i := int64(0)
	if n := testing.AllocsPerRun(1000, func() { s.At(i, &ex); i++ }); n != 0 {
		t.Errorf("%v allocations for an example", n)
	}
}

func BenchmarkAt(b *testing.B) {
	s := newStream(b, synthsource.Options{})
	var ex synthsource.Example
	b.ReportAllocs()
	i := int64(0)
	for b.Loop() {
		s.At(i, &ex)
		i++
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
