// Package evalpage writes an evaluation as one page of HTML with its charts inside as SVG: it needs no network, no script and no
// other file to be shown.
package evalpage

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
)

//go:embed page.html
var text string

// Write writes the page of an evaluation of the job of that name. Slices come in the order of how surely they differ: from the other model
// where there is one, otherwise from all examples. Those with too few examples to say come last.
func Write(w io.Writer, name string, r *job.EvalResult) error {
	t, err := template.New("page").Parse(text)
	if err != nil {
		return err
	}
	return t.Execute(w, pageOf(name, r))
}

type page struct {
	Name, Snapshot, Other string
	Examples              string
	Replicates            int
	Compared              bool
	Metrics               []figure
	Heads                 []head
	Slices                []slice
}

// figure is a metric in words.
type figure struct {
	Name, Value, Of, Interval, Other, Difference, DifferenceInterval, Errors string
	Sure                                                                     bool
}

type head struct {
	Name   string
	Charts []chart
}

type slice struct {
	Name, Examples string
	Figures        []figure
	errors         float64 // the most standard errors of a metric; -1: none has any
}

// sure is how many standard errors a difference has that is hardly chance.
const sure = 2

func pageOf(name string, r *job.EvalResult) *page {
	p := &page{Name: name, Snapshot: r.Snapshot, Examples: ui.Count(r.Examples), Replicates: r.Replicates}
	var others []job.Curves
	if c := r.ComparedWith; c != nil {
		p.Compared, p.Other, others = true, c.Snapshot, c.Curves
		if c.Job != "" {
			p.Other = c.Job + ", " + c.Snapshot
		}
	}
	p.Metrics = figures(&r.Measured, r.Differences)
	for _, c := range r.Curves {
		var other *job.Curves
		if i := slices.IndexFunc(others, func(o job.Curves) bool { return o.Head == c.Head }); i >= 0 {
			other = &others[i]
		}
		p.Heads = append(p.Heads, head{c.Head, charts(&c, other)})
	}
	for i := range r.Slices {
		s := &r.Slices[i]
		differences := s.FromAll
		if p.Compared {
			differences = s.Differences
		}
		out := slice{Name: sliceName(s), Examples: ui.Count(s.Examples), Figures: figures(&s.Measured, differences), errors: -1}
		for _, d := range differences {
			if e := math.Abs(d.Errors); e > out.errors { // not for NaN
				out.errors = e
			}
		}
		p.Slices = append(p.Slices, out)
	}
	slices.SortStableFunc(p.Slices, func(a, b slice) int { return cmp.Compare(b.errors, a.errors) })
	return p
}

func figures(m *job.Measured, differences map[string]job.Difference) (out []figure) {
	for _, name := range m.Metrics.Names() {
		f := figure{Name: name, Value: ui.Score(m.Metrics[name])}
		few := slices.Contains(m.Few, name)
		if n, ok := m.Groups[name]; ok {
			f.Of = fmt.Sprintf("%s of %s examples, %s of %s groups", ui.Count(int64(n.Examples)), ui.Count(int64(n.OfExamples)), ui.Count(int64(n.Groups)), ui.Count(int64(n.OfGroups)))
		}
		if i, ok := m.Intervals[name]; few {
			f.Interval = "too few"
		} else if ok {
			f.Interval = ui.Score(i.Low) + " – " + ui.Score(i.High)
		}
		if v, ok := m.Other[name]; ok {
			f.Other = ui.Score(v)
		}
		if d, ok := differences[name]; ok {
			f.Difference = signed(d.Value)
			if m.Intervals != nil && !few {
				f.DifferenceInterval = signed(d.Interval.Low) + " – " + signed(d.Interval.High)
			}
			if e := d.Errors; !math.IsNaN(e) && !math.IsInf(e, 0) {
				f.Errors, f.Sure = fmt.Sprintf("%+.1f", e), math.Abs(e) >= sure
			}
		}
		out = append(out, f)
	}
	return out
}

func signed(x float64) string {
	if text := ui.Score(x); text == "-" || x < 0 {
		return text
	}
	return "+" + ui.Score(x)
}

func sliceName(s *job.SliceScores) string {
	columns, value := s.Column, s.Value
	if s.With != "" {
		columns, value = s.Column+", "+s.With, s.Value+", "+s.WithValue
	}
	name := columns + " = " + value
	if s.Others > 0 {
		name = fmt.Sprintf("%s: %s others", columns, ui.Count(int64(s.Others)))
	}
	if s.Head != "" {
		name = s.Head + ": " + name
	}
	return name
}

// The inside of a chart, in the units of its SVG.
const (
	chartWidth, chartHeight = 300, 240
	chartLeft, chartTop     = 52, 14
)

// chart is the lines and bars of one SVG.
type chart struct {
	Title, Across, Up string
	Lines             []line
	Bars              []bar
	Dots              []dot
	AcrossTicks       []tick
	UpTicks           []tick
	Legend            []legend
}

type (
	line   struct{ Class, Points string }
	bar    struct{ Class, X, Y, Width, Height, Title string }
	dot    struct{ Class, X, Y, Radius, Title string }
	tick   struct{ At, Text string }
	legend struct {
		Class, Text string
		Y           int
	}
)

// axes maps values from 0 to right and from 0 to top into a chart.
type axes struct{ left, right, top float64 }

func (a axes) x(v float64) float64 { return chartLeft + (v-a.left)/(a.right-a.left)*chartWidth }
func (a axes) y(v float64) float64 { return chartTop + (1-v/a.top)*chartHeight }

func number(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// ticks sets the ticks of both axes.
func (c *chart) ticks(a axes, up func(float64) string) {
	for i := range 5 {
		share := float64(i) / 4
		x, y := a.left+share*(a.right-a.left), share*a.top
		c.AcrossTicks = append(c.AcrossTicks, tick{number(a.x(x)), fmt.Sprintf("%.3g", x)})
		c.UpTicks = append(c.UpTicks, tick{number(a.y(y)), up(y)})
	}
}

func plain(v float64) string { return fmt.Sprintf("%.3g", v) }

func (c *chart) name(class, text string) {
	c.Legend = append(c.Legend, legend{class, text, chartTop + 14 + 16*len(c.Legend)})
}

func charts(c, other *job.Curves) (out []chart) {
	unit := axes{0, 1, 1}
	if len(c.ROC) > 0 {
		roc := chart{Title: "ROC", Across: "false positive rate", Up: "true positive rate"}
		roc.ticks(unit, plain)
		roc.Lines = append(roc.Lines, line{"even", points(unit, [][2]float64{{0, 0}, {1, 1}})})
		if other != nil {
			roc.Lines = append(roc.Lines, line{"other", points(unit, other.ROC)})
			roc.name("mine", "this model")
			roc.name("other", "other model")
		}
		roc.Lines = append(roc.Lines, line{"mine", points(unit, c.ROC)})
		out = append(out, roc)
	}
	for _, kind := range []struct {
		title string
		of    func(*job.Curves) []job.CalibrationBin
	}{
		{"Calibration, bins of equal width", func(c *job.Curves) []job.CalibrationBin { return c.Bins }},
		{"Calibration, bins of equal weight", func(c *job.Curves) []job.CalibrationBin { return c.MassBins }},
	} {
		bins := kind.of(c)
		if len(bins) == 0 {
			continue
		}
		var theirs []job.CalibrationBin
		if other != nil {
			theirs = kind.of(other)
		}
		out = append(out, calibration(kind.title, bins, theirs))
	}
	return append(out, histogram(c))
}

// calibration is a reliability diagram as far as its bins go.
func calibration(title string, bins, theirs []job.CalibrationBin) chart {
	c := chart{Title: title, Across: "mean prediction", Up: "mean label"}
	most, weight := 0.0, 0.0
	for _, b := range slices.Concat(bins, theirs) {
		most, weight = max(most, b.Predicted, b.Happened), max(weight, b.Weight)
	}
	if most <= 0 {
		most = 1
	}
	a := axes{0, most, most}
	c.ticks(a, plain)
	c.Lines = append(c.Lines, line{"even", points(a, [][2]float64{{0, 0}, {most, most}})})
	draw := func(class string, bins []job.CalibrationBin) {
		var at [][2]float64
		for _, b := range bins {
			at = append(at, [2]float64{b.Predicted, b.Happened})
			c.Dots = append(c.Dots, dot{
				class, number(a.x(b.Predicted)), number(a.y(b.Happened)), number(2 + 3*math.Sqrt(b.Weight/weight)),
				fmt.Sprintf("%.4g to %.4g: predicted %.4g, happened %.4g, weight %.6g", b.Low, b.High, b.Predicted, b.Happened, b.Weight),
			})
		}
		c.Lines = append(c.Lines, line{class, points(a, at)})
	}
	if len(theirs) > 0 {
		draw("other", theirs)
		c.name("mine", "this model")
		c.name("other", "other model")
	}
	draw("mine", bins)
	return c
}

// histogram stacks positives on negatives, each as a share of all examples.
func histogram(h *job.Curves) chart {
	c := chart{Title: "Predictions", Across: "prediction", Up: "share of examples"}
	total, most := 0.0, 0.0
	for i := range h.Negatives {
		total += h.Negatives[i] + h.Positives[i]
		most = max(most, h.Negatives[i]+h.Positives[i])
	}
	a := axes{h.Low, h.High, 1}
	if h.High <= h.Low {
		a.right = h.Low + 1
	}
	if total > 0 {
		a.top = 1.25 * most / total // the legend lies above the bars
	}
	c.ticks(a, func(v float64) string { return fmt.Sprintf("%.3g%%", 100*v) })
	width := (a.right - a.left) / float64(max(len(h.Negatives), 1))
	for i := range h.Negatives {
		low, below := a.left+float64(i)*width, 0.0
		for _, part := range []struct {
			class, of string
			weight    float64
		}{{"negative", "negatives", h.Negatives[i]}, {"positive", "positives", h.Positives[i]}} {
			if part.weight <= 0 {
				continue
			}
			share := part.weight / total
			c.Bars = append(c.Bars, bar{
				part.class, number(a.x(low)), number(a.y(below + share)), number(a.x(low+width) - a.x(low)), fmt.Sprintf("%.2f", a.y(below)-a.y(below+share)),
				fmt.Sprintf("%.4g to %.4g: %s of weight %.6g", low, low+width, part.of, part.weight),
			})
			below += share
		}
	}
	c.name("negative", "negatives")
	c.name("positive", "positives")
	return c
}

func points(a axes, at [][2]float64) string {
	var b strings.Builder
	for i, p := range at {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(number(a.x(p[0])) + "," + number(a.y(p[1])))
	}
	return b.String()
}
