package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/job"
)

// signalError is the cause of a context that a signal cancelled, and the error of a command that drained before it was complete.
type signalError struct {
	sig syscall.Signal
	// rest is what to do about what lacks; empty: nothing can be said.
	rest string
}

func (e *signalError) Error() string {
	if e.rest != "" {
		return "interrupted by " + signalName(e.sig) + ": " + e.rest
	}
	return "interrupted by " + signalName(e.sig)
}

func signalName(s syscall.Signal) string {
	switch s {
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGHUP:
		return "SIGHUP"
	}
	return s.String()
}

// sameSignal is how long a repeat of the first signal is the same request: timeout(1) signals its child and then the
// child's whole process group, supervisors and terminals do alike, and nobody has changed his mind in that time.
const sameSignal = time.Second

// supervise waits for the command and answers signals: the first SIGINT, SIGTERM or SIGHUP asks it to drain (or, where there is
// nothing to drain, cancels it), a second one ends the process at once, SIGUSR1 writes all goroutines to the log, SIGUSR2 asks for a snapshot. The same
// signal again within [sameSignal] of the first is no second one.
func (a *App) supervise(done <-chan int) int {
	var first endAsked
	for {
		select {
		case code := <-done:
			a.dumpIfAsked()
			return code
		case s, ok := <-a.Signals:
			if !ok {
				a.Signals = nil
				continue
			}
			if code, ends := a.answer(s, &first); ends {
				return code
			}
		}
	}
}

// endAsked is the first signal that asked for the end, and when it came. The zero value: none has.
type endAsked struct {
	by syscall.Signal
	at time.Time
}

// answer answers a signal. ends reports whether the process ends at once, with the code.
func (a *App) answer(s os.Signal, first *endAsked) (code int, ends bool) {
	sig, _ := s.(syscall.Signal)
	switch {
	case isDump(s):
		a.dumpGoroutines()
	case asksForSnapshot(s):
		select {
		case a.snapshot <- struct{}{}:
		default: // one has been asked for
		}
	case first.by == sig && time.Since(first.at) < sameSignal:
		a.logger.Load().Debug("repeated signal taken for the first", "signal", signalName(sig), "after", time.Since(first.at))
	case first.by != 0:
		a.cancel(&signalError{sig: sig})
		a.notice("stopped at once by a second " + signalName(sig))
		return 128 + int(sig), true
	default:
		*first = endAsked{sig, time.Now()}
		a.askToEnd(sig)
	}
	return 0, false
}

// askToEnd asks the command to drain, or cancels it where it does not.
func (a *App) askToEnd(sig syscall.Signal) {
	how := a.drains.Load()
	if how == nil {
		a.cancel(&signalError{sig: sig})
		return
	}
	a.notice(signalName(sig) + ": " + *how + " (once more to stop at once)")
	a.drainedBy.Store(int32(sig))
	close(a.drain)
}

// dumpIfAsked answers what was asked for before the command ended.
func (a *App) dumpIfAsked() {
	for {
		select {
		case s, ok := <-a.Signals:
			if !ok {
				return
			}
			if isDump(s) {
				a.dumpGoroutines()
			}
		default:
			return
		}
	}
}

// dumpGoroutines writes the stacks of all goroutines to the log: as one attribute in JSON, readable below the line in text.
func (a *App) dumpGoroutines() {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) || len(buf) >= 64<<20 {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	stacks := string(buf)
	logger := a.logger.Load()
	count := slog.Int("goroutines", strings.Count(stacks, "\n\n")+1)
	if *a.logFormat.Load() == "json" {
		logger.Warn("goroutine stacks asked for by a signal", count, slog.String("stacks", stacks))
		return
	}
	logger.Warn("goroutine stacks asked for by a signal", count)
	// One write, so that no other log line comes between.
	_, _ = fmt.Fprintf(a.screen, "%s\n", stacks)
}

// drainsBy says that the command answers the first signal by draining, and how.
func (a *App) drainsBy(how string) { a.drains.Store(&how) }

// incomplete is the error of a command that has an end and drained before it: what comes after it in a script, such as loading what was written, must not begin. continues
// says how to have the rest. Training that was stopped at its runner has failed: no signal came.
func (a *App) incomplete(continues string) error {
	by := syscall.Signal(a.drainedBy.Load())
	if by == 0 {
		return fmt.Errorf("%w: not complete; %s", job.ErrStopped, continues)
	}
	return &signalError{by, "not complete; " + continues}
}

// sameCommand is what continues most commands that drained.
const sameCommand = "the same command continues"

// trainDrains is how training drains.
const trainDrains = "reading stops; training what is on its way and taking a snapshot"

// interruptible is standard input, whose Read ends with the context: nothing ends that of a terminal or a pipe, and a goroutine that is in one stays until the process ends.
type interruptible struct {
	ctx  context.Context
	from io.Reader
}

func (r *interruptible) Read(p []byte) (int, error) {
	type read struct {
		b   []byte
		err error
	}
	done := make(chan read, 1)
	go func() {
		b := make([]byte, len(p)) // its own: who has given up may use p again
		n, err := r.from.Read(b)
		done <- read{b[:n], err}
	}()
	select {
	case got := <-done:
		return copy(p, got.b), got.err
	case <-r.ctx.Done():
		return 0, r.ctx.Err()
	}
}

// Signals lists what a program that runs an [App] must deliver.
func Signals() []os.Signal {
	return append([]os.Signal{os.Interrupt, syscall.SIGTERM}, userSignals()...)
}
