package replication

import "syscall"

const lowatSupported = true

// setLowat sets how many bytes must wait before a blocked reader is woken. A
// read itself still returns whatever is there, and the end of the stream wakes
// at once.
func setLowat(c syscall.RawConn, n int) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, n)
	})
	if err != nil {
		return err
	}
	return failed
}
