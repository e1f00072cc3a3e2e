package ui

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/job"
)

// LogEvery is how often a run without a terminal logs its progress.
const LogEvery = 10 * time.Second

// StatusLine shows how far a run is: on a terminal as a line that is redrawn, elsewhere as a log line every [LogEvery]. Its
// methods may be called from several goroutines.
type StatusLine struct {
	screen *Screen
	logger *slog.Logger
	now    func() time.Time

	mu   sync.Mutex
	next time.Time
}

// NewStatusLine shows on screen or logs to logger. now is the clock; nil: time.Now.
func NewStatusLine(screen *Screen, logger *slog.Logger, now func() time.Time) *StatusLine {
	if now == nil {
		now = time.Now
	}
	return &StatusLine{screen: screen, logger: logger, now: now, next: now().Add(LogEvery)}
}

// Update shows p.
func (b *StatusLine) Update(p job.Status) {
	if b.screen.Terminal {
		b.screen.SetLine(Line(p, Width(b.screen.w)))
		return
	}
	b.mu.Lock()
	now := b.now()
	due := !now.Before(b.next)
	if due {
		b.next = now.Add(LogEvery)
	}
	b.mu.Unlock()
	if due {
		b.log(p)
	}
}

func (b *StatusLine) log(p job.Status) {
	attrs := []slog.Attr{
		slog.String("phase", p.Phase),
		slog.Int64(unit(p), p.Examples),
	}
	if !math.IsNaN(p.Rate) {
		attrs = append(attrs, slog.Float64(unit(p)+"_per_second", math.Round(p.Rate)))
	}
	if p.Total > 0 {
		attrs = append(attrs, slog.Int64("total", p.Total))
	}
	if p.Workers > 0 {
		attrs = append(attrs, slog.Int("workers", p.Workers))
	}
	if p.Epochs > 1 {
		attrs = append(attrs, slog.Int("epoch", p.Epoch))
	}
	if p.Bad > 0 {
		attrs = append(attrs, slog.Int64("bad", p.Bad))
	}
	if p.Lag >= 0 {
		attrs = append(attrs, slog.Int64("lag", p.Lag))
	}
	for _, o := range p.Outputs {
		if o.Lacks > 0 {
			attrs = append(attrs, slog.Int64("output_"+o.Name+"_lacks", o.Lacks))
		}
		if o.Waits > 0 {
			attrs = append(attrs, slog.Duration("output_"+o.Name+"_waits", o.Waits.Round(time.Second)))
		}
	}
	for _, s := range p.Scores {
		if !math.IsNaN(s.Value) {
			attrs = append(attrs, slog.Float64(scoreName(s, "_"), round4(s.Value)))
		}
	}
	b.logger.LogAttrs(context.Background(), slog.LevelInfo, "progress", attrs...)
}

// unit is what a status counts.
func unit(p job.Status) string {
	if p.Bytes {
		return "bytes"
	}
	return "examples"
}

// Done removes the line.
func (b *StatusLine) Done() { b.screen.SetLine("") }

// scoreName is what people call a score: loss, auc, click auc.
func scoreName(s job.HeadScore, between string) string {
	name := s.Metric
	if name == "log_loss" {
		name = "loss"
	}
	if s.Head != "" {
		return s.Head + between + name
	}
	return name
}

func round4(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// Line renders progress in one line: a bar, share and remaining time where the total is known, the lag where it is not, and
// no rate before there is one. Where it would not be shorter than width, what says least goes: the bar, the AUC, the loss.
func Line(p job.Status, width int) string {
	type part struct {
		text, short string
		goes        int // when it gets its short text; 0: never
	}
	var parts []part
	count := Count
	if p.Bytes {
		count = Bytes
	}
	add := func(format string, args ...any) { parts = append(parts, part{text: fmt.Sprintf(format, args...)}) }
	add("%s", p.Phase)
	if p.Epochs > 1 {
		add("epoch %d/%d", p.Epoch, p.Epochs)
	}
	if p.Total > 0 {
		share := min(1, float64(p.Examples)/float64(p.Total))
		const bar = 20
		full := int(share * bar)
		percent := fmt.Sprintf("%3.0f%%", math.Floor(share*100))
		parts = append(parts, part{fmt.Sprintf("[%s%s] %s", strings.Repeat("=", full), strings.Repeat(" ", bar-full), percent), percent, 1})
		add("%s/%s", count(p.Examples), count(p.Total))
	} else {
		add("%s %s", Count(p.Examples), unit(p))
	}
	var speed []string
	switch {
	case math.IsNaN(p.Rate):
	case p.Bytes:
		speed = append(speed, Bytes(int64(p.Rate))+"/s")
	default:
		speed = append(speed, Short(p.Rate)+"/s")
	}
	switch {
	case p.Workers == 1:
		speed = append(speed, "1 worker")
	case p.Workers > 1:
		speed = append(speed, fmt.Sprintf("%d workers", p.Workers))
	}
	if len(speed) > 0 {
		add("%s", strings.Join(speed, ", "))
	}
	if p.Bad > 0 {
		add("bad %s", Count(p.Bad))
	}
	if p.Lag >= 0 && p.Total == 0 {
		add("lag %s", Count(p.Lag))
	}
	for _, o := range p.Outputs {
		if o.Lacks > 0 {
			add("output %s lacks %s", o.Name, Count(o.Lacks))
		}
		if o.Waits > 0 {
			add("waiting for output %s for %s", o.Name, o.Waits.Round(time.Second))
		}
	}
	for rest := p.Scores; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Head == rest[0].Head {
			n++
		}
		for i, s := range slices.Backward(rest[:n]) { // the log loss, then the AUC, which goes first
			if !math.IsNaN(s.Value) {
				parts = append(parts, part{fmt.Sprintf("%s %.4f", scoreName(s, " "), s.Value), "", 2 + min(i, 1)})
			}
		}
		rest = rest[n:]
	}
	if left := p.Total - p.Examples; p.Total > 0 && left > 0 && p.Rate > 0 {
		add("eta %s", time.Duration(float64(left)/p.Rate*float64(time.Second)).Round(time.Second))
	}
	line := ""
	for gone := 0; gone <= 3; gone++ {
		var texts []string
		for _, part := range parts {
			if part.goes > 0 && part.goes <= gone {
				part.text = part.short
			}
			if part.text != "" {
				texts = append(texts, part.text)
			}
		}
		if line = strings.Join(texts, "  "); len(line) < width {
			break
		}
	}
	return line
}
