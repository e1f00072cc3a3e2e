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
)

//go:embed openblas.c.txt
var source []byte

// helper is a program around OpenBLAS that multiplies on demand.
type helper struct {
	dir string
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startOpenBLAS builds and starts the helper below dir. It returns nil where there is no C compiler or no OpenBLAS.
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
	h.cmd = exec.CommandContext(ctx, program)
	// Its threads wait for more work for 2^20 cycles rather than 2^26, in which ours would have had to share a core with them.
	h.cmd.Env = append(os.Environ(), "OPENBLAS_THREAD_TIMEOUT=20")
	in, errIn := h.cmd.StdinPipe()
	out, errOut := h.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, errors.Join(err, os.RemoveAll(h.dir))
	}
	h.in, h.out = in, bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(h.dir))
	}
	if _, err := h.out.ReadString('\n'); err != nil {
		return nil, fmt.Errorf("openblas: the helper ended: %w", errors.Join(err, h.close()))
	}
	return h, nil
}

// run has a product done some times.
func (h *helper) run(l *layer, times int) error {
	if _, err := fmt.Fprintln(h.in, l.threads, l.op, l.m, l.k, l.n, times); err != nil {
		return err
	}
	_, err := h.out.ReadString('\n')
	return err
}

// close ends the helper and removes its files.
func (h *helper) close() error {
	return errors.Join(h.in.Close(), h.cmd.Wait(), os.RemoveAll(h.dir))
}
