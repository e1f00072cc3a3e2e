package components

import (
	"strings"
	"testing"
	"time"
)

// TestTimeOf: milliseconds are a time. Digits in another unit are refused with the time they would be, and with what to write.
func TestTimeOf(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"2026-11-28":             "",
		"2026-11-28T00:00:00Z":   "",
		"1795824000000":          "",
		"1795824000":             "in seconds it is 2026-11-28T00:00:00Z; write that, or 1795824000000",
		"1795824000000000":       "in microseconds it is 2026-11-28T00:00:00Z; write that, or 1795824000000",
		"1795824000000000000":    "in nanoseconds it is 2026-11-28T00:00:00Z; write that, or 1795824000000",
		"12":                     "an offset is written with its partition, such as {0: 12}",
		"50000000000000":         "no time in milliseconds",
		"-1795824000000000000":   "no time in milliseconds",
		"9223372036854775807":    "in nanoseconds it is 2262-",
		"99223372036854775807":   "no time such as",
		"1795824000.5":           "no time such as",
		"2026-11-28 00:00:00 CE": "no time such as",
	} {
		got, err := timeOf(text)
		if want == "" && (err != nil || !got.Equal(at)) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, %v; want %s", text, got, err, want)
		}
	}
	if got, err := timeOf("latest"); err != nil || !got.IsZero() {
		t.Errorf("latest: %v, %v", got, err)
	}
}
