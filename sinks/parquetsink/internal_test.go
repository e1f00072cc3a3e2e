package parquetsink

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/sinks/filesink"
)

// footed is a file with metadata, and some of another writer.
func footed(t testing.TB, metadata map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[struct {
		A int64
		B []string `parquet:",list"`
	}](&b, parquet.KeyValueMetadata("other", "x"))
	for k, v := range metadata {
		w.SetKeyValueMetadata(k, v)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestMetadataIsReadBack(t *testing.T) {
	t.Parallel()
	want := map[string]string{"a": "", "b": "x\xff", "other": "x"}
	file := footed(t, want)
	got, err := readMetadata(bytes.NewReader(file), int64(len(file)))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// FuzzMetadata: whatever a file holds, reading its metadata ends, in memory bounded by its size, with what it says or an
// error that says what is wrong.
func FuzzMetadata(f *testing.F) {
	f.Add(footed(f, map[string]string{"a": "b"}))
	f.Add(footed(f, nil))
	f.Add([]byte("PAR1\x59\x1f\xff\xff\xff\xff\x0f\x07\x00\x00\x00PAR1"))
	f.Add([]byte("PAR1" + strings.Repeat("\x1c", 100) + "\x64\x00\x00\x00PAR1"))
	f.Fuzz(func(t *testing.T, file []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readMetadata(bytes.NewReader(file), int64(len(file)))
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(1<<20+300*len(file)) {
			t.Fatalf("%d bytes were allocated for %d", n, len(file))
		}
		if err != nil && !errors.Is(err, filesink.ErrDamaged) {
			t.Fatal(err)
		}
	})
}
