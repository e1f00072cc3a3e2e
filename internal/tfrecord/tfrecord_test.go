package tfrecord_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"github.com/monolith-go/monolith/internal/tfrecord"
)

// encode writes records of the given sizes, with random bytes.
func encode(tb testing.TB, opts *tfrecord.WriterOptions, sizes ...int) (file []byte, records [][]byte) {
	tb.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	w := tfrecord.NewWriter(&b, opts)
	for _, n := range sizes {
		rec := make([]byte, n)
		for i := range rec {
			rec[i] = byte(rng.Uint32())
		}
		if err := w.Write(rec); err != nil {
			tb.Fatal(err)
		}
		records = append(records, rec)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes(), records
}

// event is what one call of Next returned.
type event struct {
	Data   string
	Reason string
	Off    int64
}

func drain(tb testing.TB, r *tfrecord.Reader) (out []event) {
	tb.Helper()
	for {
		data, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		e := event{Data: string(data), Off: r.Offset()}
		var bad *tfrecord.CorruptError
		if errors.As(err, &bad) {
			e.Reason = bad.Reason
		} else if err != nil {
			tb.Fatalf("Next: %v", err)
		}
		out = append(out, e)
		if bad != nil && !bad.Resumable() {
			if _, again := r.Next(); !errors.Is(again, err) {
				tb.Errorf("after %v: %v", err, again)
			}
			return out
		}
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	sizes := []int{0, 1, 7, 300, 256<<10 - 17, 256<<10 - 16, 256<<10 - 15, 256 << 10, 3 << 20, 5}
	for _, zip := range []bool{false, true} {
		file, want := encode(t, &tfrecord.WriterOptions{Gzip: zip}, sizes...)
		if got := tfrecord.IsGzip(file); got != zip {
			t.Errorf("gzip=%v: IsGzip says %v", zip, got)
		}
		var r io.Reader = bytes.NewReader(file)
		if zip {
			gz, err := gzip.NewReader(r)
			if err != nil {
				t.Fatal(err)
			}
			r = gz
		}
		rd := tfrecord.NewReader(iotest.HalfReader(r), nil)
		var off int64
		for i, rec := range want {
			got, err := rd.Next()
			if err != nil || !bytes.Equal(got, rec) {
				t.Fatalf("gzip=%v: record %d of %d bytes: got %d bytes, %v", zip, i, len(rec), len(got), err)
			}
			off += int64(len(rec)) + 16
			if rd.Offset() != off || rd.Records() != int64(i+1) {
				t.Errorf("after record %d: offset %d and %d records, want %d and %d", i, rd.Offset(), rd.Records(), off, i+1)
			}
		}
		for range 2 {
			if _, err := rd.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("gzip=%v: at the end: %v", zip, err)
			}
		}
	}
}

// TestCorruptSaysWhatToDo: what a user meets first, a file cut short, one that is no TFRecord file, and one that is compressed.
func TestCorruptSaysWhatToDo(t *testing.T) {
	t.Parallel()
	file, _ := encode(t, nil, 10, 20, 30)
	zipped, _ := encode(t, &tfrecord.WriterOptions{Gzip: true}, 10, 20, 30)
	flip := func(at int) []byte {
		out := bytes.Clone(file)
		out[at] ^= 0x10
		return out
	}
	for _, tc := range []struct {
		name string
		file []byte
		want string
	}{
		{"cut", file[:len(file)-3], "it is still being written, or was not copied whole"},
		{"text", []byte("user,item,click\n1,2,0\n"), `it begins with "user,item,cl" and is no TFRecord file`},
		{"gzip", zipped, "it is compressed with gzip: leave compression out"},
		{"length", flip(26), "the file is damaged from here on"},
		{"data", flip(26 + 12), "the record is damaged"},
	} {
		r := tfrecord.NewReader(bytes.NewReader(tc.file), nil)
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q in it", tc.name, err, tc.want)
		}
	}
}

// TestKnownBytes pins the format by the CRC catalogue's check value for CRC-32C, crc("123456789") = e3069283. The real
// files that tfrecordsource's tests read were written by TensorFlow.
func TestKnownBytes(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := tfrecord.NewWriter(&b, nil)
	if err := errors.Join(w.Write([]byte("abc")), w.Close()); err != nil {
		t.Fatal(err)
	}
	got := b.Bytes()
	crc := uint32(0xe3069283) // a variable, for the shift may overflow
	if want := (crc>>15 | crc<<17) + 0xa282ead8; tfrecord.Checksum([]byte("123456789")) != want {
		t.Errorf("masked check value is %08x, want %08x", tfrecord.Checksum([]byte("123456789")), want)
	}
	if want := "0300000000000000"; hex.EncodeToString(got[:8]) != want || string(got[12:15]) != "abc" || len(got) != 19 {
		t.Errorf("record is %x", got)
	}
}

func TestCorruption(t *testing.T) {
	t.Parallel()
	file, recs := encode(t, nil, 10, 20, 30)
	a, b, c := string(recs[0]), string(recs[1]), string(recs[2])
	const o1, o2, o3 = 26, 26 + 36, 26 + 36 + 46
	flip := func(at int) []byte {
		out := bytes.Clone(file)
		out[at] ^= 0x10
		return out
	}
	broken := []byte(b)
	broken[3] ^= 0x10
	huge := binary.LittleEndian.AppendUint64(nil, 1<<62)
	huge = binary.LittleEndian.AppendUint32(huge, tfrecord.Checksum(huge))
	endless := binary.LittleEndian.AppendUint64(nil, 1<<64-1)
	endless = binary.LittleEndian.AppendUint32(endless, tfrecord.Checksum(endless))
	for _, tc := range []struct {
		name string
		file []byte
		max  int64
		want []event
	}{
		{"whole", file, 0, []event{{a, "", o1}, {b, "", o2}, {c, "", o3}}},
		{"data flipped", flip(o1 + 12 + 3), 0, []event{{a, "", o1}, {string(broken), "crc mismatch", o2}, {c, "", o3}}},
		{"data checksum flipped", flip(o2 - 1), 0, []event{{a, "", o1}, {b, "crc mismatch", o2}, {c, "", o3}}},
		{"length flipped", flip(o1 + 1), 0, []event{{a, "", o1}, {"", "length crc mismatch", o1}}},
		{"length checksum flipped", flip(o1 + 8), 0, []event{{a, "", o1}, {"", "length crc mismatch", o1}}},
		{"cut in the head", file[:o1+5], 0, []event{{a, "", o1}, {"", "truncated", o1}}},
		{"cut in the data", file[:o2-10], 0, []event{{a, "", o1}, {"", "truncated", o1}}},
		{"cut in the last checksum", file[:o3-1], 0, []event{{a, "", o1}, {b, "", o2}, {"", "truncated", o2}}},
		{"too large", file, 15, []event{{a, "", o1}, {"", "record too large", o2}, {"", "record too large", o3}}},
		{"too large and cut", file[:o2-2], 15, []event{{a, "", o1}, {"", "truncated", o1}}},
		{"lying length", huge, 1 << 63 >> 1, []event{{"", "truncated", 0}}},
		{"length without end", endless, 0, []event{{"", "truncated", 0}}},
		{"empty", nil, 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := drain(t, tfrecord.NewReader(bytes.NewReader(tc.file), &tfrecord.ReaderOptions{MaxRecordBytes: tc.max}))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Next (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLyingLengthAllocatesLittle checks the bound that the Reader's documentation gives.
func TestLyingLengthAllocatesLittle(t *testing.T) {
	head := binary.LittleEndian.AppendUint64(nil, 1<<40)
	head = binary.LittleEndian.AppendUint32(head, tfrecord.Checksum(head))
	file := append(head, make([]byte, 3<<20)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := drain(t, tfrecord.NewReader(bytes.NewReader(file), &tfrecord.ReaderOptions{MaxRecordBytes: 1 << 50}))
	runtime.ReadMemStats(&after)
	if len(got) != 1 || got[0].Reason != tfrecord.ReasonTruncated {
		t.Errorf("got %v", got)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 24<<20 {
		t.Errorf("a record of 1 TiB in a file of 3 MiB allocated %d bytes", used)
	}
}

func TestStreamError(t *testing.T) {
	t.Parallel()
	file, _ := encode(t, nil, 100)
	disk := errors.New("disk on fire")
	r := tfrecord.NewReader(io.MultiReader(bytes.NewReader(file[:50]), iotest.ErrReader(disk)), nil)
	for range 2 {
		if _, err := r.Next(); !errors.Is(err, disk) {
			t.Errorf("got %v, want %v", err, disk)
		}
	}
}

func TestIsGzip(t *testing.T) {
	t.Parallel()
	plain := binary.LittleEndian.AppendUint64(nil, 0x88b1f) // a plain file may begin with gzip's magic number
	plain = binary.LittleEndian.AppendUint32(plain, tfrecord.Checksum(plain))
	for _, tc := range []struct {
		head []byte
		want bool
	}{
		{nil, false},
		{[]byte{0x1f, 0x8b}, false},
		{[]byte{0x1f, 0x8b, 8}, true},
		{plain, false},
		{append(bytes.Clone(plain[:8]), 1, 2, 3, 4), true},
	} {
		if got := tfrecord.IsGzip(tc.head); got != tc.want {
			t.Errorf("IsGzip(%x) = %v", tc.head, got)
		}
	}
}

// FuzzReader reads anything: no panic, no endless loop, offsets that only grow, and what is written back reads the same.
func FuzzReader(f *testing.F) {
	file, _ := encode(f, nil, 0, 5, 40)
	f.Add(file)
	f.Add(file[:len(file)-3])
	f.Add(bytes.Repeat([]byte{0}, 30))
	f.Fuzz(func(t *testing.T, file []byte) {
		r := tfrecord.NewReader(bytes.NewReader(file), &tfrecord.ReaderOptions{MaxRecordBytes: 1 << 16})
		var b bytes.Buffer
		w := tfrecord.NewWriter(&b, nil)
		last, clean := int64(0), true
		for {
			data, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			var bad *tfrecord.CorruptError
			if err != nil {
				clean = false
				if !errors.As(err, &bad) {
					t.Fatalf("Next: %v", err)
				}
				if !bad.Resumable() {
					break
				}
			}
			if r.Offset() <= last || r.Offset() > int64(len(file)) {
				t.Fatalf("offset %d after %d of %d", r.Offset(), last, len(file))
			}
			last = r.Offset()
			if err := w.Write(data); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if clean && !bytes.Equal(b.Bytes(), file) {
			t.Errorf("%x reads without error and writes as %x", file, b.Bytes())
		}
	})
}

func BenchmarkReader(b *testing.B) {
	for _, size := range []int{200, 1200} {
		b.Run(fmt.Sprintf("record=%d", size), func(b *testing.B) {
			sizes := make([]int, 16<<20/size)
			for i := range sizes {
				sizes[i] = size
			}
			file, _ := encode(b, nil, sizes...)
			b.SetBytes(int64(len(file)))
			b.ReportAllocs()
			for b.Loop() {
				r := tfrecord.NewReader(bytes.NewReader(file), nil)
				for range sizes {
					if _, err := r.Next(); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.N)*float64(len(sizes))/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
