package filesink

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
)

// says is a format whose files have this metadata.
type says struct {
	Format

	metadata map[string]string
}

func (f says) Metadata(io.ReaderAt, int64) (map[string]string, error) { return f.metadata, nil }

func TestCoveredIsReadBack(t *testing.T) {
	t.Parallel()
	want := covered{output: "a/job", source: "kafka", split: "clicks-00003", from: 17, Progress: pipeline.Progress{Position: 1 << 41, Rows: 99, Batches: 3}}
	got, err := readCovered(says{metadata: want.metadata()}, bytes.NewReader(nil), 0)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(covered{})); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for key, text := range map[string]string{MetaFrom: "-1", MetaTo: "17", MetaRows: "", MetaBatches: "99999999999999999999"} {
		metadata := maps.Clone(want.metadata())
		metadata[key] = text
		if c, err := readCovered(says{metadata: metadata}, nil, 0); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s is %q: %+v, %v", key, text, c, err)
		}
	}
}

func TestUnfinished(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		".a~b~00000000000000000042.x-1k3.tmp": true,
		".a~b~00000000000000000042.y-1k3.tmp": false, // of another format
		".a~bc~00000000000000000042.x-1.tmp":  false,
		".a~b~42.x-1.tmp":                     false,
		"a~b~00000000000000000042.x":          false,
		".tmp":                                false,
		".-.tmp":                              false,
	} {
		if got := unfinished("a~b~", ".x", name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("dir/", 100)
	seen := map[string]string{}
	for _, s := range [][2]string{
		{"kafka", "clicks-00003"},
		{"kafka~clicks-00003", ""},
		{"", "kafka~clicks-00003"},
		{"a.b", "c"},
		{"a", "b.c"},
		{"a", "b/c#0003"},
		{"a", "b_c"},
		{"a", long},
		{"a", long + "x"},
		{"a", "ä"},
		{".a", ""},
		{"a", "%2F"},
		{"a", "/"},
	} {
		st := stem(s[0], s[1])
		if old, ok := seen[st]; ok || len(st) > maxStem+1 || strings.ContainsAny(st, "/\\:*? ") || st[0] == '.' {
			t.Errorf("%q has stem %q (%q)", s, st, old)
		}
		seen[st] = s[1]
		name := fileName(st, 42, ".x")
		if from, ok := parseName(st, ".x", name); from != 42 || !ok {
			t.Errorf("%s: %d, %v", name, from, ok)
		}
		if len(name)+30 > 255 {
			t.Errorf("%s is too long", name)
		}
	}
	for _, name := range []string{"a~b~42.x", "a~b~-0000000000000000042.x", "a~b~99999999999999999999.x", "a~bc~00000000000000000042.x", ".a~b~00000000000000000042.x-1.tmp", "a~b~00000000000000000042.y"} {
		if from, ok := parseName("a~b~", ".x", name); ok {
			t.Errorf("%s is one from %d on", name, from)
		}
	}
}

// named is a format that has a name alone.
type named struct{ Format }

func (named) Name() string { return "tsv" }

// TestFilesThatMayNotGrow: a limit of the process says what to raise, a full disk what to free.
func TestFilesThatMayNotGrow(t *testing.T) {
	t.Parallel()
	w := &Writer{format: named{}, opts: Options{Dir: "scores", Keys: "predict.to.tsv."}}
	for cause, want := range map[error]string{syscall.EFBIG: "ulimit -f", syscall.ENOSPC: "make room"} {
		if err := w.unavailable(cause); !errors.Is(err, cause) || !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "predict.to.tsv.dir") {
			t.Errorf("%v, want %q, the key and the cause", err, want)
		}
	}
}
