package simd

import "golang.org/x/sys/unix"

// askForTiles asks Linux to let all threads of this process have tile registers (ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA, since 5.16; "Using XSTATE features in user space applications" of
// its documentation), and reports whether it does. It refuses where the stack of a thread's signals could not hold them; those of Go's threads can.
func askForTiles() bool {
	const request, tileData = 0x1023, 18
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, request, tileData, 0)
	return errno == 0
}
