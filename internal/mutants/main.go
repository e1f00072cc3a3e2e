// Command mutants breaks the project on purpose, one place at a time, and lists those that no test notices. Each change
// of list.txt takes something away that an incident has shown to be needed; it is made in a copy of the tree, the tests
// that are to notice run there, and a change after which they pass has survived.
//
//	go run ./internal/mutants                 # all of the list
//	go run ./internal/mutants -run 'wal|cut'  # those whose names match
//	go run ./internal/mutants -list
//
// The exit code is 0 when every change was noticed, 1 when one survived, 2 when the list or the tree is at fault: a text
// that is not found, a change that does not compile, tests that fail without any change.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

//go:embed list.txt
var list string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	code, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "mutants:", err)
	}
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, out io.Writer) (code int, err error) {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	pattern := flags.String("run", "", "only changes whose name matches this `regexp`")
	limit := flags.Duration("timeout", 4*time.Minute, "the `time` that the tests of one change have, or four times what they take without it where that is more; hanging is noticed, too")
	only := flags.Bool("list", false, "name the changes and what they come from")
	verbose := flags.Bool("v", false, "show what the tests printed")
	if err := flags.Parse(args); err != nil {
		return 2, nil // flag has printed it
	}
	re, err := regexp.Compile(*pattern)
	if err != nil {
		return 2, err
	}
	all, err := parse(list)
	if err != nil {
		return 2, err
	}
	var chosen []mutant
	for _, m := range all {
		if re.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return 2, fmt.Errorf("no change of the list matches %q", *pattern)
	}
	if *only {
		for _, m := range chosen {
			_, _ = fmt.Fprintf(out, "%s\n    %s\n    go test %s\n", m.name, m.incident, m.test)
		}
		return 0, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return 2, err
	}
	r := &runner{out: out, limit: *limit, verbose: *verbose, clean: map[string]cleanRun{}}
	if r.dir, err = copyTree(ctx, root); err != nil {
		return 2, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	var survived, faults int
	for _, m := range chosen {
		start := time.Now()
		verdict, err := r.try(ctx, m)
		switch {
		case ctx.Err() != nil:
			return 2, context.Cause(ctx)
		case err != nil:
			faults++
			verdict = "ERROR: " + err.Error()
		case verdict == "":
			survived++
			verdict = "SURVIVED: " + m.incident
		}
		_, _ = fmt.Fprintf(out, "%-52s %4.0f s  %s\n", m.name, time.Since(start).Seconds(), verdict)
	}
	_, _ = fmt.Fprintf(out, "%d changes, %d survived, %d could not be tried\n", len(chosen), survived, faults)
	switch {
	case faults > 0:
		return 2, nil
	case survived > 0:
		return 1, nil
	}
	return 0, nil
}

// runner tries changes in a copy of the tree.
type runner struct {
	out     io.Writer
	dir     string
	limit   time.Duration
	verbose bool
	// clean is how a command's tests do on the unchanged tree.
	clean map[string]cleanRun
}

// cleanRun is how tests did without a change.
type cleanRun struct {
	err  error
	took time.Duration
}

// patience is how many times what tests take without a change, or the limit, they have before they are said to hang: on a machine that does other things too, tests that take
// their time are no proof of anything.
const patience = 4

// limitOf is how long the tests of a change may take.
func (c cleanRun) limitOf(least time.Duration) time.Duration { return max(least, patience*c.took) }

// try makes a change, runs its tests and takes it back. It returns what noticed the change, or "".
func (r *runner) try(ctx context.Context, m mutant) (noticed string, err error) {
	// Tests that fail anyway notice nothing.
	if _, known := r.clean[m.test]; !known {
		began := time.Now()
		output, err := r.test(ctx, m.test, patience*r.limit)
		switch {
		case err == nil:
		case timedOut(output, err):
			err = fmt.Errorf("the tests have not ended within %s: %w; say with -timeout how long they take on this machine", patience*r.limit, err)
		case errors.As(err, new(*exec.ExitError)): // by chance perhaps, and then nobody sees it again
			err = fmt.Errorf("%w: %s:\n%s", err, failures(output), output)
		}
		r.clean[m.test] = cleanRun{err, time.Since(began)}
	}
	clean := r.clean[m.test]
	if clean.err != nil {
		return "", fmt.Errorf("without any change, go test %s: %w", m.test, clean.err)
	}
	restore, err := m.apply(r.dir)
	defer func() { err = errors.Join(err, restore()) }()
	if err != nil {
		return "", err
	}
	output, err := r.test(ctx, m.test, clean.limitOf(r.limit))
	switch {
	case err == nil:
		return "", nil
	case strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"):
		return "", fmt.Errorf("the change does not compile:\n%s", output)
	case timedOut(output, err):
		return "noticed: the tests hang", nil
	}
	return "noticed by " + failures(output), nil
}

// timedOut reports whether tests did not end in time.
func timedOut(output string, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || strings.Contains(output, "panic: test timed out")
}

// buildTime is what building the tests may take beside running them; the first build is of everything.
const buildTime = 10 * time.Minute

// test runs go test with some arguments. It returns the output, and an error when the tests did not pass.
func (r *runner) test(ctx context.Context, args string, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+buildTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-timeout", limit.String()}, strings.Fields(args)...)...)
	cmd.Dir = r.dir
	cmd.WaitDelay = 5 * time.Second
	output, err := cmd.CombinedOutput()
	if r.verbose {
		_, _ = r.out.Write(output)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil && !strings.Contains(string(output), "ok  \t") {
		err = errors.New("no test ran")
	}
	if strings.Contains(string(output), "[no tests to run]") {
		err = fmt.Errorf("no test ran: %s", output)
	}
	return string(output), err
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: .*|fatal error: .*)$`)

// failures are the tests that failed, the outermost ones.
func failures(output string) string {
	var names []string
	for _, m := range failed.FindAllStringSubmatch(output, 4) {
		names = append(names, strings.TrimSpace(m[1]+m[2]))
	}
	if len(names) == 0 {
		return "its tests"
	}
	return strings.Join(names, ", ")
}

// moduleRoot is the folder of go.mod at or above this one.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod here or above")
		}
		dir = up
	}
}

// copyTree copies what git knows of the tree, and what is new in it, to a folder that the caller removes.
func copyTree(ctx context.Context, root string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	names, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git ls-files: %w", err)
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return "", err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		b, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, and not yet in a commit
		}
		to := filepath.Join(dir, name)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o644))
		}
		if err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	return dir, nil
}
