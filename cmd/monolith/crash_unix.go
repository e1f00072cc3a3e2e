//go:build unix

package main

import "golang.org/x/sys/unix"

// noCore keeps the system from writing core files of this process.
func noCore() {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return // a core file more is no reason not to start
	}
	limit.Cur = 0
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &limit)
}
