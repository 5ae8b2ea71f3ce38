//go:build !linux

package replication

import (
	"errors"
	"syscall"
)

// lowatSupported is false where it has not been measured that the runtime's
// poller wakes by the socket's low water mark. Such a system reads plainly.
const lowatSupported = false

func setLowat(syscall.RawConn, int) error { return errors.ErrUnsupported }
