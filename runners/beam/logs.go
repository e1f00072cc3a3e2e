package beam

import (
	"context"
	"log"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
)

// beamPackages is how the functions of Beam begin.
const beamPackages = "github.com/apache/beam/"

// keepLogs calls f, which changes the process's loggers, and puts them back.
func keepLogs(f func()) {
	before := slog.Default()
	out, flags := log.Writer(), log.Flags() //nolint:forbidigo // slog.SetDefault sets these too
	f()
	slog.SetDefault(before)
	log.SetOutput(out)  //nolint:forbidigo // as above
	log.SetFlags(flags) //nolint:forbidigo // as above
}

// logTo sends what Beam logs to l at debug until the returned function is called; after that it is dropped. Beam logs
// through the process's default logger; what others say there goes where it went. It is called by one run at a time.
func logTo(l *slog.Logger) (restore func()) {
	h, ok := slog.Default().Handler().(*filter)
	if !ok {
		h = &filter{rest: slog.Default().Handler(), to: new(atomic.Pointer[slog.Logger])}
		// The first handler of a process writes through package log, whose output SetDefault would turn round to h.
		out, flags := log.Writer(), log.Flags() //nolint:forbidigo // slog.SetDefault sets these too
		slog.SetDefault(slog.New(h))
		log.SetOutput(out)  //nolint:forbidigo // as above
		log.SetFlags(flags) //nolint:forbidigo // as above
	}
	if f, ok := l.Handler().(*filter); ok { // the default logger itself, which would send a record round in a circle
		l = slog.New(f.rest)
	}
	h.to.Store(l)
	return func() { h.to.Store(nil) }
}

// filter sends the records of Beam to a logger of our own, at debug, and the rest on.
type filter struct {
	rest slog.Handler
	to   *atomic.Pointer[slog.Logger]
	with func(slog.Handler) slog.Handler // attributes and groups that the handler of to gets; nil: none
}

// Enabled implements [slog.Handler]. It is asked before the record is known, so it may say yes for a record that is dropped.
func (f *filter) Enabled(ctx context.Context, level slog.Level) bool {
	if f.rest.Enabled(ctx, level) {
		return true
	}
	l := f.to.Load()
	return l != nil && l.Enabled(ctx, slog.LevelDebug)
}

// Handle implements [slog.Handler].
func (f *filter) Handle(ctx context.Context, r slog.Record) error {
	frame, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
	if !strings.HasPrefix(frame.Function, beamPackages) {
		if !f.rest.Enabled(ctx, r.Level) {
			return nil
		}
		return f.rest.Handle(ctx, r)
	}
	l := f.to.Load()
	if l == nil || !l.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	h := l.Handler()
	if f.with != nil {
		h = f.with(h)
	}
	out := slog.NewRecord(r.Time, slog.LevelDebug, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(a)
		return true
	})
	out.AddAttrs(slog.String("beam_level", r.Level.String()))
	return h.Handle(ctx, out)
}

// WithAttrs implements [slog.Handler].
func (f *filter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return f.derive(f.rest.WithAttrs(attrs), func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup implements [slog.Handler].
func (f *filter) WithGroup(name string) slog.Handler {
	return f.derive(f.rest.WithGroup(name), func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (f *filter) derive(rest slog.Handler, with func(slog.Handler) slog.Handler) *filter {
	if before := f.with; before != nil {
		after := with
		with = func(h slog.Handler) slog.Handler { return after(before(h)) }
	}
	return &filter{rest: rest, to: f.to, with: with}
}
