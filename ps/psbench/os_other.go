//go:build !linux

package psbench

import (
	"os"

	"github.com/monolith-go/monolith/internal/bench"
)

// threadSeconds is the processor time of the process: there is no clock of one thread that all systems have.
func threadSeconds() float64 { return bench.CPUSeconds() }

// hugeFloats is an array, and what frees it.
func hugeFloats(n int) (f []float32, free func()) { return make([]float32, n), func() {} }

// openSynced opens a file whose writes are durable when they return.
func openSynced(path string) (*os.File, error) { return os.OpenFile(path, os.O_WRONLY|os.O_SYNC, 0) }
