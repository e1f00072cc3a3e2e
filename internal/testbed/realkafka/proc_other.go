//go:build !linux

package realkafka

import "os/exec"

// dieWithParent does nothing where the kernel offers no such thing.
func dieWithParent(*exec.Cmd) {}
