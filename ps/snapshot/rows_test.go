package snapshot_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// TestRowReader reads what each shard wrote from any row on, and finds what reading all of it finds.
func TestRowReader(t *testing.T) {
	t.Parallel()
	const n, shards = 150_000, 2
	rows := randomRows(rand.New(rand.NewPCG(4, 4)), layout().Tables[0], n)
	info := write(t, t.TempDir(), 3, &rows, shards)
	dim, stateDim := layout().Tables[0].Dim(), layout().Tables[0].StateDim()
	for shard := range shards {
		of := n * shard / shards // the first row
		for _, weightsOnly := range []bool{false, true} {
			r, err := snapshot.OpenRows(t.Context(), info, 0, shard, snapshot.RowsOptions{WeightsOnly: weightsOnly})
			if err != nil {
				t.Fatal(err)
			}
			for _, from := range []int64{0, 1, 70_000, 65_536, 74_999, 75_000, 80_000, 3} {
				if err := r.SeekRow(from); err != nil {
					t.Fatal(err)
				}
				at := int64(-1)
				for {
					got, first, err := r.Next()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					if at < 0 && first > from || at >= 0 && first != at {
						t.Fatalf("from row %d: rows begin at %d, after %d", from, first, at)
					}
					at = first + int64(len(got.Keys))
					i, j := of+int(first), of+int(at)
					state := rows.State[i*stateDim : j*stateDim]
					if weightsOnly {
						state = nil
					}
					if !slices.Equal(got.Keys, rows.Keys[i:j]) || !slices.Equal(got.Times, rows.Times[i:j]) || !slices.Equal(got.Counts, rows.Counts[i:j]) ||
						!slices.Equal(got.Weights, rows.Weights[i*dim:j*dim]) || !slices.Equal(got.State, state) {
						t.Fatalf("rows %d to %d of shard %d are others", first, at, shard)
					}
				}
				if from < n/shards && at != n/shards || from >= n/shards && at >= 0 {
					t.Errorf("from row %d rows end at %d", from, at)
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := snapshot.OpenRows(t.Context(), info, 1, 0, snapshot.RowsOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a table without rows: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := snapshot.OpenRows(ctx, info, 0, 0, snapshot.RowsOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestRowReaderVerifies: files are verified unless the caller has done so, and what is found while they are read has its place.
func TestRowReaderVerifies(t *testing.T) {
	t.Parallel()
	rows := randomRows(rand.New(rand.NewPCG(4, 5)), layout().Tables[0], 100_000)
	info := write(t, t.TempDir(), 3, &rows, 1)
	path := filepath.Join(info.Path, "rows-0000-0000.arrow")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := len(b) * 3 / 4
	b[at] ^= 1
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := snapshot.OpenRows(t.Context(), info, 0, 0, snapshot.RowsOptions{}); !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "rows-0000-0000.arrow: bytes 0 to ") {
		t.Errorf("a bit is another: %v", err)
	}
	r, err := snapshot.OpenRows(t.Context(), info, 0, 0, snapshot.RowsOptions{Verified: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if err := os.Truncate(path, int64(at)); err != nil {
		t.Fatal(err)
	}
	read := 0
	for err == nil {
		var got *table.Rows
		if got, _, err = r.Next(); err == nil {
			read += len(got.Keys)
		}
	}
	if read == 0 || errors.Is(err, io.EOF) || !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "record batch 1 at offset ") {
		t.Errorf("%d rows, then %v", read, err)
	}
}
