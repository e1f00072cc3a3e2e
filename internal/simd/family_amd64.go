package simd

import "golang.org/x/sys/cpu"

// F16C is older than AVX2 and in every processor that has AVX2; the cpu package does not name it.
func hasAVX2() bool { return cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasBMI2 }

func hasAVX512() bool {
	return interpreted || cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ &&
		cpu.X86.HasAVX512VL && cpu.X86.HasBMI2
}

// hasPairs reports whether products of bfloat16 are those of VDPBF16PS (AVX512-BF16) in the family AVX512, whose bits they have. A processor with AMX has the instruction, but
// it takes twice the time of one of float32 there, so that a product would take 1.6 times as long.
func hasPairs() bool {
	return hasAVX512() && (interpreted || cpu.X86.HasAVX512BF16 && !cpu.X86.HasAMXTile)
}

// hasTiles reports whether the processor has AMX-BF16 and the system lets this process have its registers.
func hasTiles() bool {
	return hasAVX512() && (interpreted || cpu.X86.HasAMXTile && cpu.X86.HasAMXBF16 && cpu.X86.HasAVX512BF16 && askForTiles())
}
