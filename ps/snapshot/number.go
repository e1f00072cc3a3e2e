package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/fsx"
)

// ReadNumber reads what [WriteNumber] wrote, or 0 where there is no such object.
func ReadNumber(f fsx.FS, name string) (uint64, error) {
	b, err := get(f, name, 64)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("snapshot: %s holds %q and no number; if you know of nothing that changed it, remove it: %w", name, b, ErrCorrupt)
	}
	return n, nil
}

// WriteNumber replaces a small object with a number above 0; it is durable when the error is nil.
func WriteNumber(f fsx.FS, name string, n uint64) error {
	if err := put(f, name, fmt.Appendln(nil, n)); err != nil {
		return fmt.Errorf("snapshot: writing %s: %w", name, err)
	}
	return nil
}
