package ui

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/job"
)

// LogEvery is how often a run without a terminal logs its progress.
const LogEvery = 10 * time.Second

// Progress shows how far a run is: on a terminal as a line that is redrawn, elsewhere as a log line every [LogEvery]. Its
// methods may be called from several goroutines.
type Progress struct {
	screen *Screen
	logger *slog.Logger
	now    func() time.Time

	mu   sync.Mutex
	next time.Time
}

// NewProgress shows on screen or logs to logger. now is the clock; nil: time.Now.
func NewProgress(screen *Screen, logger *slog.Logger, now func() time.Time) *Progress {
	if now == nil {
		now = time.Now
	}
	return &Progress{screen: screen, logger: logger, now: now, next: now().Add(LogEvery)}
}

// Update shows p.
func (b *Progress) Update(p job.Progress) {
	if b.screen.Terminal {
		b.screen.SetLine(Line(p))
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

func (b *Progress) log(p job.Progress) {
	attrs := []slog.Attr{
		slog.String("phase", p.Phase),
		slog.Int64("examples", p.Examples),
		slog.Float64("examples_per_second", math.Round(p.Rate)),
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
	if !math.IsNaN(p.Loss) {
		attrs = append(attrs, slog.Float64("loss", round4(p.Loss)))
	}
	if !math.IsNaN(p.AUC) {
		attrs = append(attrs, slog.Float64("auc", round4(p.AUC)))
	}
	b.logger.LogAttrs(context.Background(), slog.LevelInfo, "progress", attrs...)
}

// Done removes the line.
func (b *Progress) Done() { b.screen.SetLine("") }

func round4(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// Line renders progress in one line: a bar, share and remaining time where the total is known, the lag where it is not.
func Line(p job.Progress) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	add("%s", p.Phase)
	if p.Epochs > 1 {
		add("epoch %d/%d", p.Epoch, p.Epochs)
	}
	if p.Total > 0 {
		share := min(1, float64(p.Examples)/float64(p.Total))
		const width = 20
		full := int(share * width)
		add("[%s%s] %3.0f%%", strings.Repeat("=", full), strings.Repeat(" ", width-full), math.Floor(share*100))
		add("%s/%s", Count(p.Examples), Count(p.Total))
	} else {
		add("%s examples", Count(p.Examples))
	}
	switch {
	case p.Workers == 1:
		add("%s/s, 1 worker", Short(p.Rate))
	case p.Workers > 1:
		add("%s/s, %d workers", Short(p.Rate), p.Workers)
	default:
		add("%s/s", Short(p.Rate))
	}
	if p.Bad > 0 {
		add("bad %s", Count(p.Bad))
	}
	if p.Lag >= 0 && p.Total == 0 {
		add("lag %s", Count(p.Lag))
	}
	if !math.IsNaN(p.Loss) {
		add("loss %.4f", p.Loss)
	}
	if !math.IsNaN(p.AUC) {
		add("auc %.4f", p.AUC)
	}
	if left := p.Total - p.Examples; p.Total > 0 && left > 0 && p.Rate > 0 {
		add("eta %s", time.Duration(float64(left)/p.Rate*float64(time.Second)).Round(time.Second))
	}
	return strings.Join(parts, "  ")
}
