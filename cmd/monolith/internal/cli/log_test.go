package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/cmd/monolith/internal/cli"
	"github.com/monolith-go/monolith/job"
)

// TestLoggedDurationsAreReadable logs durations in both formats: JSON has them as text has, not as nanoseconds.
func TestLoggedDurationsAreReadable(t *testing.T) {
	t.Parallel()
	durations := map[time.Duration]string{
		0: "0s", 999: "999ns", 1234567: "1.235ms", 11390476: "11.39ms", 1234567890: "1.235s", -1234567890: "-1.235s",
		9*time.Minute + 59*time.Second + 999999999: "10m0s", 26*time.Hour + 123456789: "26h0m0s",
	}
	for format, field := range map[string]func(string) string{
		"text": func(d string) string { return " duration=" + d + "\n" },
		"json": func(d string) string { return `"duration":"` + d + `"}` + "\n" },
	} {
		for d, want := range durations {
			var stdout, stderr bytes.Buffer
			app := &cli.App{Stdout: &stdout, Stderr: &stderr, Ops: cli.Ops{
				Train: func(_ context.Context, _ *job.Config, opts job.RunOptions) (*job.TrainResult, error) {
					opts.Logger.Info("snapshot taken", "duration", d)
					return &job.TrainResult{}, nil
				},
			}}
			if code := app.Run(t.Context(), []string{"train", synthetic(t), "--set", "log.format=" + format}); code != 0 {
				t.Fatalf("exit code %d: %s", code, &stderr)
			}
			if !strings.Contains(stderr.String(), field(want)) {
				t.Errorf("%s of %d ns: %q, want %s", format, int64(d), stderr.String(), want)
			}
		}
	}
}

// TestLogsOfJSON: with log.format json each line of standard error is an object with time, level and msg, notices and the error of the end too, at each level; with -q the error alone.
func TestLogsOfJSON(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"INFO said", "INFO logged", "ERROR it broke"}},
		{[]string{"--set", "log.level=error"}, []string{"INFO said", "ERROR it broke"}},
		{[]string{"-q"}, []string{"ERROR it broke"}},
	} {
		var stdout, stderr bytes.Buffer
		app := &cli.App{Stdout: &stdout, Stderr: &stderr, Ops: cli.Ops{
			Train: func(_ context.Context, _ *job.Config, opts job.RunOptions) (*job.TrainResult, error) {
				opts.Notice("said")
				opts.Logger.Info("logged")
				return nil, errors.New("it broke")
			},
		}}
		if code := app.Run(t.Context(), append([]string{"train", synthetic(t), "--set", "log.format=json"}, tc.args...)); code != cli.ExitFailed {
			t.Errorf("exit code %d", code)
		}
		var got []string
		for line := range strings.Lines(stderr.String()) {
			var record struct {
				Time       time.Time
				Level, Msg string
			}
			if err := json.Unmarshal([]byte(line), &record); err != nil || record.Time.IsZero() {
				t.Errorf("%q: %v", line, err)
			}
			got = append(got, record.Level+" "+record.Msg)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%v: %q, want %q", tc.args, got, tc.want)
		}
	}
}
