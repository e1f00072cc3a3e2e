package fsx_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/monolith-go/monolith/internal/fsx"
)

// TestDirectAgainstBytes writes pieces of all sizes over a file, past the system's memory, and reads it after each sync in the ordinary way:
// it is what the file was with the pieces copied over it, and at most zeros to the end of the block. Systems without the call that writes and syncs at once
// do the same with two.
func TestDirectAgainstBytes(t *testing.T) {
	t.Parallel()
	const block = 4096
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		path := filepath.Join(t.TempDir(), "file")
		want := make([]byte, []int{0, block, 5000, 3 << 20}[rng.IntN(4)])
		for i := range want {
			want[i] = byte(rng.Uint32())
		}
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		at := rng.IntN(len(want) + 1)
		if seed == 0 {
			at = len(want) + 100 // what is not there is zeros
		}
		f, err := fsx.OS{}.Update(path, int64(at), true)
		if err != nil {
			t.Fatal(err)
		}
		if seed == 0 {
			if _, err := f.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			want = slices.Concat(want, make([]byte, 100), []byte{'x'})
			at++
		}
		synced, plain := 0, seed%3 == 1
		if plain {
			fsx.RefusePwritev2(f, []error{unix.ENOSYS, unix.EOPNOTSUPP}[seed%2], seed%2 == 0, &synced)
		}
		reader, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		// Whole blocks at the beginning of one are written from where they are.
		pages := make([]byte, 4<<20)
		for range 12 {
			wrote := false
			for range rng.IntN(3) {
				p := pages[:[]int{0, 1, rng.IntN(300), block, rng.IntN(5 * block), 64 * block, rng.IntN(len(pages))}[rng.IntN(7)]]
				if rng.IntN(4) == 0 {
					p = pages[:(block-at%block)%block] // up to the end of the block
				}
				for i := range p {
					p[i] = byte(rng.Uint32())
				}
				if n, err := f.Write(p); n != len(p) || err != nil {
					t.Fatalf("seed %d: %d of %d bytes: %v", seed, n, len(p), err)
				}
				if more := at + len(p) - len(want); more > 0 {
					want = slices.Concat(want, make([]byte, more))
				}
				at += copy(want[at:], p)
				wrote = wrote || len(p) > 0
			}
			before := synced
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			if plain && wrote && synced != before+1 {
				t.Fatalf("seed %d: %d calls that sync what was written, want 1", seed, synced-before)
			}
			got := make([]byte, len(want)+block)
			n, _ := reader.ReadAt(got, 0)
			got = got[:n]
			// What was behind the last byte in its block is zeros now.
			end := min(n, (at+block-1)/block*block)
			if n < len(want) || n > len(want) && (n > end || n%block != 0) {
				t.Fatalf("seed %d: file of %d bytes, want %d", seed, n, len(want))
			}
			if !bytes.Equal(got[:at], want[:at]) || end < len(want) && !bytes.Equal(got[end:len(want)], want[end:]) {
				t.Fatalf("seed %d: the file is not what was written up to %d", seed, at)
			}
			if tail := got[at:max(at, min(end, n))]; wrote && len(bytes.Trim(tail, "\x00")) > 0 {
				t.Fatalf("seed %d: behind what was written up to %d there is % x", seed, at, tail)
			}
			copy(want[at:], got[at:])
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("x")); err == nil && f.Sync() == nil {
			t.Error("a file that is closed was written and synced")
		}
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
