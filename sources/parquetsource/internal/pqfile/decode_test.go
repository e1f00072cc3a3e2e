package pqfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/pierrec/lz4/v4"
)

var limits = Limits{MaxPageBytes: 1 << 16}

// slowBits reads n values bit by bit, from the least significant on.
func slowBits(src []byte, n int, width uint) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		for b := range width {
			bit := uint(i)*width + b
			out[i] |= uint64(src[bit/8]>>(bit%8)&1) << b
		}
	}
	return out
}

func TestUnpackAgainstBits(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for width := range uint(65) {
		for n := range 40 {
			src := make([]byte, (n*int(width)+7)/8)
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			got := make([]uint64, n)
			unpackWide(got, src, width)
			if diff := cmp.Diff(slowBits(src, n, width), got); diff != "" {
				t.Fatalf("%d values of %d bits (-want +got):\n%s", n, width, diff)
			}
		}
	}
}

// TestExamples holds the examples of the specification (apache/parquet-format: Encodings.md).
func TestExamples(t *testing.T) {
	t.Parallel()
	want := []uint8{0, 1, 2, 3, 4, 5, 6, 7}
	got := make([]uint8, 8)
	if err := hybrid(got, []byte{3, 0b10001000, 0b11000110, 0b11111010}, 3); err != nil || !bytes.Equal(got, want) {
		t.Errorf("bit-packed run: %v, %v", got, err)
	}
	if n, err := packed(got, []byte{0b00000101, 0b00111001, 0b01110111}, 3); n != 3 || err != nil || !bytes.Equal(got, want) {
		t.Errorf("deprecated BIT_PACKED: %v, %d bytes, %v", got, n, err)
	}
	if _, err := packed(got, []byte{1, 2}, 3); !errors.Is(err, ErrMalformed) {
		t.Errorf("deprecated BIT_PACKED, cut: %v", err)
	}
	// "values 7, 5, 3, 1, 2, 3, 4, 5": deltas -2 -2 -2 1 1 1 1, least -2, packed 0 0 0 3 3 3 3 in 2 bits.
	header := []byte{128, 1, 4, 8, 14}
	block := append([]byte{3, 2, 0, 0, 0}, 0b11000000, 0b00111111, 0, 0, 0, 0, 0, 0)
	values, rest, err := deltaInts(nil, append(append(header, block...), 42), 8)
	if diff := cmp.Diff([]int64{7, 5, 3, 1, 2, 3, 4, 5}, values); diff != "" || err != nil || !bytes.Equal(rest, []byte{42}) {
		t.Errorf("DELTA_BINARY_PACKED: %v, rest %v\n%s", err, rest, diff)
	}
	// BYTE_STREAM_SPLIT of 0xDDCCBBAA, 0x44332211.
	var v Values
	if err := v.decode(shape{Int32, 0, limits}, encByteStreamSplit, []byte{0xAA, 0x11, 0xBB, 0x22, 0xCC, 0x33, 0xDD, 0x44}, 2, nil); err != nil ||
		uint32(v.Int32[0]) != 0xDDCCBBAA || v.Int32[1] != 0x44332211 {
		t.Errorf("BYTE_STREAM_SPLIT: %x, %v", v.Int32, err)
	}
	// DELTA_BYTE_ARRAY of axis, axle, babble, babyhood.
	var prefix, length delta.BinaryPackedEncoding
	p, err := prefix.EncodeInt32(nil, []int32{0, 2, 0, 3})
	if err != nil {
		t.Fatal(err)
	}
	l, err := length.EncodeInt32(nil, []int32{4, 2, 6, 5})
	if err != nil {
		t.Fatal(err)
	}
	src := append(append(p, l...), "axislebabbleyhood"...)
	if err := v.decode(shape{ByteArray, 0, limits}, encDeltaArray, src, 4, nil); err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, s := range v.Spans {
		words = append(words, string(v.Data[s.At:s.At+s.Len]))
	}
	if diff := cmp.Diff([]string{"axis", "axle", "babble", "babyhood"}, words); diff != "" {
		t.Errorf("DELTA_BYTE_ARRAY (-want +got):\n%s", diff)
	}
}

func TestHybridAgainstParquetGo(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 2))
	for width := 1; width <= 31; width++ {
		for range 20 {
			want := make([]uint32, rng.IntN(300))
			in := make([]int32, len(want))
			for i := range want {
				if i > 0 && rng.IntN(3) > 0 {
					want[i] = want[i-1] // runs
				} else {
					want[i] = rng.Uint32() & (1<<width - 1)
				}
				in[i] = int32(want[i])
			}
			src, err := (&rle.Encoding{BitWidth: width}).EncodeInt32(nil, in)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]uint32, len(want))
			if err := hybrid(got, src, uint(width)); err != nil {
				t.Fatalf("%d values of %d bits: %v", len(want), width, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%d values of %d bits (-want +got):\n%s", len(want), width, diff)
			}
		}
	}
}

func TestDeltaAgainstParquetGo(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 3))
	for spread := range 65 {
		for _, n := range []int{0, 1, 2, 31, 32, 33, 127, 128, 129, 130, 400} {
			want := make([]int64, n)
			for i := range want {
				want[i] = int64(rng.Uint64()) >> (64 - max(spread, 1)) // up to the full range, whose deltas wrap
			}
			src, err := new(delta.BinaryPackedEncoding).EncodeInt64(nil, want)
			if err != nil {
				t.Fatal(err)
			}
			got, rest, err := deltaInts(nil, append(src, "tail"...), n)
			if err != nil || string(rest) != "tail" {
				t.Fatalf("%d values of %d bits: %v, rest %q", n, spread, err, rest)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%d values of %d bits (-want +got):\n%s", n, spread, diff)
			}
		}
	}
}

func TestLZ4Frames(t *testing.T) {
	t.Parallel()
	var src, want []byte
	for _, part := range [][]byte{bytes.Repeat([]byte("abc"), 100), bytes.Repeat([]byte("z"), 50)} {
		block := make([]byte, lz4.CompressBlockBound(len(part)))
		n, err := lz4.CompressBlock(part, block, nil)
		if err != nil {
			t.Fatal(err)
		}
		src = binary.BigEndian.AppendUint32(src, uint32(len(part)))
		src = binary.BigEndian.AppendUint32(src, uint32(n))
		src = append(src, block[:n]...)
		want = append(want, part...)
	}
	var c codecs
	got := make([]byte, len(want))
	if err := c.decompress(codecLZ4, got, src); err != nil || !bytes.Equal(got, want) {
		t.Errorf("framed: %v", err)
	}
	if err := c.decompress(codecLZ4, got, src[:len(src)-1]); !errors.Is(err, ErrMalformed) {
		t.Errorf("cut: %v", err)
	}
	if err := c.decompress(3, got, src); !errors.Is(err, ErrUnsupported) {
		t.Errorf("LZO: %v", err)
	}
}

// TestLies feeds lengths and counts that the bytes do not bear out.
func TestLies(t *testing.T) {
	t.Parallel()
	huge := binary.AppendUvarint(nil, 1<<62)
	for _, tc := range []struct {
		name     string
		physical Physical
		encoding int32
		src      []byte
		n        int
	}{
		{"plain", Int64, encPlain, make([]byte, 79), 10},
		{"booleans", Boolean, encPlain, make([]byte, 1), 9},
		{"byte arrays", ByteArray, encPlain, []byte{255, 255, 255, 255, 1}, 1},
		{"more byte arrays than bytes", ByteArray, encPlain, make([]byte, 39), 10},
		{"byte arrays that use all up", ByteArray, encPlain, []byte{4, 0, 0, 0, 1, 2, 3, 4}, 2},
		{"booleans in runs", Boolean, encRLE, []byte{100, 0, 0, 0, 2, 1}, 3},
		{"no length", Boolean, encRLE, []byte{1}, 3},
		{"delta count", Int64, encDelta, append([]byte{128, 1, 4}, append(huge, 0)...), 5},
		{"delta blocks", Int64, encDelta, append(append([]byte{}, huge...), 4, 5, 0), 5},
		{"delta parts", Int64, encDelta, []byte{128, 1, 3, 5, 0}, 5},
		{"delta width", Int64, encDelta, []byte{128, 1, 4, 5, 0, 0, 65, 0, 0, 0}, 5},
		{"delta cut", Int64, encDelta, []byte{128, 1, 4, 5, 0, 0, 64, 0, 0, 0, 1, 2}, 5},
		{"lengths", ByteArray, encDeltaLength, []byte{128, 1, 4, 1, 200, 1}, 1},
		{"prefix", ByteArray, encDeltaArray, []byte{128, 1, 4, 1, 2, 128, 1, 4, 1, 0}, 1},
		{"split", Double, encByteStreamSplit, make([]byte, 15), 2},
		{"index without dictionary", Int64, encDictionary, []byte{1, 2, 3}, 1},
		{"encoding of another type", ByteArray, encDelta, make([]byte, 9), 1},
	} {
		var v Values
		err := v.decode(shape{tc.physical, 0, limits}, tc.encoding, tc.src, tc.n, nil)
		if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	dict := &Values{Int64: []int64{5, 6}}
	for name, src := range map[string][]byte{"index": {2, 8, 3}, "no bytes": {}, "width": {33, 8, 3}, "run": {2, 8}} {
		var v Values
		if err := v.decode(shape{Int64, 0, limits}, encDictionary, src, 4, dict); !errors.Is(err, ErrMalformed) {
			t.Errorf("dictionary %s: %v", name, err)
		}
	}
}

// TestDeltaArrayBomb is a page of a few bytes whose values share long prefixes.
func TestDeltaArrayBomb(t *testing.T) {
	t.Parallel()
	const n, long = 4000, 1000
	prefixes, lengths := make([]int32, n), make([]int32, n)
	lengths[0] = long
	for i := 1; i < n; i++ {
		prefixes[i] = long
	}
	p, err := new(delta.BinaryPackedEncoding).EncodeInt32(nil, prefixes)
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(delta.BinaryPackedEncoding).EncodeInt32(nil, lengths)
	if err != nil {
		t.Fatal(err)
	}
	var v Values
	src := append(append(p, l...), make([]byte, long)...)
	if err := v.decode(shape{ByteArray, 0, limits}, encDeltaArray, src, n, nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("%d bytes that stand for %d: %v", len(src), n*long, err)
	}
}

// FuzzDecode decodes anything as anything: no panic, and as many values as asked or an error of the package.
func FuzzDecode(f *testing.F) {
	f.Add(int8(Int64), uint8(encDelta), uint16(8), []byte{128, 1, 4, 8, 14, 3, 2, 0, 0, 0, 0xc0, 0x3f, 0, 0, 0, 0, 0, 0})
	f.Add(int8(ByteArray), uint8(encPlain), uint16(1), []byte{1, 0, 0, 0, 9})
	f.Add(int8(Int32), uint8(encDictionary), uint16(4), []byte{1, 8, 1})
	f.Fuzz(func(t *testing.T, physical int8, encoding uint8, n uint16, src []byte) {
		s := shape{Physical(physical), 3, limits}
		dict := &Values{}
		if err := dict.plain(s, bytes.Repeat([]byte{0}, 64), 4); err != nil {
			dict = nil
		}
		var v Values
		err := v.decode(s, int32(encoding), src, int(n), dict)
		if err == nil && v.len(s) != int(n) {
			t.Errorf("%d values of %d", v.len(s), n)
		}
		if err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnsupported) {
			t.Error(err)
		}
		for _, sp := range v.Spans {
			if err == nil && uint64(sp.At)+uint64(sp.Len) > uint64(len(v.Data)) {
				t.Fatalf("span %v of %d bytes", sp, len(v.Data))
			}
		}
	})
}

// FuzzThrift parses anything as a page header and as a footer.
func FuzzThrift(f *testing.F) {
	f.Add([]byte{0x15, 0, 0x15, 20, 0x15, 20, 0x2c, 0x15, 4, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0})
	f.Add(bytes.Repeat([]byte{0x1c}, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, n, err := parseHeader(b); err == nil && n > len(b) {
			t.Errorf("a header of %d bytes in %d", n, len(b))
		}
		file := append([]byte("PAR1"), b...)
		file = binary.LittleEndian.AppendUint32(file, uint32(len(b)))
		file = append(file, "PAR1"...)
		_, err := ReadMeta(bytes.NewReader(file), int64(len(file)))
		if err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnsupported) {
			t.Error(err)
		}
	})
}

// TestDeepNesting checks that nesting is bounded, for a stack that overflows cannot be recovered.
func TestDeepNesting(t *testing.T) {
	t.Parallel()
	for name, b := range map[string][]byte{
		"structures": bytes.Repeat([]byte{0x1c}, 1<<20),
		"lists":      append([]byte{0x19}, bytes.Repeat([]byte{0x19}, 1<<20)...),
		"maps":       append([]byte{0x1b}, bytes.Repeat([]byte{0x01, 0xbb}, 1<<20)...),
	} {
		if _, _, err := parseHeader(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A schema of groups within groups.
	var list []*Node
	for range 1 << 16 {
		list = append(list, &Node{Physical: Group, numChildren: 1})
	}
	list = append(list, &Node{Physical: Int64})
	if err := new(Meta).tree(list); !errors.Is(err, ErrMalformed) {
		t.Errorf("schema: %v", err)
	}
}

func BenchmarkDecode(b *testing.B) {
	const n = 1 << 14
	rng := rand.New(rand.NewPCG(4, 4))
	values, index := make([]int64, n), make([]int32, n)
	for i := range values {
		values[i], index[i] = rng.Int64N(1<<20), rng.Int32N(1000)
	}
	plain := make([]byte, 8*n)
	for i, v := range values {
		binary.LittleEndian.PutUint64(plain[8*i:], uint64(v))
	}
	deltas, err := new(delta.BinaryPackedEncoding).EncodeInt64(nil, values)
	if err != nil {
		b.Fatal(err)
	}
	runs, err := (&rle.Encoding{BitWidth: 10}).EncodeInt32([]byte{10}, index)
	if err != nil {
		b.Fatal(err)
	}
	runs = append([]byte{10}, runs...)
	dict := &Values{Int64: values[:1000]}
	for _, bc := range []struct {
		name     string
		encoding int32
		src      []byte
	}{{"plain", encPlain, plain}, {"delta", encDelta, deltas}, {"dictionary", encDictionary, runs}} {
		b.Run(fmt.Sprintf("encoding=%s", bc.name), func(b *testing.B) {
			var v Values
			b.SetBytes(8 * n)
			b.ReportAllocs()
			for b.Loop() {
				if err := v.decode(shape{Int64, 0, Limits{1 << 20}}, bc.encoding, bc.src, n, dict); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "values/s")
		})
	}
}
