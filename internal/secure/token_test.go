package secure_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/secure"
)

// TestFresh: a token that changes is seen within about a second, and one that cannot be had for a while is kept.
func TestFresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		token, missing, asked := "", errors.New("missing"), 0
		err := missing
		f := secure.NewFresh(func() (string, error) { asked++; return token, err })
		if _, got := f.Get(); !errors.Is(got, missing) {
			t.Errorf("before there is one: %v", got)
		}
		want := func(what, want string) {
			t.Helper()
			if got, err := f.Get(); got != want || err != nil {
				t.Errorf("%s: %q, %v; want %q", what, got, err, want)
			}
		}
		token, err = "a", nil
		want("the first", "a")
		before := asked
		for range 100 {
			want("again", "a")
		}
		if asked != before {
			t.Errorf("asked %d times for a hundred calls", asked-before)
		}
		token = "b"
		time.Sleep(1100 * time.Millisecond)
		want("rotated", "b")
		token, err = "", missing
		time.Sleep(1100 * time.Millisecond)
		want("while it is replaced", "b")
		token, err = "c", nil
		time.Sleep(1100 * time.Millisecond)
		want("replaced", "c")
	})
}
