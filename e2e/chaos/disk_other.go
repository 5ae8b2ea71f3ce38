//go:build !linux

package chaos

import (
	"errors"
	"testing"
)

func newDisk(testing.TB, int, func()) (*disk, error) {
	return nil, errors.New("a tmpfs is known on Linux only")
}
