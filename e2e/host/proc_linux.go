package host

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dieWithUs has the kernel signal the child when the thread that started it
// ends. Go ends a thread only with a goroutine that locked itself to it, and
// we never start a process from one.
func dieWithUs(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }

// birth identifies a living process beyond its reusable number: its start in
// clock ticks since boot. Empty for a process that is gone or a zombie.
func birth(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is the name in parentheses and may hold anything.
	i := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[i+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

// Children lists the direct children of a process.
func Children(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var pids []int
	for _, field := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(field); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}
