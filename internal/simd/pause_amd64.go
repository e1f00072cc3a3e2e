package simd

// pause tells the processor that this is a loop of waiting.
//
//go:noescape
func pause()
