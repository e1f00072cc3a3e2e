package parquetsink

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/pipeline"
)

// footed is a file with the metadata of c and of another writer.
func footed(t testing.TB, c covered) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[struct {
		A int64
		B []string `parquet:",list"`
	}](&b, parquet.KeyValueMetadata("other", "x"))
	for k, v := range c.metadata() {
		w.SetKeyValueMetadata(k, v)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var example = covered{source: "kafka", split: "clicks-00003", from: 17, Progress: pipeline.Progress{Position: 1 << 41, Rows: 99, Batches: 3}}

func TestCoveredIsReadBack(t *testing.T) {
	t.Parallel()
	file := footed(t, example)
	got, err := readCovered(bytes.NewReader(file), int64(len(file)))
	if diff := cmp.Diff(example, got, cmp.AllowUnexported(covered{})); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// FuzzReadCovered: whatever a file holds, reading its metadata ends, in memory bounded by its size, with what it says or an
// error that says what is wrong.
func FuzzReadCovered(f *testing.F) {
	f.Add(footed(f, example))
	f.Add(footed(f, covered{}))
	f.Add([]byte("PAR1\x59\x1f\xff\xff\xff\xff\x0f\x07\x00\x00\x00PAR1"))
	f.Add([]byte("PAR1" + strings.Repeat("\x1c", 100) + "\x64\x00\x00\x00PAR1"))
	f.Fuzz(func(t *testing.T, file []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, err := readCovered(bytes.NewReader(file), int64(len(file)))
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(1<<20+300*len(file)) {
			t.Fatalf("%d bytes were allocated for %d", n, len(file))
		}
		switch {
		case err != nil && !errors.Is(err, errDamaged):
			t.Fatal(err)
		case err == nil && (c.from < 0 || c.Position <= c.from || c.Rows < 0 || c.Batches < 0):
			t.Fatalf("%+v", c)
		}
	})
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
		name := fileName(st, 42)
		if from, ok := parseName(st, name); from != 42 || !ok {
			t.Errorf("%s: %d, %v", name, from, ok)
		}
		if len(name)+30 > 255 {
			t.Errorf("%s is too long", name)
		}
	}
	for _, name := range []string{"a~b~42.parquet", "a~b~-0000000000000000042.parquet", "a~b~99999999999999999999.parquet", "a~bc~00000000000000000042.parquet", ".a~b~00000000000000000042~1.tmp"} {
		if from, ok := parseName("a~b~", name); ok {
			t.Errorf("%s is one from %d on", name, from)
		}
	}
}
