package wire

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// removeStale removes a unix socket that was left behind by a process that was killed. Anything else stays, and the
// listener says so.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wire: %w", err)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("wire: unix:%s: somebody listens there already", path), c.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("wire: %w", err)
	}
	return nil
}
