package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/pipeline"
)

// deaf is a source that cannot be told.
type deaf struct{ err error }

func (d *deaf) Acknowledge(context.Context, map[string]pipeline.StoredSplit) error { return d.err }

// TestWhatASourceIsNotToldIsLoggedOnce: a row of failures of one kind is one line, however many snapshots are taken meanwhile, and its end another.
func TestWhatASourceIsNotToldIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	d, tr := &deaf{}, &trainer{log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, x := range []struct {
		what  string
		err   error
		times int
		lines int
		words string
	}{
		{"while it is told", nil, 3, 0, ""},
		{"while the broker is down", fmt.Errorf("nobody answers: %w", pipeline.ErrUnavailable), 100, 1, "level=WARN"},
		{"while it is denied", errors.New("group authorization failed"), 100, 1, "group authorization failed"},
		{"when it is told again", nil, 100, 1, "without=200"},
		{"the next time", errors.New("group authorization failed"), 100, 1, "level=WARN"},
	} {
		d.err = x.err
		log.Reset()
		for range x.times {
			tr.tellSource(d, (&trainer{}).storedSplits(d, "", nil))
		}
		if got := strings.Count(log.String(), "\n"); got != x.lines || !strings.Contains(log.String(), x.words) {
			t.Errorf("%s: %d lines, want %d with %q: %s", x.what, got, x.lines, x.words, &log)
		}
	}
}
