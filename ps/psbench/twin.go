package psbench

import (
	"bufio"
	"context"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/bench"
)

//go:embed cpp python
var sources embed.FS

// buildTwins builds the C++ programs in a folder. Where there is no compiler, or a library is missing, their files are too.
func buildTwins(ctx context.Context, dir string) error {
	for _, name := range []string{"build.sh", "table.cc"} {
		b, err := sources.ReadFile("cpp/" + name)
		if err != nil {
			return fmt.Errorf("psbench: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return fmt.Errorf("psbench: %w", err)
		}
	}
	if _, err := exec.LookPath("g++"); err != nil {
		return nil //nolint:nilerr // nothing to measure beside is no fault
	}
	if b, err := exec.CommandContext(ctx, "sh", filepath.Join(dir, "build.sh"), dir).CombinedOutput(); err != nil {
		return fmt.Errorf("psbench: building the C++ programs: %w: %s", err, b)
	}
	return nil
}

// writeQueries writes the numbers of rows to be looked up for the C++ programs.
func writeQueries(path string, ids []uint32) error {
	b := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return fmt.Errorf("psbench: %w", err)
	}
	return nil
}

// twin is a program beside which a table is measured. Its processor time is what it reports.
type twin struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	cpu float64
}

// startTwin starts a C++ program and waits until it has its rows. There is none where it was not built.
func startTwin(ctx context.Context, program string, rows int, queries string) (*twin, error) {
	if _, err := os.Stat(program); err != nil {
		return nil, nil //nolint:nilnil,nilerr // not built
	}
	t, first, err := start(ctx, program, strconv.Itoa(rows), queries)
	if err == nil && first != "ready" {
		err = errors.Join(fmt.Errorf("psbench: %s of %d rows began with %q", filepath.Base(program), rows, first), t.close())
	}
	return t, err
}

// startTorch starts the program that gathers with PyTorch, of the interpreter that o names or of python3. It returns why there is none where there is no PyTorch, which is an error where the user has
// named the interpreter.
func startTorch(ctx context.Context, o bench.Options, dir, queries string) (t *twin, absent string, err error) {
	python, named := o.With["torch"]
	if !named {
		if python, _ = exec.LookPath("python3"); python == "" {
			return nil, "python3 is not on PATH; name it with --with torch=FILE", nil
		}
	}
	b, err := sources.ReadFile("python/gather.py")
	if err != nil {
		return nil, "", fmt.Errorf("psbench: %w", err)
	}
	script := filepath.Join(dir, "gather.py")
	if err := os.WriteFile(script, b, 0o600); err != nil {
		return nil, "", fmt.Errorf("psbench: %w", err)
	}
	t, first, err := start(ctx, python, script, strconv.Itoa(o.Rows), queries)
	if err != nil || first == "ready" {
		return t, "", err
	}
	absent, is := strings.CutPrefix(first, "absent ")
	if err = t.close(); !is || named {
		err = errors.Join(fmt.Errorf("psbench: %s of %s began with %q", filepath.Base(script), python, first), err)
	}
	return nil, fmt.Sprintf("%s (%s)", absent, python), err
}

// start starts a program and returns its first line.
func start(ctx context.Context, program string, args ...string) (*twin, string, error) {
	t := &twin{cmd: exec.CommandContext(ctx, program, args...)}
	var err error
	if t.in, err = t.cmd.StdinPipe(); err != nil {
		return nil, "", fmt.Errorf("psbench: %w", err)
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, "", fmt.Errorf("psbench: %w", err)
	}
	if err := t.cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("psbench: %w", err)
	}
	t.out = bufio.NewScanner(out)
	first, err := t.line()
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("psbench: %s ended before it began: %w", program, err), t.close())
	}
	return t, first, nil
}

func (t *twin) line() (string, error) {
	if !t.out.Scan() {
		return "", errors.Join(io.ErrUnexpectedEOF, t.out.Err())
	}
	return strings.TrimSpace(t.out.Text()), nil
}

// candidate makes lookups one way, n at a time.
func (t *twin) candidate(name, way string, n int) bench.Candidate {
	return bench.Candidate{Name: name, Run: func() (float64, error) {
		if _, err := fmt.Fprintln(t.in, way, n); err != nil {
			return 0, fmt.Errorf("psbench: %w", err)
		}
		line, err := t.line()
		if err != nil {
			return 0, err
		}
		spent, err := strconv.ParseFloat(line, 64)
		if err != nil {
			return 0, fmt.Errorf("psbench: %s answered %q: %w", name, line, err)
		}
		t.cpu += spent
		return float64(n) / 1e6, nil
	}}
}

func (t *twin) close() error {
	if t == nil {
		return nil
	}
	err := t.in.Close()
	if werr := t.cmd.Wait(); werr != nil {
		err = errors.Join(err, fmt.Errorf("psbench: %w", werr))
	}
	return err
}
