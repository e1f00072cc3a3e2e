// Package readers runs the programs that read what monolith writes for others, and those that ask it: TensorFlow, onnxruntime, pyarrow, safetensors, the client of TensorFlow Serving, in Python. A
// test that needs them ends as testbed.Require says for «python-readers» where they are not there.
//
// Which they are is in requirements.txt and alone.txt. They are installed once, in a virtual environment in the user's cache folder, when they are required: 350 MB are fetched, which takes a minute, and 2 GB of
// disk are needed. It needs Python 3.11 or newer with venv.
package readers

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/testbed"
)

//go:embed requirements.txt
var requirements []byte

//go:embed alone.txt
var alone []byte

const (
	what = "python-readers"
	// envPython names a Python that has what both files list, in place of the one in the cache folder.
	envPython = "MONOLITH_PYTHON"
)

// Run runs a program in Python and returns what it prints to standard output. The test ends when it fails, with what it logged, and as [Need] says.
func Run(t testing.TB, script string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Need(t), append([]string{"-c", script}, args...)...)
	cmd.Env = append(os.Environ(), "TF_CPP_MIN_LOG_LEVEL=3", "CUDA_VISIBLE_DEVICES=", "PYTHONWARNINGS=ignore")
	var out, logged bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &logged
	if err := cmd.Run(); err != nil {
		t.Fatalf("readers: %v\n%s%s", err, out.Bytes(), logged.Bytes())
	}
	return out.Bytes()
}

// Need returns the program that has the readers. Where there is none it ends the test, as testbed.Require says; short tests are skipped.
func Need(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("TensorFlow takes seconds to start")
	}
	if own := os.Getenv(envPython); own != "" {
		return own
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		testbed.Require(t, what, "there is no cache folder: "+err.Error())
	}
	dir := filepath.Join(cache, "monolith-testbed", fmt.Sprintf("readers-%.6x", sha256.Sum256(slices.Concat(requirements, alone))))
	program := filepath.Join(dir, "bin", "python")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	if !testbed.Required(what) {
		testbed.Require(t, what, fmt.Sprintf("TensorFlow and the others are not in %s; with %s in $%s they are installed there, or $%s names a Python that has them", dir, what, testbed.EnvRequire, envPython))
	}
	if err := install(t.Context(), dir, program); err != nil {
		testbed.Require(t, what, err.Error())
	}
	return program
}

// install makes the environment, unless another test is making it: then it waits.
func install(ctx context.Context, dir, program string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("readers: %w", err)
	}
	lock, err := claim(ctx, dir+".lock")
	if err != nil {
		return fmt.Errorf("readers: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if _, err := os.Stat(program); err == nil {
		return nil
	}
	// Made aside and renamed, so that what has the final name is complete.
	aside := dir + ".making"
	if err := os.RemoveAll(aside); err != nil {
		return fmt.Errorf("readers: %w", err)
	}
	defer func() { _ = os.RemoveAll(aside) }() // what is left there is of no use
	if err := run(ctx, "python3", "-m", "venv", aside); err != nil {
		return err
	}
	for _, l := range []struct {
		name    string
		list    []byte
		options []string
	}{{"requirements.txt", requirements, nil}, {"alone.txt", alone, []string{"--no-deps"}}} {
		path := filepath.Join(aside, l.name)
		if err := os.WriteFile(path, l.list, 0o644); err != nil {
			return fmt.Errorf("readers: %w", err)
		}
		args := append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", path}, l.options...)
		if err := run(ctx, filepath.Join(aside, "bin", "python"), args...); err != nil {
			return err
		}
	}
	return os.Rename(aside, dir)
}

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("readers: %s %q: %w: %.600s", filepath.Base(name), args[:2], err, out)
	}
	return nil
}

func claim(ctx context.Context, path string) (*fsx.Lock, error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		lock, err := fsx.TryLock(path)
		if !errors.Is(err, fsx.ErrLocked) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
