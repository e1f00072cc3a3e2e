package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
	"github.com/monolith-go/monolith/internal/fsx/remote"
	"github.com/monolith-go/monolith/internal/fsx/s3fs"
	"github.com/monolith-go/monolith/internal/testbed/realhdfs"
	"github.com/monolith-go/monolith/internal/testbed/reals3"
)

func open(t *testing.T, url string) *remote.Store {
	t.Helper()
	u, err := fsx.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	s, err := remote.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func setEnv(t *testing.T, vars map[string]string) {
	t.Helper()
	for name, value := range vars {
		t.Setenv(name, value)
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	store := open(t, "file://"+filepath.ToSlash(dir)+"/below")
	fsxtest.Test(t, store, "root")
	if err := fsx.WriteFile(t.Context(), store, "x", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "below", "x")); string(b) != "1" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

// big is longer than a part, so that it is sent in several.
func big(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{7})
	_, _ = r.Read(b) // never fails
	return b
}

// TestS3: an S3 server that checks signatures is a file system, whole files of several parts included, and says by name what is wrong.
func TestS3(t *testing.T) {
	if testing.Short() {
		t.Skip("a real server")
	}
	server := reals3.Start(t)
	setEnv(t, server.Environment())
	for _, scheme := range []string{"s3", "gs"} { // Google's is the same protocol at another address
		t.Run(scheme, func(t *testing.T) { fsxtest.Test(t, open(t, scheme+"://"+reals3.Bucket+"/some/"+scheme), "root") })
	}
	store := open(t, "s3://"+reals3.Bucket+"/more")

	t.Run("parts", func(t *testing.T) {
		want := big(2*s3fs.PartBytes + 12345)
		abandoned, err := store.Create(t.Context(), "big")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := abandoned.Write(want[:s3fs.PartBytes+1]); err != nil { // a part is there, and nobody ends it: it was killed
			t.Fatal(err)
		}
		if _, err := store.Stat(t.Context(), "big"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a part of a file is visible: %v", err)
		}
		if err := fsx.WriteFile(t.Context(), store, "big", want); err != nil {
			t.Fatal(err)
		}
		got, err := fsx.ReadFile(t.Context(), store, "big", int64(len(want)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d are the same file, %v", len(got), len(want), err)
		}
		left, err := filepath.Glob(filepath.Join(server.Data, reals3.Bucket, ".sgwtmp", "multipart", "*", "*"))
		if err != nil || len(left) != 0 {
			t.Errorf("parts of the writer that was killed are left: %v, %v", left, err)
		}
		given, err := store.Create(t.Context(), "given up")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = given.Write(want); err != nil {
			t.Error(err)
		}
		if err := given.Close(); err != nil {
			t.Error(err)
		}
		if _, err := store.Stat(t.Context(), "given up"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file that was given up: %v", err)
		}
		if left, err = filepath.Glob(filepath.Join(server.Data, reals3.Bucket, ".sgwtmp", "multipart", "*", "*")); err != nil || len(left) != 0 {
			t.Errorf("parts of a file that was given up are left: %v, %v", left, err)
		}
	})

	t.Run("connection lost", func(t *testing.T) {
		want := big(3 << 20)
		if err := fsx.WriteFile(t.Context(), store, "lost", want); err != nil {
			t.Fatal(err)
		}
		f, err := store.Open(t.Context(), "lost")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck // only read from
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got[:1000], 0); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(server.Kill(), server.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(got[1000:], 1000); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the rest, from a server that was started again: %v", err)
		}
	})

	t.Run("faults", func(t *testing.T) {
		for _, x := range []struct {
			name, url string
			env       map[string]string
			want      error
			text      string
		}{
			{"no bucket", "s3://nowhere/x", nil, fsx.ErrNoBucket, "nowhere"},
			{"wrong secret", "s3://" + reals3.Bucket, map[string]string{"AWS_SECRET_ACCESS_KEY": "wrong-secret"}, fsx.ErrCredentials, "AWS_ACCESS_KEY_ID"},
			{"no such key", "s3://" + reals3.Bucket, map[string]string{"AWS_ACCESS_KEY_ID": "nobody"}, fsx.ErrCredentials, "AWS_ACCESS_KEY_ID"},
			{"a stranger", "s3://" + reals3.Bucket, map[string]string{"AWS_ACCESS_KEY_ID": reals3.Stranger, "AWS_SECRET_ACCESS_KEY": reals3.StrangerSecret}, fs.ErrPermission, "s3:PutObject"},
			{"nobody listens", "s3://" + reals3.Bucket, map[string]string{"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}, fsx.ErrUnreachable, "refused"},
		} {
			t.Run(x.name, func(t *testing.T) {
				setEnv(t, x.env)
				store := open(t, x.url)
				_, listErr := store.List(t.Context(), ".")
				writeErr := fsx.WriteFile(t.Context(), store, "file", []byte("1"))
				for _, err := range []error{listErr, writeErr} {
					if !errors.Is(err, x.want) || errors.Is(err, fs.ErrNotExist) || !strings.Contains(fmt.Sprint(err), x.text) {
						t.Errorf("%v, want %v and %q", err, x.want, x.text)
					}
					if strings.Contains(fmt.Sprint(err), reals3.Secret) || strings.Contains(fmt.Sprint(err), "wrong-secret") {
						t.Errorf("%v holds a secret", err)
					}
				}
			})
		}
		t.Setenv("AWS_ENDPOINT_URL_S3", "ftp://user:password@host")
		u := fsx.URL{Scheme: "s3", Host: "b", Path: "/"}
		if _, err := remote.Open(t.Context(), u); err == nil || strings.Contains(err.Error(), "password") {
			t.Errorf("an endpoint that is none: %v", err)
		}
	})
}

// TestHDFS: a namenode and a datanode are a file system, files of several blocks included, and say by name what is wrong.
func TestHDFS(t *testing.T) {
	if testing.Short() {
		t.Skip("a real cluster takes half a minute")
	}
	cluster := realhdfs.Start(t)
	store := open(t, "hdfs://"+cluster.Addr+"/some/place")
	fsxtest.Test(t, store, "root")

	t.Run("blocks", func(t *testing.T) {
		want := big(3<<20 + 4321) // blocks are a mebibyte
		if err := fsx.WriteFile(t.Context(), store, "big", want); err != nil {
			t.Fatal(err)
		}
		got, err := fsx.ReadFile(t.Context(), store, "big", int64(len(want)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d are the same file, %v", len(got), len(want), err)
		}
		given, err := store.Create(t.Context(), "given up")
		if err != nil {
			t.Fatal(err)
		}
		_, err = given.Write(want)
		if err = errors.Join(err, given.Close()); err != nil {
			t.Error(err)
		}
		infos, err := store.List(t.Context(), ".")
		for _, i := range infos {
			if strings.Contains(i.Name, "given") {
				t.Errorf("%s is left of a file that was given up", i.Name)
			}
		}
		if err != nil {
			t.Error(err)
		}
	})

	t.Run("permission denied", func(t *testing.T) {
		t.Setenv("HADOOP_USER_NAME", "stranger")
		err := fsx.WriteFile(t.Context(), open(t, "hdfs://"+cluster.Addr+"/some/place"), "x", []byte("1"))
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(fmt.Sprint(err), `"stranger"`) || !strings.Contains(fmt.Sprint(err), "HADOOP_USER_NAME") {
			t.Errorf("%v", err)
		}
	})

	t.Run("down and up", func(t *testing.T) {
		if err := cluster.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := store.List(t.Context(), "."); !errors.Is(err, fsx.ErrUnreachable) {
			t.Errorf("of a cluster that is down: %v", err)
		}
		u, _ := fsx.ParseURL("hdfs://" + cluster.Addr + "/some/place")
		if _, err := remote.Open(t.Context(), u); !errors.Is(err, fsx.ErrUnreachable) {
			t.Errorf("opened while it is down: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		if err := cluster.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		want := big(3<<20 + 4321)
		got, err := fsx.ReadFile(t.Context(), open(t, u.String()), "big", int64(len(want)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("after it was killed: %d bytes of %d, %v", len(got), len(want), err)
		}
	})
}
