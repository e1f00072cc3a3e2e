package coordinator_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
)

// farDisk is a folder on the network that gives one reader 250 MB/s, and each of several as much.
type farDisk struct{ fsx.Disk }

// Open implements [fsx.Disk].
func (d farDisk) Open(path string) (fsx.File, error) {
	f, err := d.Disk.Open(path)
	return farFile{f}, err
}

type farFile struct{ fsx.File }

// ReadAt implements [fsx.File].
func (f farFile) ReadAt(p []byte, at int64) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second / 250e6)
	return f.File.ReadAt(p, at)
}

// BenchmarkRestart opens a cluster whose rows lie in a snapshot: a whole one, and one that adds to seven others, each of a twentieth of the rows; in the system's memory, and in a folder
// on the network.
func BenchmarkRestart(b *testing.B) {
	const rows, dim, batch, added = 1_000_000, 16, 10_000, 7
	for _, disk := range []fsx.Disk{fsx.OS{}, farDisk{fsx.OS{}}} {
		for _, snapshots := range []int{1, 1 + added} {
			b.Run(fmt.Sprintf("rows=%d/dim=%d/disk=%T/snapshots=%d", rows, dim, disk, snapshots), func(b *testing.B) {
				ctx := context.WithoutCancel(b.Context())
				o := coordinator.Options{Layout: pstest.BenchLayout(dim), Dir: b.TempDir(), FS: fsx.Local{Disk: disk}, Keep: 1, Incremental: 2 * added}
				c, err := coordinator.Open(ctx, o)
				if err != nil {
					b.Fatal(err)
				}
				keys, at := make([]int64, batch), int64(0)
				for s := range snapshots {
					cl, err := c.Client(ctx, "bench")
					if err != nil {
						b.Fatal(err)
					}
					if _, err := cl.Resume(ctx, "s", []string{"x"}); err != nil {
						b.Fatal(err)
					}
					n, step := rows, int64(1)
					if s > 0 {
						n, step = rows/20, 20
					}
					for from := 0; from < n; from += batch {
						for i := range keys {
							keys[i] = int64(from+i) * step
						}
						u := pstest.BenchUpdate(keys, dim)
						u.NumRows, u.From, u.To = 1, at, at+1
						at++
						if err := cl.Push(ctx, u); err != nil {
							b.Fatal(err)
						}
					}
					if err := cl.Close(); err != nil {
						b.Fatal(err)
					}
					if _, err := c.Snapshot(ctx, ps.SnapshotOptions{}); err != nil {
						b.Fatal(err)
					}
				}
				for b.Loop() {
					b.StopTimer()
					if err := c.Close(ctx); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
					if c, err = coordinator.Open(ctx, o); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				st, err := c.Stats(ctx)
				if err != nil || st.Tables[0].Rows != rows {
					b.Fatalf("%+v, %v; want %d rows", st, err, rows)
				}
				if err := c.Close(ctx); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}
