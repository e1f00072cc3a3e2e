package failure_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/failure"
)

func TestOf(t *testing.T) {
	t.Parallel()
	config, torn := failure.New(failure.Config, "bad configuration"), failure.New(failure.Torn, "torn")
	_, missing := os.Open(filepath.Join(t.TempDir(), "none"))
	for _, tc := range []struct {
		err  error
		want failure.Code
	}{
		{nil, failure.None},
		{errors.New("x"), failure.Unknown},
		{config, failure.Config},
		{fmt.Errorf("a: %w", fmt.Errorf("b: %w", torn)), failure.Torn},
		{fmt.Errorf("a: %w: %w", torn, config), failure.Config},
		{errors.Join(errors.New("x"), torn, context.Canceled), failure.Canceled},
		{fmt.Errorf("a: %w", context.DeadlineExceeded), failure.Deadline},
		{&fs.PathError{Op: "write", Path: "f", Err: syscall.ENOSPC}, failure.Disk},
		{&fs.PathError{Op: "write", Path: "f", Err: syscall.EFBIG}, failure.Disk},
		{&fs.PathError{Op: "open", Path: "f", Err: syscall.EACCES}, failure.Disk},
		{fmt.Errorf("a: %w", fs.ErrPermission), failure.Disk},
		{missing, failure.Unknown},
	} {
		if got := failure.Of(tc.err); got != tc.want {
			t.Errorf("%v: code %d, want %d", tc.err, got, tc.want)
		}
	}
	if err := errors.Join(errors.New("x"), fmt.Errorf("%w: %w", torn, config)); !failure.Has(err, failure.Busy, failure.Torn) || failure.Has(err, failure.Busy) || !failure.Lasting(err) {
		t.Errorf("%v", err)
	}
	if failure.Has(nil, failure.Torn) || failure.Lasting(nil) || failure.Lasting(torn) {
		t.Error("nil or torn")
	}
	if torn.Error() != "torn" || errors.Is(torn, failure.New(failure.Torn, "torn")) {
		t.Error("two errors of one code are one")
	}
}

// TestLabels: labels are the small set that docs/metrics.md names.
func TestLabels(t *testing.T) {
	t.Parallel()
	got := map[string]int{}
	for c := failure.None; c <= failure.Unknown; c++ {
		got[c.Label()]++
	}
	want := map[string]int{
		"ok": 1, "error": 15, "layout": 1, "no_space": 1, "full": 1, "canceled": 2, "fenced": 1, "gap": 1, "overlap": 1, "torn": 1, "busy": 1, "closed": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestFlatten(t *testing.T) {
	t.Parallel()
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	both := fmt.Errorf("what %w does to %w", a, b)
	var got []string
	for _, e := range failure.Flatten(errors.Join(a, errors.Join(b, both), c)) {
		got = append(got, e.Error())
	}
	if diff := cmp.Diff([]string{"a", "b", "what a does to b", "c"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
