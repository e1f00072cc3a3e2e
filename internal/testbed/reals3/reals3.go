// Package reals3 starts an S3 server for tests: Versity's gateway (Apache-2.0) on a folder, which checks signatures, checksums, owners of buckets
// and parts of uploads as an object store does. It is built from Go modules, in a module of its own; where they cannot be had a test ends as testbed.Require
// says for «s3».
//
// Building it takes a minute or two, once: it is kept in the user's cache folder. A server takes less than a second to start and 60 MiB of memory.
package reals3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/testbed/jvm"
)

// Accounts of the server: User and Secret may do everything, Stranger and StrangerSecret nothing with buckets of User.
const (
	User           = "tester"
	Secret         = "tester-secret"
	Stranger       = "stranger"
	StrangerSecret = "stranger-secret"
)

// Bucket is there when the server starts.
const Bucket = "snapshots"

// Server is a server in a process of its own. Its methods are not for concurrent use.
type Server struct {
	// Endpoint is its URL.
	Endpoint string
	// Data is the folder that has a folder for each bucket, and in it a file for each object.
	Data string

	dir, addr, program string
	process            *jvm.Process
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	s := &Server{dir: t.TempDir()}
	var err error
	if s.program, err = program(ctx); err != nil {
		testbed.Require(t, "s3", err.Error())
	}
	ports, err := jvm.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	s.addr = "127.0.0.1:" + ports[0]
	s.Endpoint, s.Data = "http://"+s.addr, filepath.Join(s.dir, "data")
	accounts, err := json.Marshal(map[string]any{"accessAccounts": map[string]any{
		Stranger: map[string]any{"access": Stranger, "secret": StrangerSecret, "role": "user"},
	}})
	if err := errors.Join(err, os.MkdirAll(filepath.Join(s.Data, Bucket), 0o755), os.MkdirAll(s.iam(), 0o755),
		os.WriteFile(filepath.Join(s.iam(), "users.json"), accounts, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("end of the server's log:\n%s", s.process.LogTail())
		}
	})
	return s
}

// version is that of the module in the folder server.
const version = "1.8.0"

// program returns the server's executable, and builds it the first time.
func program(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder: %w", err)
	}
	final := filepath.Join(cache, "monolith-testbed", "versitygw-"+version)
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return "", fmt.Errorf("cache folder: %w", err)
	}
	// Built aside and renamed, so that what has the final name is complete, also when two tests build at once.
	tmp, err := os.MkdirTemp(filepath.Dir(final), "build-*")
	if err != nil {
		return "", fmt.Errorf("cache folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // what is left there is of no use
	_, file, _, _ := runtime.Caller(0)
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(tmp, "versitygw"), "github.com/versity/versitygw/cmd/versitygw")
	build.Dir = filepath.Join(filepath.Dir(file), "server")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("versitygw cannot be built: %w: %s", err, jvm.Tail(out, 600))
	}
	return final, os.Rename(filepath.Join(tmp, "versitygw"), final)
}

func (s *Server) iam() string { return filepath.Join(s.dir, "iam") }

// Environment is what a client finds the server by, as User; each is NAME=VALUE.
func (s *Server) Environment() map[string]string {
	return map[string]string{
		"AWS_ENDPOINT_URL_S3": s.Endpoint, "AWS_ACCESS_KEY_ID": User, "AWS_SECRET_ACCESS_KEY": Secret, "AWS_REGION": "us-east-1",
		"AWS_SESSION_TOKEN": "", "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	}
}

// Restart starts the server after Kill, with the same address and data, and returns when it serves clients.
func (s *Server) Restart(ctx context.Context) (err error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.program, "--port", s.addr, "--iam-dir", s.iam(), "--region", "us-east-1", "posix", s.Data)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+User, "ROOT_SECRET_KEY="+Secret)
	s.process, err = jvm.StartProgram(ctx, cmd, filepath.Join(s.dir, "server.log"), s.addr, nil)
	if err != nil {
		return fmt.Errorf("reals3: %w", err)
	}
	return nil
}

// Kill ends the server as kill -9 does and waits for its end. It may be called more than once.
func (s *Server) Kill() error { return s.process.Kill() }

// Pid is the number of the server's process.
func (s *Server) Pid() int { return s.process.Pid() }
