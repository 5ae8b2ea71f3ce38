package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// Need makes sure of a program, and of the package of Debian that has it. why
// is said where it cannot be had.
func Need(program, pkg, why string) error {
	if _, err := exec.LookPath(program); err == nil {
		return nil
	}
	return Install(pkg, why)
}

var installing sync.Mutex

// Install installs a package: as root on Debian, which is how a fresh container
// gets what a test needs. Elsewhere the error says what to type.
func Install(pkg, why string) error {
	installing.Lock()
	defer installing.Unlock()
	args := []string{"install", "-y", "-q", "--no-install-recommends", pkg}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%s: install it (Debian calls the package %s) and try again", why, pkg)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s: sudo apt-get install -y %s", why, pkg)
	}
	first := aptGet(args...)
	if first == nil {
		return nil
	}
	// A container's package lists may be missing or old.
	if err := aptGet("update", "-q"); err != nil {
		return fmt.Errorf("%s: %w", why, errors.Join(first, err))
	}
	if err := aptGet(args...); err != nil {
		return fmt.Errorf("%s: %w", why, err)
	}
	return nil
}

// aptGet waits for another test process that installs in this moment.
func aptGet(args ...string) error {
	cmd := exec.Command("apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
