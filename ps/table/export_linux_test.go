package table

import (
	"syscall"
	"unsafe"
)

// Resident reports whether the memory of the row of a number, which may have no row yet, is there.
func (t *Mem) Resident(id int) bool {
	if id >= t.slabs.cap {
		return false
	}
	const page = 4096
	var in byte
	at := t.slabs.address(uint32(id)) / page * page
	_, _, err := syscall.Syscall(syscall.SYS_MINCORE, at, page, uintptr(unsafe.Pointer(&in)))
	return err == 0 && in&1 != 0
}
