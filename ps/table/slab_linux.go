package table

import "golang.org/x/sys/unix"

// mapMemory returns zeroed pages outside the Go heap, at least of size, large ones if huge says so; a page costs memory once it
// is touched.
func mapMemory(size int, huge bool) (b []byte, mapped bool, err error) {
	if huge && size >= hugePageBytes {
		size = (size + populateBytes - 1) / populateBytes * populateBytes // the system puts such mappings where huge pages fit
	}
	b, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, false, err
	}
	if huge && size >= hugePageBytes {
		// Refusal only costs speed (numerics: 2 MiB pages are worth 1.5x on random rows), so the error says nothing.
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	}
	return b, true, nil
}

func unmapMemory(b []byte) {
	// Munmap fails for addresses it did not map only, and these come from mapMemory.
	_ = unix.Munmap(b)
}

// dropMemory gives the pages of a part of a mapping back; they are zero when they are touched again.
func dropMemory(b []byte) {
	// It fails for addresses that are not mapped only.
	_ = unix.Madvise(b, unix.MADV_DONTNEED)
}

// populateMemory gives pages to a part of a mapping, which may be in use meanwhile.
func populateMemory(b []byte) {
	// Systems before 5.14 have no such call: pages come when they are touched.
	_ = unix.Madvise(b, unix.MADV_POPULATE_WRITE)
}
