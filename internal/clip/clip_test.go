package clip_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/monolith-go/monolith/internal/clip"
)

func TestArgs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 1000)
	args := []any{"short", long, []byte(long), 7, error(nil)}
	got := fmt.Sprintf("%q %q %q %d %v", clip.Args(args)...)
	if len(got) > 1000 || strings.Count(got, "... (2000 bytes)") != 2 || !utf8.ValidString(got) || strings.Contains(got, `\x`) {
		t.Errorf("%s", got)
	}
	if args[1] != long {
		t.Error("the caller's arguments were changed")
	}
	if s := strings.Repeat("x", clip.Most); clip.Text(s) != s || clip.Text(s+"y") != s+"... (201 bytes)" {
		t.Error("cut elsewhere")
	}
}
