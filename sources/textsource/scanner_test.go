package textsource

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/sources/filesource"
)

// scanAll returns the lines of a text that is complete; bad records show as `<reason>`.
func scanAll(tb testing.TB, r io.Reader, opts Options) []string {
	tb.Helper()
	opts.Complete = true
	s := newScanner(r, 0, opts.WithDefaults())
	var out []string
	last := int64(0)
	for {
		line, err := s.Scan()
		if s.Offset() < last {
			tb.Fatalf("offset goes from %d back to %d", last, s.Offset())
		}
		last = s.Offset()
		var bad *filesource.BadRecord
		switch {
		case errors.Is(err, io.EOF):
			return out
		case errors.As(err, &bad):
			out = append(out, "<"+bad.Reason+">")
		case err != nil:
			tb.Fatal(err)
		default:
			out = append(out, string(line))
		}
	}
}

func TestScan(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300<<10)
	for _, tc := range []struct {
		name, in string
		opts     Options
		want     []string
	}{
		{"empty", "", Options{}, nil},
		{"only empty lines", "\n\r\n\n", Options{}, nil},
		{"one line", "a\n", Options{}, []string{"a"}},
		{"no end of line at the end", "a\nb", Options{}, []string{"a", "b"}},
		{"carriage returns", "a\r\nb\r\n\r\nc\rd\r", Options{}, []string{"a", "b", "c\rd"}},
		{"as long as may be", "abc\nabcd\nabc\r\nabc", Options{MaxLineBytes: 3}, []string{"abc", "<line too long>", "abc", "abc"}},
		{"too long at the end", "a\nabcd", Options{MaxLineBytes: 3}, []string{"a", "<line too long>"}},
		{"longer than the buffer", "a\n" + long + "\nb\n", Options{}, []string{"a", long, "b"}},
		{"much too long", "a\n" + long + "\nb\n" + long, Options{MaxLineBytes: 100}, []string{"a", "<line too long>", "b", "<line too long>"}},
		{"quotes mean nothing", "\"a\nb\"\n", Options{}, []string{"\"a", "b\""}},
		{"quoted", "\"a\nb\",c\r\nd\n", Options{Quoted: true}, []string{"\"a\nb\",c", "d"}},
		{"carriage return between quotes", "\"a\r\nb\"\r\n", Options{Quoted: true}, []string{"\"a\r\nb\""}},
		{"doubled quotes", "\"a\"\"\nb\"\nc\n", Options{Quoted: true}, []string{"\"a\"\"\nb\"", "c"}},
		{"empty quotes", "\"\"\nc,\"\"\n", Options{Quoted: true}, []string{"\"\"", "c,\"\""}},
		{"quote within a field", "5\" pipe,x\nc\n", Options{Quoted: true}, []string{"5\" pipe,x", "c"}},
		{"second field", "a,\"b\nc\"\nd\n", Options{Quoted: true}, []string{"a,\"b\nc\"", "d"}},
		{"other delimiter", "a,\"b\nc\t\"d\ne\"\n", Options{Quoted: true, Delimiter: '\t'}, []string{"a,\"b", "c\t\"d\ne\""}},
		{"empty lines between quotes", "\"a\n\n\nb\"\n\nc\n", Options{Quoted: true}, []string{"\"a\n\n\nb\"", "c"}},
		{"unterminated", "a\n\"b\nc\n", Options{Quoted: true}, []string{"a", "<unterminated quote>", "c"}},
		{"unterminated in the last line", "a\n\"b", Options{Quoted: true}, []string{"a", "<unterminated quote>"}},
		{"unterminated at the bound", "\"b\nc\nd\ne\n", Options{Quoted: true, MaxLineBytes: 4}, []string{"<unterminated quote>", "c", "d", "e"}},
		{"closed behind the bound", "\"b\nc\nd\nx\"\ne\n", Options{Quoted: true, MaxLineBytes: 4}, []string{"<unterminated quote>", "c", "d", "x\"", "e"}},
		{"as long as may be, quoted", "\"b\nc\"\r\ne\n", Options{Quoted: true, MaxLineBytes: 5}, []string{"\"b\nc\"", "e"}},
		{"too long by one, quoted", "\"b\ncd\"\ne\n", Options{Quoted: true, MaxLineBytes: 5}, []string{"<line too long>", "e"}},
		{"two in a row", "\"b\ny\",\"z\nd\ne\nf\n", Options{Quoted: true, MaxLineBytes: 6}, []string{"<unterminated quote>", "<unterminated quote>", "d", "e", "f"}},
		{"a quote over many lines", "\"b" + strings.Repeat("\n", 2000) + "\"\ne\n", Options{Quoted: true}, []string{"<unterminated quote>", "<unterminated quote>", "e"}},
		{"over the buffer, not closed", "\"b\n" + long + "\nc\n", Options{Quoted: true, MaxLineBytes: 290 << 10}, []string{"<unterminated quote>", "<line too long>", "c"}},
		{"quoted over the buffer", "\"" + long + "\n\"\nb\n", Options{Quoted: true}, []string{"\"" + long + "\n\"", "b"}},
		{"quoted and too long", "\"" + long + "\n\"\nb\n", Options{Quoted: true, MaxLineBytes: 10}, []string{"<line too long>", "<unterminated quote>", "b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for name, r := range map[string]io.Reader{"whole": strings.NewReader(tc.in), "by halves": iotest.HalfReader(strings.NewReader(tc.in))} {
				if diff := cmp.Diff(tc.want, scanAll(t, r, tc.opts)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

// TestScanAgainstCSV reads what encoding/csv writes: parsed one by one, the records are those of the whole text.
func TestScanAgainstCSV(t *testing.T) {
	t.Parallel()
	pieces := []string{"a", "\"", "\n", ",", "b c", "\"\"", "", ";"}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(5, seed))
		var text bytes.Buffer
		w := csv.NewWriter(&text)
		w.UseCRLF = seed%2 == 0
		var want [][]string
		for range 1 + rng.IntN(6) {
			var row []string
			for range 2 {
				f := ""
				for range rng.IntN(5) {
					f += pieces[rng.IntN(len(pieces))]
				}
				row = append(row, f)
			}
			want = append(want, row)
			if err := w.Write(row); err != nil {
				t.Fatal(err)
			}
		}
		w.Flush()
		var got [][]string
		for _, rec := range scanAll(t, &text, Options{Quoted: true}) {
			row, err := csv.NewReader(strings.NewReader(rec)).Read()
			if err != nil {
				t.Fatalf("seed %d: %q: %v", seed, rec, err)
			}
			got = append(got, row)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}

// FuzzScan compares the scanner with splitting the whole text, and checks quoted scanning for panics and lost bytes.
func FuzzScan(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\n\"c\nd\",e"), uint16(4))
	f.Add([]byte("\xef\xbb\xbf\n"), uint16(1))
	f.Add([]byte("a\n\"b\ny\",\"z\nd\ne\nf\n"), uint16(5))
	f.Fuzz(func(t *testing.T, text []byte, bound uint16) {
		opts := Options{MaxLineBytes: int(bound) + 1}
		var want []string
		for line := range strings.SplitSeq(string(text), "\n") {
			line = strings.TrimSuffix(line, "\r")
			switch {
			case len(line) > opts.MaxLineBytes:
				want = append(want, "<line too long>")
			case line != "":
				want = append(want, line)
			}
		}
		if diff := cmp.Diff(want, scanAll(t, bytes.NewReader(text), opts)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
		opts.Quoted = true
		all := scanAll(t, bytes.NewReader(text), opts)
		for _, rec := range all {
			if !strings.HasPrefix(rec, "<") && !bytes.Contains(text, []byte(rec)) {
				t.Errorf("%q is not a part of %q", rec, text)
			}
		}
		// What is read after a position does not depend on what was read before.
		s := newScanner(bytes.NewReader(text), 0, opts.WithDefaults())
		for i := range min(len(all), 20) {
			if diff := cmp.Diff(all[i:], scanAll(t, bytes.NewReader(text[s.Offset():]), opts)); diff != "" {
				t.Fatalf("%q from byte %d (-want +got):\n%s", text, s.Offset(), diff)
			}
			_, _ = s.Scan()
		}
	})
}

func BenchmarkScan(b *testing.B) {
	line := strings.Repeat("1.5,abc,", 35)[:274] + "\n"
	quoted := strings.Replace(line, "abc", "\"a\"\"\n\"", 1)
	for name, text := range map[string]string{"plain": line, "quoted": quoted} {
		b.Run("text="+name, func(b *testing.B) {
			const lines = 1 << 14
			text := strings.Repeat(text, lines)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				s := newScanner(strings.NewReader(text), 0, Options{Quoted: name == "quoted"}.WithDefaults())
				for i := range lines {
					if _, err := s.Scan(); err != nil {
						b.Fatal(fmt.Errorf("line %d: %w", i, err))
					}
				}
			}
			b.ReportMetric(float64(b.N)*lines/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
