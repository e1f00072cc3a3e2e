package simd

import "golang.org/x/sys/cpu"

// F16C is older than AVX2 and in every processor that has AVX2; the cpu package does not name it.
func hasAVX2() bool { return cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasBMI2 }

func hasAVX512() bool {
	return interpreted || cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ &&
		cpu.X86.HasAVX512VL && cpu.X86.HasBMI2
}

// hasPairs reports whether the processor has VDPBF16PS (AVX512-BF16), which belongs to no family of its own: its bits are those of AVX512.
func hasPairs() bool { return hasAVX512() && (interpreted || cpu.X86.HasAVX512BF16) }
