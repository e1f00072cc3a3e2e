package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
)

// TestAnswersFollowTheStream trains, exports and serves until the answers have followed the stream into two seasons, and asks with both clients.
func TestAnswersFollowTheStream(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	var seasons []season
	o := options{
		dir: t.TempDir(), job: "job.yaml", http: "127.0.0.1:0", rate: 1000, seasons: 2, every: 20 * time.Millisecond, out: &said, log: slog.New(slog.DiscardHandler),
		followed: func(ctx context.Context, server string, now season) error {
			seasons = append(seasons, now)
			// Snapshots come and go meanwhile, but the season stays.
			for _, item := range []string{now.liked(), now.disliked()} {
				asked := []string{"-server", server, "user=7", "item=" + item}
				var answer strings.Builder
				if err := command(ctx, append([]string{"ask"}, asked...), &answer); err != nil {
					return err
				}
				t.Run(fmt.Sprintf("%s/%s/go", now, item), func(t *testing.T) { checkAnswer(t, now, item, answer.String()) })
				t.Run(fmt.Sprintf("%s/%s/python", now, item), func(t *testing.T) {
					python, err := exec.LookPath("python3")
					if err != nil {
						testbed.Require(t, "python-readers", err.Error())
					}
					asked[0] = "--server"
					out, err := exec.CommandContext(ctx, python, append([]string{"client.py"}, asked...)...).CombinedOutput()
					if err != nil {
						t.Fatalf("%v: %s", err, out)
					}
					checkAnswer(t, now, item, string(out))
				})
			}
			return nil
		},
	}
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if len(seasons) != 2 || seasons[0] != summer || seasons[1] != winter {
		t.Errorf("the answers followed %v", seasons)
	}
	for _, want := range []string{"it is summer: people click on ice cream, and no longer on soup", "it is winter: people click on soup, and no longer on ice cream"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("nothing of %q in\n%.2000s", want, said.String())
		}
	}

	// The same folder again: the stream continues, and so does the model.
	o.seasons, o.out = 1, io.Discard
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if len(seasons) != 3 || seasons[2] != summer {
		t.Errorf("the answers followed %v", seasons)
	}
}

// checkAnswer refuses an answer that is not on the side of one half that an item of the season is on.
func checkAnswer(t *testing.T, now season, item, text string) {
	t.Helper()
	p, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || p <= 0 || p >= 1 || (p > .5) != (item == now.liked()) {
		t.Errorf("in %s the answer about %s is %q, %v", now, item, text, err)
	}
}

// TestAskFaults: what cannot be asked, and who is not there.
func TestAskFaults(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`"soup" is not NAME=VALUE`: {"ask", "soup"},
		"connection refused":       {"ask", "-server", "http://127.0.0.1:1", "item=soup"},
		"at least 1":               {"-rate", "0", "-dir", t.TempDir()},
	} {
		if err := command(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
