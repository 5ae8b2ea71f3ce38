//go:build !linux

package host

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithUs does nothing here: sweep ends what a killed test process left.
func dieWithUs(*syscall.SysProcAttr, syscall.Signal) {}

// birth identifies a living process beyond its reusable number: its start, to
// the second. Empty for a process that is gone or a zombie.
func birth(pid int) string {
	out, err := exec.Command("ps", "-o", "stat=,lstart=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	state, start, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if strings.HasPrefix(state, "Z") {
		return ""
	}
	return strings.Join(strings.Fields(start), " ")
}

// Children lists the direct children of a process.
func Children(pid int) []int {
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	if err != nil {
		return nil
	}
	var pids []int
	for _, field := range strings.Fields(string(out)) {
		if n, err := strconv.Atoi(field); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}
