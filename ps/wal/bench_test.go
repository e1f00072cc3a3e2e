package wal_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/ps/wal"
)

func TestNoAllocs(t *testing.T) {
	if testbed.Race {
		t.Skip("the race detector allocates")
	}
	l := benchLog(t, wal.Options{NoSync: true})
	ctx := t.Context()
	head, body := []byte("head"), bytes.Repeat([]byte("b"), 10_000)
	step := func() {
		lsn, err := l.Append(1, head, body)
		if err == nil {
			err = l.Wait(ctx, lsn)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		step()
	}
	if n := testing.AllocsPerRun(500, step); n > 0 {
		t.Errorf("%g allocations for Append and Wait", n)
	}
}

func benchLog(tb testing.TB, o wal.Options) *log {
	tb.Helper()
	o.Dir = tb.TempDir()
	l, err := openLog(o)
	if err == nil {
		err = l.Reset(0)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	})
	return l
}

// BenchmarkAppendWait has each writer append a record and wait for it. The references a and b are the same; raw is one goroutine
// that writes and syncs a file.
func BenchmarkAppendWait(b *testing.B) {
	const size = 64 << 10
	for _, durable := range []bool{true, false} {
		for _, writers := range []int{1, 8} {
			for _, twin := range []string{"a", "b"} {
				b.Run(fmt.Sprintf("sync=%t/size=64KiB/writers=%d/twin=%s", durable, writers, twin), func(b *testing.B) {
					l := benchLog(b, wal.Options{NoSync: !durable})
					body := bytes.Repeat([]byte("b"), size)
					b.SetBytes(size)
					b.ReportAllocs()
					ctx := b.Context()
					var mu sync.Mutex
					var left atomic.Int64
					left.Store(int64(b.N))
					b.ResetTimer()
					var wg sync.WaitGroup
					for range writers {
						wg.Go(func() {
							for left.Add(-1) >= 0 {
								mu.Lock()
								lsn, err := l.Append(1, body)
								mu.Unlock()
								if err == nil {
									err = l.Wait(ctx, lsn)
								}
								if err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					wg.Wait()
					b.StopTimer()
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
					b.ReportMetric(float64(b.N)/float64(l.Stats().Syncs), "records/sync")
				})
			}
		}
		for _, group := range []int{1, 8} {
			b.Run(fmt.Sprintf("sync=%t/size=64KiB/raw=%d", durable, group), func(b *testing.B) {
				f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
				if err != nil {
					b.Fatal(err)
				}
				defer func() {
					if err := f.Close(); err != nil {
						b.Error(err)
					}
				}()
				body := bytes.Repeat([]byte("b"), size*group)
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := f.Write(body); err != nil {
						b.Fatal(err)
					}
					if durable {
						if err := f.Sync(); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(b.N*group)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}
