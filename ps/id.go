package ps

import (
	"crypto/rand"
	"encoding/binary"
)

// NewID returns a number that is unique among the sessions and incarnations of a cluster's life, restarts included, and never 0.
func NewID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) | 1
}
