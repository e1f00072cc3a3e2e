// Package bench measures implementations side by side in one run.
//
// On a machine that does other work beside, or a virtual one, a figure alone does not tell a better program from a quieter
// moment. So candidates take turns in short slices, what is compared is the ratio within one round, and the first
// candidate is measured twice in each round: what lies between these two (the control) means nothing.
package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Options say how long to measure. The zero value works.
type Options struct {
	// Rounds is how many times the candidates take turns; default 9. An odd number has a median.
	Rounds int
	// Each is how long a candidate is measured in a round; default 100 ms.
	Each time.Duration
	// Rows is the size of tables, for what has one; 0 is the benchmark's own.
	Rows int
	// Only chooses comparisons by name; nil: all.
	Only *regexp.Regexp
	// Dir is where files are written, for what writes some; "" is the folder for temporary files.
	Dir string
	// With says where other programs are, by the names that the benchmark has for them. One that is not here is looked for on PATH, and left
	// out where it is missing.
	With map[string]string
}

// WithDefaults returns o with what is not set.
func (o Options) WithDefaults() Options {
	if o.Rounds <= 0 {
		o.Rounds = 9
	}
	if o.Each <= 0 {
		o.Each = 100 * time.Millisecond
	}
	if o.Dir == "" {
		o.Dir = os.TempDir()
	}
	return o
}

// Wants reports whether a comparison of this name was asked for.
func (o Options) Wants(name string) bool { return o.Only == nil || o.Only.MatchString(name) }

// Result is one comparison. Its keys are the same for all benchmarks.
type Result struct {
	// Name is benchmark and case, such as "wire lookup 256 KiB".
	Name string `json:"name"`
	// Ours is the median of our rate, or of a time where Unit is one.
	Ours float64 `json:"ours"`
	// Theirs are the medians of the others by name.
	Theirs map[string]float64 `json:"theirs"`
	// Ratio is the median over rounds of ours to the best of theirs, the largest rate or shortest time; 0 when there is none.
	Ratio float64 `json:"ratio"`
	// Control is the median over rounds of our second measurement to our first; 0 when there was one only.
	Control float64 `json:"control"`
	// Absent says of others that were left out, by name, why.
	Absent map[string]string `json:"absent,omitempty"`
	// Unit is that of Ours and Theirs.
	Unit string `json:"unit"`
	// Machine is what it was measured on.
	Machine string `json:"machine"`
}

// Candidate is one of those that are compared.
type Candidate struct {
	Name string
	// Run does the work once and returns how much of it: examples, bytes, operations.
	Run func() (work float64, err error)
	// Timed is Run of a program that takes its time itself, in seconds by the clock, so that what it does before and after does not count.
	// One of the two is nil.
	Timed func() (work, seconds float64, err error)
}

// Wall is the clock in seconds.
func Wall() float64 { return float64(time.Now().UnixNano()) / 1e9 }

// Compare measures candidates in turns, the first of them twice in each round, and returns work per second of clock, which is
// [Wall] or [CPUSeconds]. Each is run once before that. Errors: those of the candidates, the context's.
func Compare(ctx context.Context, o Options, name, unit string, clock func() float64, ours Candidate, theirs ...Candidate) (Result, error) {
	o = o.WithDefaults()
	all := append(append([]Candidate{ours}, theirs...), ours)
	rates := make([][]float64, len(all))
	for _, c := range all[:len(all)-1] {
		if _, _, err := c.once(clock); err != nil {
			return Result{}, fmt.Errorf("%s: %s: %w", name, c.Name, err)
		}
	}
	for range o.Rounds {
		for i, c := range all {
			rate, err := c.rate(ctx, o.Each, clock)
			if err != nil {
				return Result{}, fmt.Errorf("%s: %s: %w", name, c.Name, err)
			}
			rates[i] = append(rates[i], rate)
		}
	}
	return result(name, unit, theirs, rates), nil
}

func result(name, unit string, theirs []Candidate, rates [][]float64) Result {
	first, last := rates[0], rates[len(rates)-1]
	r := Result{
		Name: name, Unit: unit, Ours: Median(slices.Concat(first, last)), Theirs: map[string]float64{},
		Control: Median(ratios(last, first)), Machine: Machine(),
	}
	best := -1.0
	for i, c := range theirs {
		m := Median(rates[1+i])
		r.Theirs[c.Name] = m
		if m > best {
			best = m
			r.Ratio = Median(slices.Concat(ratios(first, rates[1+i]), ratios(last, rates[1+i])))
		}
	}
	return r
}

func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

// rate runs a candidate for a time.
func (c Candidate) rate(ctx context.Context, each time.Duration, clock func() float64) (float64, error) {
	work, spent, begin := 0.0, 0.0, time.Now()
	for {
		w, seconds, err := c.once(clock)
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return 0, err
		}
		work, spent = work+w, spent+seconds
		if time.Since(begin) < each {
			continue
		}
		if spent <= 0 {
			return 0, errors.New("no clock of processor time on this system")
		}
		return work / spent, nil
	}
}

// once runs a candidate once.
func (c Candidate) once(clock func() float64) (work, seconds float64, err error) {
	if c.Timed != nil {
		return c.Timed()
	}
	from := clock()
	work, err = c.Run()
	return work, clock() - from, err
}

// Median returns the middle of values, the mean of both middles of an even number, and NaN of none. It sorts values.
func Median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	return (values[n/2] + values[(n-1)/2]) / 2
}

// Machine describes this machine: processor, cores in use, system, Go.
func Machine() string {
	cpu := runtime.GOARCH
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	cores := "1 core"
	if n := runtime.GOMAXPROCS(0); n > 1 {
		cores = fmt.Sprintf("%d cores", n)
	}
	return fmt.Sprintf("%s, %s, %s, %s", cpu, cores, runtime.GOOS, runtime.Version())
}

// Text is a table of results for people. What they were measured on stands behind the last of those that were measured on the same.
func Text(results []Result) string {
	var b strings.Builder
	for i, r := range results {
		fmt.Fprintf(&b, "%-44s %10s %s", r.Name, number(r.Ours), r.Unit)
		for _, name := range slices.Sorted(maps.Keys(r.Theirs)) {
			fmt.Fprintf(&b, "; %s %s", name, number(r.Theirs[name]))
		}
		if r.Ratio != 0 {
			fmt.Fprintf(&b, "; ratio %.2f", r.Ratio)
		}
		if r.Control != 0 {
			fmt.Fprintf(&b, "; control %.2f", r.Control)
		}
		for _, name := range slices.Sorted(maps.Keys(r.Absent)) {
			fmt.Fprintf(&b, "\n  without %s: %s", name, r.Absent[name])
		}
		b.WriteByte('\n')
		if i == len(results)-1 || results[i+1].Machine != r.Machine {
			fmt.Fprintf(&b, "on %s\n", r.Machine)
		}
	}
	return b.String()
}

// number has four digits that count.
func number(x float64) string {
	if math.Abs(x) >= 1000 || x == math.Trunc(x) {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.4g", x)
}
