package host

import (
	"os"
	"strconv"
	"sync"
	"testing"
)

// Runs and ports are made while others tidy up, and leave no file of theirs.
func TestTidy(t *testing.T) {
	stop := make(chan struct{})
	var tidier sync.WaitGroup
	tidier.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				Tidy()
			}
		}
	})
	defer tidier.Wait()
	defer close(stop)
	for range 100 {
		run, err := NewRun("tidy")
		if err != nil {
			t.Fatal(err)
		}
		port, err := NewPort()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(run.Dir); err != nil {
			t.Fatal(err)
		}
		port.Release()
		port.Release()
		if err := run.Close(); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{run.Dir, run.Dir + ".lock", rootDir() + "/ports/" + strconv.Itoa(port.Number)} {
			if _, err := os.Lstat(path); err == nil {
				t.Errorf("%s is still there", path)
			}
		}
	}
}
