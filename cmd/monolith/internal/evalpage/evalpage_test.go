package evalpage_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/cmd/monolith/internal/evalpage"
	"github.com/monolith-go/monolith/job"
)

func measured(value, errs float64) job.Measured {
	return job.Measured{
		Examples: 1234, Metrics: job.Scores{"auc": value, "log_loss": math.NaN()}, Intervals: map[string]job.Interval{"auc": {Low: .7, High: .8}},
		Other:       job.Scores{"auc": .5},
		Differences: map[string]job.Difference{"auc": {Value: value - .5, Interval: job.Interval{Low: -.01, High: .02}, Errors: errs}},
	}
}

// few is a slice of four examples in order: nothing says how sure its AUC is.
func few() job.Measured {
	nan := math.NaN()
	m := measured(1, nan)
	m.Few, m.Intervals = []string{"auc"}, map[string]job.Interval{"auc": {Low: nan, High: nan}}
	m.Groups = map[string]job.GroupCount{"auc": {Groups: 2, OfGroups: 3, Examples: 6, OfExamples: 8}}
	return m
}

func evaluation() *job.EvalResult {
	nan := math.NaN()
	curves := []job.Curves{{
		ROC: [][2]float64{{0, 0}, {.25, .5}, {1, 1}}, Bins: []job.CalibrationBin{{Low: 0, High: .5, Weight: 3, Predicted: .25, Happened: .5}},
		High: 1, Negatives: []float64{3, 1}, Positives: []float64{0, 4},
	}}
	return &job.EvalResult{
		Measured: measured(.75, 3.25), Replicates: 40, Snapshot: "runs/<b>&\"x", Curves: curves,
		ComparedWith: &job.Compared{Job: "other", Snapshot: "o", Curves: curves},
		Slices: []job.SliceScores{
			{Column: "country", Value: "unsure", Measured: measured(.6, .5)},
			{Column: "country", Value: "few", Measured: few()},
			{Column: "country", Value: "unknown", Measured: measured(nan, nan)},
			{Column: "country", Value: "<script>", With: "device", WithValue: "tv", Measured: measured(.4, -9)},
			{Head: "click", Column: "country", Others: 1200, Measured: measured(.6, 2)},
		},
	}
}

// TestPage: the page is whole by itself, escapes what it is given, draws where the numbers are, and has slices in the order of how
// surely the models differ in them.
func TestPage(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := evalpage.Write(&b, "jo<b", evaluation()); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	for _, never := range []string{"http", "<script", "src=", "url(", "@import", "<link", "jo<b", "NaN", "Inf"} {
		if strings.Contains(got, never) {
			t.Errorf("the page has %q", never)
		}
	}
	for _, want := range []string{
		"jo&lt;b", "runs/&lt;b&gt;", "1,234 examples", "40 replicates", "<td>0.7500</td>", "0.7000 – 0.8000", "&#43;0.2500", "&#43;3.2",
		`points="52,254 127,134 352,14"`, // the ROC: a quarter across, half up
		`<rect class="negative" x="52" y="138.8" width="150" height="115.20">`,
		`<rect class="positive" x="202" y="62" width="150" height="153.60">`,
		"click: country: 1,200 others", "&lt;script&gt;, tv", "<td>1.0000</td><td class=\"dim\">too few</td>",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	last := -1
	for _, name := range []string{"&lt;script&gt;, tv", "1,200 others", "= unsure", "= few", "= unknown"} {
		at := strings.Index(got, name)
		if at <= last {
			t.Errorf("slice %q is at %d, the one before at %d", name, at, last)
		}
		last = at
	}
	// Every element ends, and each chart has a point, dot and bar for each number.
	d := xml.NewDecoder(strings.NewReader(regexp.MustCompile(`<meta [^>]*`).ReplaceAllString(got, "$0/")))
	count := map[string]int{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			count[e.Name.Local]++
			for _, a := range e.Attr {
				if a.Name.Local == "points" {
					count["points"] += len(strings.Fields(a.Value))
				}
			}
		}
	}
	for name, want := range map[string]int{
		"points": 2 + 3 + 3 + 2 + 1 + 1, // each chart's diagonal, two ROC curves, two calibrations of a bin
		"circle": 1 + 1,                 // a bin of each
		"rect":   3 + 3 + 2 + 2 + 2,     // bars, frames, and legends of each chart
		"tr":     1 + 2 + 1 + 5*2,       // metrics and slices
		"td":     2*7 + 5*2*(1+1+7),     // with all columns
	} {
		if count[name] != want {
			t.Errorf("%d of %s, want %d", count[name], name, want)
		}
	}
	if n := strings.Count(got, "<svg"); n != 3 {
		t.Errorf("%d charts", n)
	}
}

// TestPageOfLittle: an evaluation without curves, intervals, slices and other model.
func TestPageOfLittle(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	r := &job.EvalResult{Measured: job.Measured{Examples: 1, Metrics: job.Scores{"auc": math.NaN()}}, Curves: []job.Curves{{Low: 2, High: 2, Negatives: []float64{0}, Positives: []float64{0}}}}
	if err := evalpage.Write(&b, "x", r); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); strings.Contains(got, "NaN") || strings.Contains(got, "Slices") || !strings.Contains(got, "</html>") {
		t.Error(got)
	}
}
