//go:build !amd64

package snapshot

// hasLanes reports that there is nothing in assembly for this architecture.
func hasLanes() bool { return false }

func sumLanes(*byte, int, int, *[8][8]uint64) { panic("snapshot: lanes on a processor without them") }
