package fid_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/pipeline/fid"
)

func TestLayouts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		slot int
		sig  uint64
		want int64
	}{
		{0, 0, 0},
		{1, 0, 1 << 48},
		{1, 1251, 1<<48 | 1251},
		{fid.NumSlots - 1, fid.MaxSignature, math.MaxInt64},
	} {
		id, err := fid.New(tc.slot, tc.sig)
		if err != nil || int64(id) != tc.want {
			t.Errorf("New(%d, %d) = %d, %v; want %d", tc.slot, tc.sig, id, err, tc.want)
		}
		if id.Slot() != tc.slot || id.Signature() != tc.sig {
			t.Errorf("%d comes apart as %d:%d, want %d:%d", int64(id), id.Slot(), id.Signature(), tc.slot, tc.sig)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func() error{
		"slot -1":         func() error { _, err := fid.New(-1, 0); return err },
		"slot 32768":      func() error { _, err := fid.New(32768, 0); return err },
		"signature 2^48":  func() error { _, err := fid.New(1, 1<<48); return err },
		"reserved bit":    func() error { _, err := fid.FromInt64(-3); return err },
		"switch slot":     func() error { _, err := fid.ID(5).WithSlot(1 << 15); return err },
		"parse text":      func() error { _, err := fid.Parse("user"); return err },
		"parse slot":      func() error { _, err := fid.Parse("x:1"); return err },
		"parse signature": func() error { _, err := fid.Parse("1:-1"); return err },
		"parse range":     func() error { _, err := fid.Parse("40000:1"); return err },
	} {
		if err := f(); err == nil || !strings.HasPrefix(err.Error(), "fid: ") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

func TestConversions(t *testing.T) {
	t.Parallel()
	// Upstream's mask of 49 bits would turn slot 2 into 3 here.
	id, err := fid.ID(5<<48 | 77).WithSlot(2)
	if err != nil || id.String() != "2:77" {
		t.Errorf("WithSlot gives %s, %v", id, err)
	}
	if id, err := fid.FromInt64(7<<48 | 9); err != nil || id.String() != "7:9" {
		t.Errorf("FromInt64 gives %s, %v", id, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"1:2", "32767:281474976710655", "-10", "", ":", "1:", "9223372036854775807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := fid.Parse(s)
		if err != nil {
			return
		}
		again, err := fid.Parse(id.String())
		if err != nil || again != id {
			t.Errorf("%q is %d, printed %q, read again %d, %v", s, int64(id), id, int64(again), err)
		}
	})
}

// The hashes are those of Google's CityHash 1.1 as the Python package cityhash 0.4.10 gives them: CityHash64(text).
func TestHashGolden(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		want uint64
	}{
		{"", 0x9ae16a3b2f90404f},
		{"a", 0xb3454265b6df75e3},
		{"7", 0x8831601f30043498},
		{"abc", 0x24a5b3a074e7f369},
		{"user", 0x1f12322987d6420e},
		{"hello world", 0x588fb7478bd6b01b},
		{"Children's", 0x6f1dbc927c15da88},
		{"Credit Card", 0x2309389e0d8da3b1},
		{"0123456789abcdef", 0x54b961e5dc834067},
		{"0123456789abcdefg", 0xa6ddff87a449d24a},
		{"The quick brown fox jumps over", 0xe75880b807dfb05a},
		{"Chicago Elite Cab Corp. (Chicago Carriage CO)", 0x1c85cf8e91822757},
		{strings.Repeat("x", 64), 0xe6a56470446947d1},
		{strings.Repeat("x", 65), 0xfdf0f1abca453515},
		{strings.Repeat("x", 128), 0x87e1532e643b0d29},
		{strings.Repeat("x", 129), 0x2e395a81134a3366},
	} {
		if got := fid.CityHash64([]byte(tc.text)); got != tc.want {
			t.Errorf("hash of %q is %#016x, want %#016x", tc.text, got, tc.want)
		}
		if got := fid.HashString(tc.text); got != tc.want&fid.MaxSignature || got != fid.HashBytes([]byte(tc.text)) {
			t.Errorf("signature of %q is %#x", tc.text, got)
		}
	}
	// CityHash64(struct.pack('<q', v)) & (1 << 48) - 1.
	for v, want := range map[int64]uint64{
		0: 0x7a23417af284, 1: 0xe90bb03b5a61, 7: 0x23c9c6d2080b, -1: 0xe7a41fb59155,
		math.MinInt64: 0xbaa42bc69d1a, math.MaxInt64: 0xb80e687e7dd2, 1251: 0x529c3c166f8b,
	} {
		if got := fid.HashInt(v); got != want {
			t.Errorf("signature of %d is %#x, want %#x", v, got, want)
		}
	}
}

// Every length up to 399 bytes, folded into one number; the same loop in Python with cityhash 0.4.10 gives it too.
func TestHashLengths(t *testing.T) {
	t.Parallel()
	data := make([]byte, 400)
	for i := range data {
		data[i] = byte(i*131 + 7)
	}
	var acc uint64
	for n := range data {
		acc = acc*0x100000001b3 ^ fid.CityHash64(data[:n])
	}
	if acc != 0x32f1a6d3d8ffffc9 {
		t.Errorf("hashes of all lengths fold into %#x", acc)
	}
}

func TestHashDoesNotAllocate(t *testing.T) {
	s, b := "Credit Card", []byte("Credit Card")
	var sink uint64
	if n := testing.AllocsPerRun(100, func() { sink += fid.HashString(s) + fid.HashBytes(b) + fid.HashInt(3) }); n != 0 {
		t.Errorf("hashing allocates %v times", n)
	}
	_ = sink
}

func BenchmarkHash(b *testing.B) {
	for _, size := range []int{4, 8, 16, 32, 128} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			in := []byte(strings.Repeat("q", size))
			var sink uint64
			for b.Loop() {
				sink += fid.HashBytes(in)
			}
			_ = sink
		})
	}
}

func ExampleNew() {
	id, err := fid.New(3, fid.HashString("Comedy"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(id.Slot(), id.Signature() == fid.HashString("Comedy"))
	// Output: 3 true
}
