package wal_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/ps/wal"
)

// childDir names the folder of the log to a test binary that is started to be killed.
const childDir = "MONOLITH_TEST_WAL_DIR"

// TestKilledChild is what the killed process does: it appends from several goroutines and prints what is acknowledged.
func TestKilledChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("runs in the child of TestKill")
	}
	l, err := openLog(wal.Options{Dir: dir, Identity: "child", SegmentBytes: 8 << 10})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if _, err := l.Replay(t.Context(), 0, func(byte, []byte) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	if err := l.Begin(); err != nil {
		t.Fatal(err)
	}
	var mu, out sync.Mutex
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				mu.Lock()
				i := n
				n++
				lsn, err := l.Append(1, []byte(strconv.Itoa(i)), []byte(dots(i)))
				mu.Unlock()
				if err == nil {
					err = l.Wait(t.Context(), lsn)
				}
				if err != nil {
					t.Error(err)
					return
				}
				out.Lock()
				_, err = fmt.Fprintf(os.Stdout, "ack %d\n", i)
				out.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
}

// dots are what record i has behind its number: now little, now much.
func dots(i int) string { return strings.Repeat(".", i*13%(2*wal.SmallRecord)) }

// TestKill kills a process that appends, several times over, and finds everything that it acknowledged.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledChild$", "-test.v")
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		cmd.Stderr = os.Stderr
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		acked, top := 0, -1
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			var i int
			if _, err := fmt.Sscanf(lines.Text(), "ack %d", &i); err != nil {
				continue // what a test binary prints of itself
			}
			top = max(top, i)
			// What it wrote after this is read on, until the pipe ends.
			if acked++; acked == 50+37*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.Exited() {
			t.Fatalf("the child was not killed: %v", err)
		}
		l, err := openLog(wal.Options{Dir: dir, Identity: "child"})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		tail, err := l.Replay(t.Context(), 0, func(_ byte, p []byte) error {
			if want := strconv.Itoa(n) + dots(n); string(p) != want {
				return fmt.Errorf("record %d is %q", n, p)
			}
			n++
			return nil
		})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if n <= top {
			t.Fatalf("round %d: %d records, number %d was acknowledged; %+v", round, n, top, tail)
		}
		t.Logf("round %d: %d acknowledged, %d records, %d bytes torn", round, top+1, n, tail.TornBytes)
	}
}
