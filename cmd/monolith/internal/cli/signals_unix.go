//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

func userSignals() []os.Signal {
	signals := []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}
	if !signal.Ignored(syscall.SIGHUP) { // nohup is heeded
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

func isDump(s os.Signal) bool { return s == syscall.SIGUSR1 }

func asksForSnapshot(s os.Signal) bool { return s == syscall.SIGUSR2 }
