package ui_test

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/job"
)

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", 100: "100", -100: "-100"} {
		if got := ui.Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
	for x, want := range map[float64]string{0: "0.00", 9.5: "9.50", 950: "950", 12345: "12.3k", 999999: "1.00M", 1.25e6: "1.25M", 3e9: "3.00G", math.Inf(1): "-"} {
		if got := ui.Short(x); got != want {
			t.Errorf("Short(%g) = %q, want %q", x, got, want)
		}
	}
	if got := ui.Score(math.NaN()); got != "-" {
		t.Errorf("Score(NaN) = %q", got)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := ui.Table(&b, [][]string{{"name", "rows"}, {"a", "1"}, {"long-ä", "100"}}, 1); err != nil {
		t.Fatal(err)
	}
	want := "name    rows\na          1\nlong-ä   100\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// scores are those of a job without heads.
func scores(loss, auc float64) []job.HeadScore {
	return []job.HeadScore{{Metric: "auc", Value: auc}, {Metric: "log_loss", Value: loss}}
}

func TestLine(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, tt := range []struct {
		name  string
		width int
		p     job.Status
		want  string
	}{
		{"bounded", 140, job.Status{Phase: "train", Examples: 50000, Total: 200000, Rate: 10000, Lag: 150000, Scores: scores(0.5, 0.75)}, "train  [=====               ]  25%  50,000/200,000  10.0k/s  loss 0.5000  auc 0.7500  eta 15s"},
		{"unbounded", 140, job.Status{Phase: "train", Examples: 1234, Rate: 500, Lag: 7}, "train  1,234 examples  500/s  lag 7"},
		{"outputs", 140, job.Status{Phase: "train", Examples: 1234, Rate: 0, Lag: 7, Outputs: []job.OutputState{{Name: "rows", Lacks: 1500}, {Name: "scores", Waits: 2345 * time.Millisecond}}}, "train  1,234 examples  0.00/s  lag 7  output rows lacks 1,500  waiting for output scores for 2s"},
		{"cluster", 140, job.Status{Phase: "train", Examples: 50000, Total: 200000, Rate: 20000, Workers: 3, Lag: 7}, "train  [=====               ]  25%  50,000/200,000  20.0k/s, 3 workers  eta 8s"},
		{"epochs", 140, job.Status{Phase: "train", Examples: 10, Total: 10, Epoch: 2, Epochs: 3, Lag: -1}, "train  epoch 2/3  [====================] 100%  10/10  0.00/s"},
		{"no rate yet", 140, job.Status{Phase: "train", Examples: 700, Rate: nan, Lag: 7}, "train  700 examples  lag 7"},
		{"80 columns", 80, job.Status{Phase: "train", Examples: 109568, Total: 150000, Rate: 37500, Lag: 7, Scores: scores(.4994, .7998)}, "train   73%  109,568/150,000  37.5k/s  loss 0.4994  auc 0.7998  eta 1s"},
		{"60 columns", 60, job.Status{Phase: "train", Examples: 109568, Total: 150000, Rate: 37500, Bad: 5, Lag: 7, Scores: scores(.4994, .7998)}, "train   73%  109,568/150,000  37.5k/s  bad 5  eta 1s"},
		{"heads", 140, job.Status{Phase: "train", Examples: 9, Rate: nan, Lag: -1, Scores: []job.HeadScore{
			{Head: "click", Metric: "auc", Value: .75}, {Head: "click", Metric: "log_loss", Value: .5}, {Head: "price", Metric: "rmse", Value: 12.5}, {Head: "price", Metric: "mae", Value: nan},
		}}, "train  9 examples  click loss 0.5000  click auc 0.7500  price rmse 12.5000"},
	} {
		if got := ui.Line(tt.p, tt.width); got != tt.want {
			t.Errorf("%s: got  %q\nwant %q", tt.name, got, tt.want)
		}
	}
}

// TestProgressLogs: without a terminal there is one log line every ten seconds, however often Update is called.
func TestProgressLogs(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	screen := ui.NewScreen(&b, false, func(string) string { return "" })
	now := time.Unix(0, 0)
	p := ui.NewStatusLine(screen, slog.New(slog.NewTextHandler(screen, nil)), func() time.Time { return now })
	for range 100 {
		p.Update(job.Status{Phase: "train", Examples: 5, Lag: -1, Scores: []job.HeadScore{{Metric: "auc", Value: 0.71239}, {Metric: "log_loss", Value: math.NaN()}}})
		now = now.Add(250 * time.Millisecond)
	}
	p.Done()
	if got := strings.Count(b.String(), "msg=progress"); got != 2 {
		t.Errorf("25 seconds gave %d lines, want 2:\n%s", got, b.String())
	}
	if !strings.Contains(b.String(), "auc=0.7124") || strings.Contains(b.String(), "loss") || strings.Contains(b.String(), "\x1b") {
		t.Errorf("log is %s", b.String())
	}
}

// TestScreen: log lines appear whole above the progress line, which stays the last thing on the terminal.
func TestScreen(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	s := ui.NewScreen(&b, false, func(string) string { return "" })
	s.Terminal, s.Color = true, true
	s.SetLine("working")
	if _, err := s.Write([]byte("log line\n")); err != nil {
		t.Fatal(err)
	}
	s.SetLine(strings.Repeat("x", 200))
	s.SetLine("")
	want := "\r\x1b[Kworking\r\x1b[Klog line\nworking\r\x1b[K" + strings.Repeat("x", 79) + "\r\x1b[K"
	if b.String() != want {
		t.Errorf("got %q\nwant %q", b.String(), want)
	}
	if got := s.Paint("red", "no"); got != "\x1b[31mno\x1b[0m" {
		t.Errorf("painted %q", got)
	}
	s.Color = false
	if got := s.Paint("red", "no"); got != "no" {
		t.Errorf("painted %q without colours", got)
	}
}
