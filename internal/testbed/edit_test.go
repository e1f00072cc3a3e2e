package testbed_test

import (
	"testing"

	"github.com/monolith-go/monolith/internal/testbed"
)

func TestEdit(t *testing.T) {
	t.Parallel()
	const file = "abcdef"
	for edits, want := range map[string]string{
		"":                     "abcdef",
		"\x00\x02\x00\x00Z":    "abZdef",
		"\x01\x02\x00\x00Z":    "abZcdef",
		"\x02\x01\x00\x00\x01": "adef",
		"\x02\x04\x00\x00\xff": "abcd",
		"\x03\x07\x00\x00\x00": "a",
		"\x03\x00\x00\x00\x00": "",
		"\x00\x00\x00\x00X\x03\x03\x00\x00\x00tail": "Xbc",
	} {
		if got := string(testbed.Edit([]byte(file), []byte(edits))); got != want {
			t.Errorf("%q: got %q, want %q", edits, got, want)
		}
	}
}
