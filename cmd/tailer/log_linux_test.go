package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// On a terminal the log has colours; NO_COLOR and an explicit format are heard.
func TestLogOnATerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	lines := bufio.NewReader(master)
	write := func(format string) string {
		newLogger(terminal, LogConfig{Level: "info", Format: format}).Info("streaming", "slot", "shop")
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	if line := write("auto"); !strings.Contains(line, "\x1b[") || !strings.Contains(line, "streaming") {
		t.Errorf("auto: %q", line)
	}
	if line := write("json"); !strings.HasPrefix(line, "{") {
		t.Errorf("json: %q", line)
	}
	if line := write("text"); !strings.HasPrefix(line, "time=") {
		t.Errorf("text: %q", line)
	}
	t.Setenv("NO_COLOR", "1")
	if line := write("auto"); strings.Contains(line, "\x1b[") || !strings.Contains(line, "streaming slot=shop") {
		t.Errorf("NO_COLOR: %q", line)
	}
}
