package gzipfile

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/sinks/filesink"
)

// TestSplitsOfAnyName: names that are no text are read back from the metadata as they are.
func TestSplitsOfAnyName(t *testing.T) {
	t.Parallel()
	want := map[string]string{"a": "x\xff&=%\x00", "b": "", "c": strings.Repeat("d/", 10_000)}
	member, err := appendMember([]byte("rows"), want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Metadata(bytes.NewReader(member), int64(len(member)))
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%.60q, %v", got, err)
	}
	if _, err := appendMember(nil, map[string]string{"a": strings.Repeat("d", maxMeta)}); err == nil {
		t.Error("metadata longer than a header of gzip holds is taken")
	}
}

// FuzzMetadata: whatever a file holds, reading its metadata ends with what it says, in the one form that it has, or with an error.
func FuzzMetadata(f *testing.F) {
	for _, m := range []map[string]string{nil, {"monolith.from": "17", "monolith.split": "a/b"}} {
		member, err := appendMember(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(member)
		f.Add(append([]byte("some rows"), member...))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		got, err := Metadata(bytes.NewReader(file), int64(len(file)))
		switch {
		case err != nil && !errors.Is(err, filesink.ErrDamaged):
			t.Fatal(err)
		case err == nil:
			if again, err := appendMember(nil, got); err != nil || !bytes.HasSuffix(file, again) {
				t.Fatalf("%q, %v: the file ends otherwise", got, err)
			}
		}
	})
}
