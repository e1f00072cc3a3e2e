package kafkasource_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/kafkasource"
)

// BenchmarkRead reads one partition of 200-byte records from the embedded broker, over a socket, into blocks.
func BenchmarkRead(b *testing.B) {
	for _, codec := range []string{"none", "zstd"} {
		for _, batch := range []int{100, 4000} {
			b.Run(fmt.Sprintf("codec=%s/records_per_batch=%d", codec, batch), func(b *testing.B) {
				const n, size = 400_000, 200
				bed := start(b, broker.Options{})
				value := bytes.Repeat([]byte("0123456789"), size/10)
				records := make([]broker.Record, n)
				for i := range records {
					v := bytes.Clone(value)
					copy(v, fmt.Appendf(nil, "%016x", i*2654435761))
					records[i] = broker.Record{Value: v}
				}
				produce(b, bed, "ratings", 0, broker.Batch{Codec: codec, Size: batch}, records...)
				o := options(bed.Addrs()...)
				o.End.Place = kafkasource.Latest
				s := source(b, o)
				split := splits(b, s)[0]
				b.SetBytes(n * size)
				b.ReportAllocs()
				for b.Loop() {
					r, err := s.Open(b.Context(), &pipeline.Env{Source: "in"}, split, 0)
					if err != nil {
						b.Fatal(err)
					}
					rows := 0
					for rows < n {
						blk, err := r.Next(b.Context())
						if err != nil {
							b.Fatal(err)
						}
						rows += blk.NumRows()
						blk.Release()
					}
					if err := r.Close(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}
