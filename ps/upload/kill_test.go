package upload_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/remote"
	"github.com/monolith-go/monolith/internal/testbed/realhdfs"
	"github.com/monolith-go/monolith/internal/testbed/reals3"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/upload"
)

// What a child of TestKilled is told by.
const (
	envDir = "MONOLITH_TEST_UPLOAD_DIR"
	envURL = "MONOLITH_TEST_UPLOAD_URL"
)

func openURL(url string) func(context.Context) (upload.Store, error) {
	return func(ctx context.Context) (upload.Store, error) {
		u, err := fsx.ParseURL(url)
		if err != nil {
			return nil, err
		}
		return remote.Open(ctx, u)
	}
}

// TestKilledChild is no test of its own: it trains, takes snapshots and uploads them until it is killed.
func TestKilledChild(t *testing.T) {
	dir, url := os.Getenv(envDir), os.Getenv(envURL)
	if dir == "" {
		t.Skip("a child of TestKilled")
	}
	m := must(t, options(dir, "me", openURL(url), 3), 3)
	for {
		m.train(3, ps.SnapshotOptions{})
		m.wait()
	}
}

// TestKilled kills a process with SIGKILL in the middle of uploads to real stores, again and again. A reader finds whole snapshots only, whatever the
// process was at; the next life uploads what was not; and when the machine is gone, another one has all that was uploaded.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("real stores and processes take a minute")
	}
	t.Run("s3", func(t *testing.T) {
		server := reals3.Start(t)
		for name, value := range server.Environment() {
			t.Setenv(name, value)
		}
		testKilled(t, "s3://"+reals3.Bucket+"/models/click")
	})
	t.Run("hdfs", func(t *testing.T) {
		testKilled(t, "hdfs://"+realhdfs.Start(t).Addr+"/models/click")
	})
	t.Run("file", func(t *testing.T) {
		testKilled(t, "file://"+filepath.ToSlash(t.TempDir())+"/models/click")
	})
}

func testKilled(t *testing.T, url string) {
	dir := t.TempDir()
	store, err := openURL(url)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // only read from
	reader := &machine{t: t}
	newest := uint64(0)
	for life := range 5 {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledChild$", "-test.timeout=10m")
		child.Env = append(os.Environ(), envDir+"="+dir, envURL+"="+url)
		log, err := os.Create(filepath.Join(t.TempDir(), "child.log"))
		if err != nil {
			t.Fatal(err)
		}
		child.Stdout, child.Stderr = log, log
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		exited := make(chan error, 1)
		go func() { exited <- child.Wait() }() // joined below
		// It is in the middle of a later upload than the life before got to when a snapshot is there that has no manifest yet.
		inTheMiddle := func() bool {
			infos, err := store.List(t.Context(), ".")
			if err != nil || len(infos) == 0 {
				return false
			}
			last := infos[len(infos)-1].Name
			if last == "owner" || last <= filepath.Base(snapshot.Path(".", newest+1)) {
				return false
			}
			_, err = store.Stat(t.Context(), filepath.Join(last, snapshot.ManifestName))
			return errors.Is(err, os.ErrNotExist)
		}
		tick := time.NewTicker(time.Millisecond)
		for !inTheMiddle() {
			select {
			case <-tick.C:
			case err := <-exited:
				b, _ := os.ReadFile(log.Name())
				t.Fatalf("the child ended: %v\n%s", err, b)
			}
		}
		tick.Stop()
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := <-exited; err == nil {
			t.Error("a child that was killed ended well")
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		ids := reader.check(store) // each is whole, with what it adds to
		local, err := snapshot.List(filepath.Join(dir, "snapshots"))
		if err != nil || len(ids) == 0 || len(local) == 0 || ids[0] < newest || ids[0] > local[0].ID {
			t.Fatalf("life %d: the store has %v, had %d, the dir %v: %v", life, ids, newest, local, err)
		}
		newest = ids[0]
	}
	lost := filepath.Join(t.TempDir(), "other machine")
	m := must(t, options(lost, "other", openURL(url), 3), 3)
	restored := m.c.Restored()
	if restored == nil || restored.ID != newest {
		t.Fatalf("another machine continues from %v, the store had %d", restored, newest)
	}
	m.train(3, ps.SnapshotOptions{})
	m.wait()
	m.end() // what is compacted meanwhile would go while it is read
	if ids := m.check(store); ids[0] <= newest {
		t.Errorf("the other machine has uploaded %v", ids)
	}
}
