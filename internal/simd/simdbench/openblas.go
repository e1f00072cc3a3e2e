package simdbench

import (
	"bufio"
	"context"
	_ "embed" // the helper's source
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/simd"
)

//go:embed openblas.c.txt
var source []byte

// helper is a program around OpenBLAS that multiplies on demand.
type helper struct {
	dir  string
	core string // the processor whose kernels it runs, by OpenBLAS's name
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

// oldest is the core that OpenBLAS takes for a processor that it does not know: one of 2004 without AVX.
const oldest = "Prescott"

// core is OpenBLAS's name of the processor whose kernels are the best that this one can run; empty where it is to choose.
func core() string {
	switch available := simd.Available(); {
	case slices.Contains(available, simd.AVX512):
		return "SkylakeX"
	case slices.Contains(available, simd.AVX2):
		return "Haswell"
	}
	return ""
}

// startOpenBLAS builds and starts the helper below dir. It returns nil where there is no C compiler or no OpenBLAS. A release of OpenBLAS runs its
// oldest kernels on processors that are newer than itself, at a fifth of the rate; then it is told which ones to take (OPENBLAS_CORETYPE),
// unless the user has told it.
func startOpenBLAS(ctx context.Context, dir string) (*helper, error) {
	cc, missing := exec.LookPath("cc")
	if missing != nil {
		return nil, nil //nolint:nilerr // without a compiler there is nothing to compare with
	}
	h := &helper{}
	var err error
	if h.dir, err = os.MkdirTemp(dir, "openblas"); err != nil {
		return nil, err
	}
	file, program := filepath.Join(h.dir, "openblas.c"), filepath.Join(h.dir, "openblas")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(h.dir))
	}
	if exec.CommandContext(ctx, cc, "-O2", "-o", program, file, "-lopenblas").Run() != nil {
		return nil, errors.Join(context.Cause(ctx), os.RemoveAll(h.dir))
	}
	err = h.start(ctx, program, os.Environ())
	if err == nil && h.core == oldest && core() != "" && os.Getenv("OPENBLAS_CORETYPE") == "" {
		if err = h.stop(); err == nil {
			err = h.start(ctx, program, append(os.Environ(), "OPENBLAS_CORETYPE="+core()))
		}
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(h.dir))
	}
	return h, nil
}

// start runs the program, which says first which core it is for.
func (h *helper) start(ctx context.Context, program string, env []string) error {
	h.cmd = exec.CommandContext(ctx, program)
	// Its threads wait for more work for 2^20 cycles rather than 2^26, in which ours would have had to share a core with them.
	h.cmd.Env = append(env, "OPENBLAS_THREAD_TIMEOUT=20")
	in, errIn := h.cmd.StdinPipe()
	out, errOut := h.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return err
	}
	h.in, h.out = in, bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		return err
	}
	line, err := h.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("openblas: the helper ended: %w", errors.Join(err, h.stop()))
	}
	h.core = strings.TrimSpace(line)
	return nil
}

// name is what it is called in results: which kernels OpenBLAS ran decides what a ratio says.
func (h *helper) name() string { return "openblas for " + h.core }

// run has a product done some times.
func (h *helper) run(l *layer, times int) error {
	if _, err := fmt.Fprintln(h.in, l.threads, l.op, l.m, l.k, l.n, times); err != nil {
		return err
	}
	_, err := h.out.ReadString('\n')
	return err
}

// stop ends the program.
func (h *helper) stop() error { return errors.Join(h.in.Close(), h.cmd.Wait()) }

// close ends the program and removes the helper's files.
func (h *helper) close() error { return errors.Join(h.stop(), os.RemoveAll(h.dir)) }
