package compare

import "syscall"

// dieWithUs makes the kernel end a process when we end, however that happens.
func dieWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
