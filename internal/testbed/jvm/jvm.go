// Package jvm runs Java programs for tests from Maven artifacts, without an installation: it needs java (17 or newer) and
// mvn.
package jvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
)

// Need ends a test that cannot run for want of java or mvn, as [testbed.Require] says for what.
func Need(t testing.TB, what string) {
	t.Helper()
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			testbed.Require(t, what, tool+" is not in $PATH; install a JDK 17 and Maven")
		}
	}
}

// Libraries returns a folder with the jars that a pom.xml depends on. They are fetched once into the user's cache folder,
// where the folder has the given name; options go to mvn.
func Libraries(ctx context.Context, name string, pom []byte, options ...string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder: %w", err)
	}
	root := filepath.Join(cache, "monolith-testbed")
	final := filepath.Join(root, name)
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", fmt.Errorf("cache folder: %w", err)
	}
	// Fetched aside and renamed, so that a folder with the final name is complete, also when two tests fetch at once.
	tmp, err := os.MkdirTemp(root, "fetch-*")
	if err != nil {
		return "", fmt.Errorf("cache folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // what is left there is of no use
	if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), pom, 0o600); err != nil {
		return "", fmt.Errorf("cache folder: %w", err)
	}
	libs := filepath.Join(tmp, "libs")
	cmd := exec.CommandContext(ctx, "mvn", append([]string{"-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=" + libs, "-DincludeScope=runtime"}, options...)...)
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mvn cannot fetch %s: %w: %s", name, err, Tail(out, 600))
	}
	if err := os.Rename(libs, final); err != nil {
		if _, there := os.Stat(final); there == nil { // someone was faster
			return final, nil
		}
		return "", fmt.Errorf("cache folder: %w", err)
	}
	return final, nil
}

// Process is a program that serves a port. Its methods are not for concurrent use.
type Process struct {
	cmd     *exec.Cmd
	log     string
	exited  chan struct{}
	exitErr error
}

// Start starts java with arguments, in a folder, and returns when something listens at addr; ready, when not nil, is then asked
// until it returns nil. The program's output is appended to the file log. It ends with the test's process.
func Start(ctx context.Context, dir, log, addr string, ready func(context.Context) error, args ...string) (*Process, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "java", args...)
	cmd.Dir = dir
	return StartProgram(ctx, cmd, log, addr, ready)
}

// StartProgram is [Start] of any program, whose output it sets.
func StartProgram(ctx context.Context, cmd *exec.Cmd, log, addr string, ready func(context.Context) error) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("jvm: %w", err)
	}
	defer func() { _ = file.Close() }() // the program has its own handle
	cmd.Stdout, cmd.Stderr = file, file
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("jvm: %w", err)
	}
	p := &Process{cmd: cmd, log: log, exited: make(chan struct{})}
	go func() { // joined by Kill
		p.exitErr = cmd.Wait()
		close(p.exited)
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			if err = c.Close(); err == nil && ready != nil {
				err = ready(ctx)
			}
			if err == nil {
				return p, nil
			}
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return nil, fmt.Errorf("jvm: the program ended (%w):\n%s", p.exitErr, p.LogTail())
		case <-ctx.Done():
			return nil, fmt.Errorf("jvm: not ready: %w:\n%s", errors.Join(context.Cause(ctx), err, p.Kill()), p.LogTail())
		}
	}
}

// Pid is the number of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Kill ends the program as kill -9 does and waits for its end. It may be called more than once.
func (p *Process) Kill() error { return p.end(p.cmd.Process.Kill) }

// Interrupt asks the program to end and waits for its end.
func (p *Process) Interrupt() error {
	return p.end(func() error { return p.cmd.Process.Signal(os.Interrupt) })
}

func (p *Process) end(how func() error) error {
	err := how()
	<-p.exited
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("jvm: kill: %w", err)
	}
	return nil
}

// Logged reports whether the program's output has a text.
func (p *Process) Logged(text string) (bool, error) {
	b, err := os.ReadFile(p.log)
	return bytes.Contains(b, []byte(text)), err
}

// LogTail is the end of what the program has printed.
func (p *Process) LogTail() []byte {
	out, err := os.ReadFile(p.log)
	if err != nil {
		return []byte(err.Error())
	}
	return Tail(out, 4000)
}

// Tail is the end of a text, at most n bytes.
func Tail(b []byte, n int) []byte {
	b = bytes.TrimSpace(b)
	return b[max(len(b)-n, 0):]
}

// FreePorts finds n ports as [testbed.FreePort] does.
func FreePorts(n int) ([]string, error) {
	out := make([]string, n)
	for i := range out {
		port, err := testbed.FreePort()
		if err != nil {
			return nil, fmt.Errorf("jvm: %w", err)
		}
		out[i] = strconv.Itoa(port)
	}
	return out, nil
}
