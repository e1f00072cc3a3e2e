package realkafka

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel end the broker when the test process dies without cleaning up.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
