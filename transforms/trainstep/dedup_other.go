//go:build !amd64

package trainstep

// vectors reports that there is nothing in assembly for this architecture.
func vectors() bool { return false }

func wideVectors() bool { return false }

func scanFids(*int64, int, uint64, *int32) (low, high int64) { panic("trainstep: no assembly") }

func scanFids512(*int64, int, uint64, *int32) (low, high int64) { panic("trainstep: no assembly") }

func enterFirsts(*int32, int, *[1 << 16]uint16) { panic("trainstep: no assembly") }

func numberFids(*numbering) { panic("trainstep: no assembly") }
