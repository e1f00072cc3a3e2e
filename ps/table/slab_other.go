//go:build !linux

package table

// mapMemory leaves it to the Go heap: the memory holds no pointers, so the collector does not scan it.
func mapMemory(int, bool) (b []byte, mapped bool, err error) { return nil, false, nil }

func unmapMemory([]byte) {}

func dropMemory([]byte) {}

func populateMemory([]byte) {}
