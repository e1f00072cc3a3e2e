package table

import (
	"syscall"
	"unsafe"
)

// Resident reports whether the memory of the row of a number, which may have no row yet, is there, and that of its time and count.
func (t *Mem) Resident(id int) bool {
	if id >= t.slabs.cap {
		return false
	}
	const page = 4096
	for _, at := range []uintptr{t.slabs.address(uint32(id)), uintptr(unsafe.Pointer(t.slabs.metaOf(uint32(id))))} {
		var in byte
		if _, _, err := syscall.Syscall(syscall.SYS_MINCORE, at/page*page, page, uintptr(unsafe.Pointer(&in))); err != 0 || in&1 == 0 {
			return false
		}
	}
	return true
}
