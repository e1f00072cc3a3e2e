package beam

import (
	"bytes"
	"context"
	"log/slog"
	"sync"

	sdklog "github.com/apache/beam/sdks/v2/go/pkg/beam/log"
)

// WorkerLogger returns a logger, of records from a level on, whose records come to the log of the runner: a worker's own standard error is
// seen by nobody. In a process that is no worker of a runner they go where Beam's own records go.
func WorkerLogger(level slog.Leveler) *slog.Logger {
	out := &bytes.Buffer{}
	return slog.New(&workerHandler{mu: new(sync.Mutex), out: out, text: slog.NewTextHandler(out, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
				return slog.Attr{} // the runner has them
			}
			return a
		},
	})})
}

// workerHandler renders records as text and hands them to Beam's log.
type workerHandler struct {
	mu   *sync.Mutex
	out  *bytes.Buffer // guarded by mu
	text slog.Handler  // writes to out
}

// Enabled implements [slog.Handler].
func (h *workerHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.text.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h *workerHandler) Handle(ctx context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.out.Reset()
	if err := h.text.Handle(ctx, r); err != nil {
		return err
	}
	severity := sdklog.SevDebug
	switch {
	case r.Level >= slog.LevelError:
		severity = sdklog.SevError
	case r.Level >= slog.LevelWarn:
		severity = sdklog.SevWarn
	case r.Level >= slog.LevelInfo:
		severity = sdklog.SevInfo
	}
	sdklog.Output(ctx, severity, 3, string(bytes.TrimSpace(h.out.Bytes())))
	return nil
}

// WithAttrs implements [slog.Handler].
func (h *workerHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &workerHandler{h.mu, h.out, h.text.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h *workerHandler) WithGroup(name string) slog.Handler {
	return &workerHandler{h.mu, h.out, h.text.WithGroup(name)}
}
