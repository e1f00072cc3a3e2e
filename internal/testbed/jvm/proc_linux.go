package jvm

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel end the program when the test process dies without cleaning up.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
