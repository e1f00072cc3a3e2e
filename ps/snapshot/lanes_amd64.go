package snapshot

import (
	"golang.org/x/sys/cpu"

	"github.com/monolith-go/monolith/internal/simd"
)

// hasLanes reports whether records are digested in lanes. [simd.Active] alone does not say that the processor has the instructions: a program may interpret them.
func hasLanes() bool {
	return simd.Active() >= simd.AVX512 && cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW
}

// sumLanes adds the words of the SHA-256 of [lanes] records to sums, those of two records to each of eight. Records are padded to so many blocks of 64 bytes,
// at least one, and one begins stride bytes behind another.
//
//go:noescape
func sumLanes(records *byte, stride, blocks int, sums *[8][8]uint64)
