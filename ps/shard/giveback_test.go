package shard_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
)

// removing tells of files that are removed.
type removing struct {
	fsx.Disk
	removed chan string
}

func (d removing) Remove(path string) error {
	err := d.Disk.Remove(path)
	d.removed <- path
	return err
}

// TestFailedSnapshotHasTheRoomForLater: when a snapshot that a shard wrote for has failed, its log gives back the file that it made for its next segment.
func TestFailedSnapshotHasTheRoomForLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := removing{fsx.OS{}, make(chan string, 1<<10)}
	n, c, u := pusher(t, shard.Options{Layout: pstest.BenchLayout(4), NumShards: 1, Log: &shard.LogOptions{Dir: dir, Disk: d}})
	defer func() { _ = n.Close() }()
	at := u.To
	u = pstest.BenchUpdate(pstest.Distinct(rand.New(rand.NewPCG(1, 1)), 10_000, 1<<30), 4)
	u.To = at
	next := filepath.Join(dir, "wal-next.log.tmp")
	for {
		if _, err := os.Stat(next); err == nil {
			break
		}
		commit := []ps.Control{{Kind: ps.Commit, Split: ps.SplitID{Source: u.Source, Split: u.Split}, Epoch: 1, To: u.To}}
		if _, err := c.Control(t.Context(), commit); err != nil {
			t.Fatal(err)
		}
		u.From, u.To = u.To, u.To+1
		if _, err := c.Stage(t.Context(), nil, 1, u); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.BeginCut(t.Context(), 1, 1, nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := n.AwaitCut(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := n.EndCut(t.Context(), 1, 0); err != nil {
		t.Fatal(err)
	}
	for late := time.After(5 * time.Minute); ; {
		select {
		case path := <-d.removed:
			if path == next {
				return
			}
		case <-late:
			t.Fatalf("%s is still there", next)
		}
	}
}
