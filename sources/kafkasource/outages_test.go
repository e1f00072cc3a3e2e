package kafkasource

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestOutages: what lasts less than a second is not logged, and what lasts longer once, however many wait and how often each tries.
func TestOutages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log, partitions := slog.New(slog.NewTextHandler(&text, nil)), []string{"a", "b", "c"}
		var o outages
		for range partitions {
			o.opened()
		}
		var since time.Time
		try := func(d time.Duration) {
			for _, p := range partitions {
				o.failed(log, p, true, since, time.Minute, errors.New("refused"))
			}
			o.failed(log, listing, false, since, time.Minute, errors.New("refused"))
			time.Sleep(d)
		}
		end := func(answered bool) {
			for _, p := range append(partitions, listing) {
				o.left(log, p, answered)
			}
		}
		for _, c := range []struct {
			what     string
			tries    int
			answered bool
			away     string // empty: nothing
			back     string
		}{
			{"a short one", 1, true, "", ""},
			{"a long one", 5, true, " partitions=3 of=3 err=refused patience=1m0s", " partitions=3 duration=4.5s"},
			{"another", 3, true, " partitions=3 of=3 ", " partitions=3 duration=2.7s"},
			{"one that nobody sees the end of", 3, false, " partitions=3 of=3 ", ""},
		} {
			text.Reset()
			since = time.Now()
			for range c.tries {
				try(900 * time.Millisecond)
			}
			end(c.answered)
			away, back := strings.Count(text.String(), "kafka does not answer"), strings.Count(text.String(), "kafka answers again")
			if (away == 1) != (c.away != "") || away > 1 || (back == 1) != (c.back != "") || back > 1 || !strings.Contains(text.String(), c.away) || !strings.Contains(text.String(), c.back) {
				t.Errorf("%s: %d lines that it begins and %d that it ends, want those of %q and %q:\n%s", c.what, away, back, c.away, c.back, &text)
			}
		}
	})
}
