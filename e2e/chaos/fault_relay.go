package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// instance is one of the two relays of one configuration.
type instance struct {
	name  string
	relay *harness.Relay // nil: it does not run
	peak  int64          // the most memory that it had at the end of a round
}

// launch starts an instance. A cold one has an empty cache of schemas.
func (m *machine) launch(i *instance, cold bool) {
	log, err := m.journal.of(i.name)
	if err != nil {
		m.t.Fatal(err)
	}
	i.relay = harness.StartRelay(m.t, harness.RelayOptions{Config: m.config, Env: m.cacheOf(i.name, cold), Log: log})
}

// retire forgets an instance's process, dead or not.
func (i *instance) retire() {
	i.relay.Drop()
	i.relay = nil
}

// holder is the instance that streams, else the one that pick chooses.
func (m *machine) holder(pick uint64) *instance {
	for _, i := range m.relays {
		if i.relay == nil {
			continue
		}
		if code, body := i.relay.Probe("/readyz"); code == http.StatusOK && strings.HasPrefix(body, "active") {
			return i
		}
	}
	return m.relays[pick>>8%2]
}

func (m *machine) other(of *instance) *instance {
	if of == m.relays[0] {
		return m.relays[1]
	}
	return m.relays[0]
}

func (m *machine) killHolder(pick uint64) fault {
	return m.kill(pick, func() []*instance { return []*instance{m.holder(pick)} })
}

func (m *machine) killStandby(pick uint64) fault {
	return m.kill(pick, func() []*instance { return []*instance{m.other(m.holder(pick))} })
}

func (m *machine) killBoth(pick uint64) fault {
	return m.kill(pick, func() []*instance { return m.relays[:] })
}

func (m *machine) kill(pick uint64, whom func() []*instance) fault {
	var victims []*instance
	return act{
		func() error {
			victims = whom()
			for _, v := range victims {
				if err := m.exited(v); err != nil {
					return err
				}
				v.retire()
			}
			return nil
		},
		func() error {
			for _, v := range victims {
				m.launch(v, pick%2 == 0)
			}
			return nil
		},
	}
}

func (m *machine) freezeHolder(pick uint64) fault {
	var victim *instance
	return act{
		func() error {
			victim = m.holder(pick)
			if err := m.exited(victim); err != nil {
				return err
			}
			victim.relay.Pause()
			return nil
		},
		func() error {
			victim.relay.Resume()
			return nil
		},
	}
}

// stopHolder stops a relay in order. Amid other faults it may miss its drain's
// deadline, and says so by exit code 1.
func (m *machine) stopHolder(pick uint64) fault {
	var victim *instance
	return act{
		func() error {
			victim = m.holder(pick)
			if err := m.exited(victim); err != nil {
				return err
			}
			victim.relay.Signal(syscall.SIGTERM)
			return nil
		},
		func() error {
			code := victim.relay.WaitExit(patience)
			victim.retire()
			m.launch(victim, pick%2 == 0)
			if code != 0 && code != 1 {
				return fmt.Errorf("relay %s exited with %d after SIGTERM", victim.name, code)
			}
			return nil
		},
	}
}

// exited is the error of an instance that ended by itself.
func (m *machine) exited(i *instance) error {
	if i.relay == nil || i.relay.Running() {
		return nil
	}
	return fmt.Errorf("relay %s exited by itself with %d: %s", i.name, i.relay.ExitCode(), lastLine(i.relay.Logs()))
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// ready waits until one instance streams and the other one stands by, and
// returns how long that took.
func (m *machine) ready() (time.Duration, error) {
	began := time.Now()
	var states [2]string
	for end := began.Add(patience); ; time.Sleep(20 * time.Millisecond) {
		active, standby := 0, 0
		for n, i := range m.relays {
			if err := m.exited(i); err != nil {
				return 0, err
			}
			code, body := i.relay.Probe("/readyz")
			states[n] = fmt.Sprintf("%d %q", code, body)
			switch {
			case code == http.StatusOK && strings.HasPrefix(body, "active"):
				active++
			case code == http.StatusOK && strings.HasPrefix(body, "standby"):
				standby++
			}
		}
		if active == 1 && standby == 1 {
			return time.Since(began), nil
		}
		if time.Now().After(end) {
			return 0, fmt.Errorf("%v after everything was healed, the relays say %s and %s", patience, states[0], states[1])
		}
	}
}
