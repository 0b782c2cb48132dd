package vfs

import (
	"os"
	"strings"
)

// BootID names this run of the operating system: it is another after the machine
// has stopped. Empty where the system does not say (it is Linux that does).
func BootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
