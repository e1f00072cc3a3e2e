package job_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/entrydump"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job"
)

// BenchmarkMigrate measures taking over and giving back a million rows of a weight with FTRL and a vector of 32 with SGD, as upstream's
// sample has them, with memory for a tenth of them.
func BenchmarkMigrate(b *testing.B) {
	const rows, files = 1 << 20, 4
	dir := filepath.Join(b.TempDir(), "assets")
	e := entrydump.Entry{HasOpt: true, HasTime: true, Time: 1_700_000_000, Num: make([]float32, 33)}
	e.Opt = []entrydump.Dump{dump(entrydump.FTRL, [2]float32{}, []float32{0.5}, []float32{0.25}), dump(entrydump.SGD, [2]float32{})}
	for shard := range files {
		w, err := entrydump.Create(b.Context(), fsx.Local{}, dir, entrydump.File{Name: "T", Shards: files}, shard)
		if err != nil {
			b.Fatal(err)
		}
		for i := range rows / files {
			e.ID = 1<<48 | int64(i*files+shard)
			e.Num[i%33] = float32(i)
			if err := w.Write(&e); err != nil {
				b.Fatal(err)
			}
		}
		if err := errors.Join(w.Commit(b.Context()), w.Close()); err != nil {
			b.Fatal(err)
		}
	}
	decode := func(dir string) *job.Config {
		cfg, err := job.Decode([]byte(importJob), "job.yaml", job.LoadOptions{Set: []string{"dir=" + dir}})
		if err != nil {
			b.Fatal(err)
		}
		return cfg
	}
	made := decode(filepath.Join(b.TempDir(), "run"))
	if _, err := job.Import(b.Context(), made, job.ImportOptions{From: dir, Memory: 16 << 20}); err != nil {
		b.Fatal(err)
	}
	report := func(b *testing.B) { b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s") }
	b.Run("import", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := job.Import(b.Context(), decode(b.TempDir()), job.ImportOptions{From: dir, Memory: 16 << 20}); err != nil {
				b.Fatal(err)
			}
		}
		report(b)
	})
	for _, multi := range []string{"", "M"} {
		b.Run(strings.Join([]string{"export", "multi"}[:1+len(multi)], "/"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := job.Export(b.Context(), job.ExportOptions{Snapshot: made.Dir, To: b.TempDir(), Multi: multi}); err != nil {
					b.Fatal(err)
				}
			}
			report(b)
		})
	}
}
