package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/pipeline"
)

// TestMark: who has told a command to end has no use for advice about the disk.
func TestMark(t *testing.T) {
	t.Parallel()
	const advice = "make room"
	for _, tc := range []struct {
		name   string
		err    error
		marked bool
	}{
		{"of the disk", fs.ErrPermission, true},
		{"of time", context.DeadlineExceeded, true},
		{"told to end", context.Canceled, false},
		{"told to end amid a file", &fs.PathError{Op: "write", Path: "x", Err: context.Canceled}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := fault.Mark(fmt.Errorf("job: %w", tc.err), pipeline.ErrUnavailable, advice)
			if !errors.Is(err, tc.err) || errors.Is(err, pipeline.ErrUnavailable) != tc.marked || strings.Contains(err.Error(), advice) != tc.marked {
				t.Errorf("got %v", err)
			}
		})
	}
}
