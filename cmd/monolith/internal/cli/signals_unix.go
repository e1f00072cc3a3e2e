//go:build unix

package cli

import (
	"os"
	"syscall"
)

func dumpSignals() []os.Signal { return []os.Signal{syscall.SIGUSR1} }

func isDump(s os.Signal) bool { return s == syscall.SIGUSR1 }
