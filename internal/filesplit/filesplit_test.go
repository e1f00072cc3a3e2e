package filesplit_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/testbed"
)

// folder makes files with one byte each and returns their folder.
func folder(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, n := range names {
		p := filepath.Join(dir, filepath.FromSlash(n))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.ToSlash(dir)
}

func TestExpand(t *testing.T) {
	t.Parallel()
	dir := folder(t, "b-1.tsv", "b-0.tsv", "a[1].tsv", "day/20260301/x", "day/20260303/x", "sub/b-9.tsv",
		"out/dt=1/a.csv", "out/dt=1/_SUCCESS", "out/dt=1/.a.csv.crc", "out/_temporary/c.csv", "out/.h/b.csv", "out/_k=1/a.csv")
	for _, tc := range []struct {
		name     string
		patterns []string
		want     []string
	}{
		{"path", []string{"b-0.tsv"}, []string{"b-0.tsv"}},
		{"wildcard, sorted", []string{"b-*.tsv"}, []string{"b-0.tsv", "b-1.tsv"}},
		{"each once", []string{"b-1.tsv", "b-*.tsv", "./b-1.tsv"}, []string{"b-0.tsv", "b-1.tsv"}},
		{"brackets in a name", []string{"a[1].tsv"}, []string{"a[1].tsv"}},
		{"folders are passed over", []string{"*"}, []string{"a[1].tsv", "b-0.tsv", "b-1.tsv"}},
		{"hidden", []string{"out/*/*"}, []string{"out/_k=1/a.csv", "out/dt=1/a.csv"}},
		{"hidden, asked for", []string{"out/*/_*", "out/.h/*.csv"}, []string{"out/.h/b.csv", "out/dt=1/_SUCCESS"}},
		{"days without data", []string{"day/{DATE(20260228,20260305)}/*"}, []string{"day/20260301/x", "day/20260303/x"}},
		{"numbers", []string{"b-{INT(0,7)}.tsv"}, []string{"b-0.tsv", "b-1.tsv"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var patterns, want []string
			for _, p := range tc.patterns {
				patterns = append(patterns, dir+"/"+p)
			}
			for _, w := range tc.want {
				want = append(want, dir+"/"+w)
			}
			slices.Sort(want)
			files, err := filesplit.Expand(t.Context(), fsx.Local{}, patterns)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range files {
				got = append(got, f.Path)
				if f.Size != 1 {
					t.Errorf("%s has size %d", f.Name, f.Size)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpandNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir := folder(t, "train.tfrecord", "other.csv", "sub/x")
	_, err := filesplit.Expand(t.Context(), fsx.Local{}, []string{dir + "/trian.tfrecord", dir + "/nowhere/*", dir + "/sub", dir + "/[", "", dir + "/{INT(3,1)}"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`trian.tfrecord"; the nearest name there is "` + dir + `/train.tfrecord"`,
		`there is no folder "` + dir + `/nowhere"`,
		"it is a folder; name files, as in " + dir + "/sub/*",
		"syntax error in pattern",
		"the pattern is empty",
		"3 to 1 is not a range",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if _, ok := errors.AsType[*filesplit.NoMatchError](err); !ok {
		t.Errorf("no *NoMatchError in %v", err)
	}
}

// TestExpandInAFolderThatCannotBeRead: wildcards match nothing there, which is not the pattern's fault.
func TestExpandInAFolderThatCannotBeRead(t *testing.T) {
	t.Parallel()
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink(loop, loop); err != nil {
		testbed.Require(t, "posix", err.Error())
	}
	_, err := filesplit.Expand(t.Context(), fsx.Local{}, []string{loop + "/*.csv"})
	if !filesplit.Unreadable(err) {
		t.Errorf("got %v, want an error of the file system", err)
	}
}

func TestMacros(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   string
		want []string
		err  string
	}{
		{in: "plain/*.gz", want: []string{"plain/*.gz"}},
		{in: "{INT(9,11)}", want: []string{"9", "10", "11"}},
		{in: "a{INT(0,1)}b{INT(5,6)}c", want: []string{"a0b5c", "a0b6c", "a1b5c", "a1b6c"}},
		{in: "{DATE(20240228, 20240301)}", want: []string{"20240228", "20240229", "20240301"}},
		{in: "{DATE(2026030122,2026030201)}", want: []string{"2026030122", "2026030123", "2026030200", "2026030201"}},
		{in: "{INT(1)}", err: "takes a first and a last value"},
		{in: "{INT(a,2)}", err: "is not a number"},
		{in: "{INT(2,b)}", err: "is not a number"},
		{in: "{INT(-9223372036854775808,9223372036854775807)}", err: "is not a range"},
		{in: "{DATE(20261301,20261302)}", err: "is not a day"},
		{in: "{DATE(20261201,2026120200)}", err: "is not of the form"},
		{in: "{DATE(20261202,20261201)}", err: "is not a range"},
		{in: strings.Repeat("{INT(0,99)}", 3), err: "more than 100000 paths"},
	} {
		got, err := filesplit.Macros(tc.in)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: error %v, want one with %q", tc.in, err, tc.err)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", tc.in, err, diff)
		}
	}
}

func zip(t *testing.T, parts ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, p := range parts {
		w := gzip.NewWriter(&b)
		if _, err := io.WriteString(w, p); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestStream(t *testing.T) {
	t.Parallel()
	magic := func(head []byte) bool { return len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b }
	whole := zip(t, "hello ", "world")
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-5] ^= 1
	for _, tc := range []struct {
		name    string
		content []byte
		c       filesplit.Compression
		want    string
		gzip    bool
		damaged bool
	}{
		{"plain", []byte("hello"), filesplit.Auto, "hello", false, false},
		{"two gzip members", whole, "", "hello world", true, false},
		{"gzip bytes read plainly", whole[:4], filesplit.None, string(whole[:4]), false, false},
		{"empty", nil, filesplit.Auto, "", false, false},
		{"empty gzip", nil, filesplit.Gzip, "", true, false},
		{"one byte of gzip", whole[:1], filesplit.Gzip, "", true, true},
		{"truncated gzip", whole[:len(whole)-12], filesplit.Auto, "hello world", true, true},
		{"wrong gzip checksum", flipped, filesplit.Auto, "hello world", true, true},
		{"not gzip", []byte("certainly not a gzip stream"), filesplit.Gzip, "", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, tc.content, 0o644); err != nil {
				t.Fatal(err)
			}
			s, err := filesplit.Open(t.Context(), fsx.Local{}, path, tc.c, magic)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(s)
			if s.IsGzip() != tc.gzip || s.Size() != int64(len(tc.content)) {
				t.Errorf("gzip %v, size %d", s.IsGzip(), s.Size())
			}
			if filesplit.Damaged(err) != tc.damaged || !strings.HasPrefix(tc.want, string(got)) || !tc.damaged && string(got) != tc.want {
				t.Errorf("read %q, %v", got, err)
			}
			if tc.name == "not gzip" && !strings.Contains(err.Error(), "leave compression out") {
				t.Errorf("what to do is not in %v", err)
			}
			if err := errors.Join(s.Close(), s.Close()); err != nil {
				t.Error(err)
			}
			if _, err := s.Read(make([]byte, 1)); filesplit.Damaged(err) && !tc.gzip {
				t.Errorf("reading a closed file: %v", err)
			}
		})
	}
}

func TestSeekTo(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("0123456789"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := filesplit.Open(t.Context(), fsx.Local{}, path, filesplit.None, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.SeekTo(7); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(s); err != nil || string(got) != "789" {
		t.Errorf("from byte 7: %q, %v", got, err)
	}
	z, err := filesplit.Open(t.Context(), fsx.Local{}, path, filesplit.Gzip, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	if err := z.SeekTo(7); err == nil {
		t.Error("a gzip stream was entered in its midst")
	}
}

func TestCompressionCheck(t *testing.T) {
	t.Parallel()
	if err := filesplit.Compression("gz").Check(); err == nil {
		t.Error(`"gz" is accepted`)
	}
	if _, err := filesplit.Open(t.Context(), fsx.Local{}, filepath.Join(t.TempDir(), "none"), filesplit.Auto, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestDataIn guesses patterns of folders.
func TestDataIn(t *testing.T) {
	t.Parallel()
	for want, names := range map[string][]string{
		"/*.csv":          {"a.csv", "b.csv", "_SUCCESS", ".b.csv.crc"},
		"/*":              {"a.csv", "b.tsv"},
		"/*/*.parquet":    {"dt=1/p-0.parquet", "dt=2/p-0.parquet", "_delta_log/0.json"},
		"/*/*/*.jsonl.gz": {"a/b/c.jsonl.gz"},
		"":                {"_SUCCESS"},
	} {
		dir := folder(t, names...)
		if want != "" {
			want = dir + want
		}
		if got := filesplit.DataIn(dir); got != want {
			t.Errorf("%v: %q, want %q", names, got, want)
		}
	}
}

// TestNoFiles: errors of patterns say what is there, and what to name.
func TestNoFiles(t *testing.T) {
	t.Parallel()
	dir := folder(t, "out/dt=1/a.parquet", "only/_SUCCESS")
	for pattern, want := range map[string]string{
		"s3://bucket/a-*.csv":        "it is a URL, and sources are local files; mount the store, or copy the files here",
		"hdfs://u:secret@host/a.csv": "hdfs://u:xxxxx@host/a.csv",
		dir + "/out":                 "it is a folder; name files, as in " + dir + "/out/*/*.parquet",
		dir + "/only/*":              `names that begin with "_" or "." are passed over`,
	} {
		_, err := filesplit.Expand(t.Context(), fsx.Local{}, []string{pattern})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", pattern, err, want)
		}
	}
}
