//go:build unix

package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestCrash: a panic of any goroutine ends the program by a signal. An exit code of 2 would be taken for a mistake in the
// job, after which supervisors do not start it again.
func TestCrash(t *testing.T) {
	t.Parallel()
	if os.Getenv("MONOLITH_TEST_CRASH") != "" {
		abortOnCrash(os.Getenv)
		done := make(chan struct{})
		go func() {
			defer close(done)
			panic("a fault of the program")
		}()
		<-done
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCrash$")
	cmd.Env = append(os.Environ(), "MONOLITH_TEST_CRASH=1")
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !st.Signaled() || st.Signal() != syscall.SIGABRT {
		t.Errorf("a crash ends with %v (%v), want SIGABRT", cmd.ProcessState, err)
	}
	if !strings.Contains(string(out), "a fault of the program") || !strings.Contains(string(out), "goroutine ") {
		t.Errorf("it said\n%s", out)
	}
	if st.CoreDump() {
		t.Error("a core file was written")
	}
}
