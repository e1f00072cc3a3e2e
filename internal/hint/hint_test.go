package hint_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/hint"
)

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWrapped(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		record []byte
		want   string // a part; empty: no hint
	}{
		"gzip":           {gzipped(t, `{"user": 1}`), "compressed by gzip"},
		"zstd":           {[]byte("\x28\xb5\x2f\xfd\x04\x00"), "compressed by zstd"},
		"frame, JSON":    {[]byte("\x00\x00\x00\x00*{\"user\":1}"), "frame (schema 42), and behind its 5 bytes comes JSON: produce it without the frame"},
		"frame, other":   {[]byte("\x00\x00\x00\x00*\x02\x04abc"), "frame (schema 42), and behind its 5 bytes comes Avro or Protobuf"},
		"JSON in JSON":   {[]byte(` "{\"user\": 1}"` + "\n"), "a JSON text that holds a JSON object"},
		"Avro":           {[]byte("Obj\x01\x04"), "in Avro, which no format reads"},
		"text":           {[]byte("user,click"), ""},
		"quoted":         {[]byte(`"user"`), ""},
		"quotes of csv":  {[]byte(`"a","b"`), ""},
		"zero":           {[]byte{0}, ""},
		"nothing":        {nil, ""},
		"JSON":           {[]byte(`{"user": "{}"}`), ""},
		"letters of BZh": {[]byte("BZ"), ""},
	} {
		if got := hint.Wrapped(tt.record); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestLibFM(t *testing.T) {
	t.Parallel()
	for row, want := range map[string]string{
		"# a comment":         "remove comments",
		"1 3:1 # a comment":   "remove comments",
		"1 qid:7 3:1":         "eval.group",
		"1 0:3:1 1:7:0.5":     "libffm's field:index:value",
		"1 3 7 9":             "have no value",
		"1 3:1 7":             "have no value",
		"1:0.5 3:1 7:1":       "(label:weight)",
		"1,2 3:1":             "several labels",
		"1,2 3 4":             "",
		"1 3:x":               "",
		"one 3:1":             "",
		"words of a sentence": "",
		"12":                  "",
		"":                    "",
		"a # b":               "",
	} {
		if got := hint.LibFM([]byte(row)); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", row, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	for record, want := range map[string]string{
		`{"a": NaN, "b": [1, -Infinity]}`: "write null",
		`{"a": "NaN"}`:                    "",
		`{"a": NaN`:                       "",
		`[{"a": 1}]`:                      "a JSON list",
		`{"a": 1}`:                        "",
		``:                                "",
	} {
		if got := hint.JSON([]byte(record)); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", record, got, want)
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	cause := errors.New("bad tag")
	if err := hint.Explain(cause, "it is gzip"); !errors.Is(err, cause) || err.Error() != "bad tag; it is gzip" {
		t.Error(err)
	}
	if err := hint.Explain(cause, ""); err != cause { //nolint:errorlint // the same error
		t.Error(err)
	}
	if err := hint.Explain(nil, "it is gzip"); err != nil {
		t.Error(err)
	}
}
