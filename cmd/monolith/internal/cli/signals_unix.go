//go:build unix

package cli

import (
	"os"
	"syscall"
)

func userSignals() []os.Signal { return []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2} }

func isDump(s os.Signal) bool { return s == syscall.SIGUSR1 }

func asksForSnapshot(s os.Signal) bool { return s == syscall.SIGUSR2 }
