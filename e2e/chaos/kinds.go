package chaos

import "time"

// Kind names a fault, in the words of the report.
type Kind string

// surroundings say which faults there can be.
type surroundings struct {
	real        bool // a real Kafka of three brokers, not kfake
	exactlyOnce bool
	disk        bool // the server's WAL is on a disk small enough to fill
	cache       bool // so is the relays' cache
}

// fault is something that breaks and is mended again. Both run in the machine's
// goroutine. heal is called once after start, also when that failed.
type fault interface {
	start() error
	heal() error
}

// act is a fault of two functions; a missing heal has nothing to mend.
type act struct{ begin, end func() error }

func (a act) start() error { return a.begin() }

func (a act) heal() error {
	if a.end == nil {
		return nil
	}
	return a.end()
}

// trait is what is known of a kind.
type trait struct {
	kind        Kind
	on          []string // resources that it has for itself while it lasts
	weight      int      // how often, beside the others
	least, most time.Duration
	here        func(surroundings) bool // nil: everywhere
	make        func(m *machine, pick uint64) fault
}

const (
	moment = 50 * time.Millisecond
	short  = 1500 * time.Millisecond
	// long outlasts the server's wal_sender_timeout and all that hangs on it.
	long = 2 * senderTimeout
)

func onFake(s surroundings) bool { return !s.real }
func onReal(s surroundings) bool { return s.real }

// catalogue is every fault there is.
var catalogue = []trait{
	{"kill the holder", []string{"relay"}, 6, moment, short, nil, (*machine).killHolder},
	{"kill the standby", []string{"relay"}, 1, moment, short, nil, (*machine).killStandby},
	{"kill both relays", []string{"relay"}, 2, moment, short, nil, (*machine).killBoth},
	{"freeze the holder", []string{"relay"}, 3, moment, long, nil, (*machine).freezeHolder},
	{"stop the holder", []string{"relay"}, 2, moment, short, nil, (*machine).stopHolder},

	{"Postgres: immediate stop", []string{"postgres"}, 3, moment, short, nil, (*machine).crashServer},
	{"Postgres: kill -9", []string{"postgres"}, 1, moment, short, nil, (*machine).killServer},
	{"Postgres: fast restart", []string{"postgres"}, 2, moment, short, nil, (*machine).restartServer},
	{"Postgres: disk of the WAL full", []string{"postgres"}, 1, moment, short, func(s surroundings) bool { return s.disk }, (*machine).fillServer},
	{"Postgres: walsender terminated", []string{"postgres"}, 3, moment, moment, nil, (*machine).endWalsender},
	{"Postgres: all backends terminated", []string{"postgres"}, 2, moment, moment, nil, (*machine).endBackends},

	{"network to Postgres: cut", []string{"link"}, 2, moment, short, nil, (*machine).cutServer},
	{"network to Postgres: black hole", []string{"link"}, 3, moment, long, nil, (*machine).freezeLink},
	{"network to Postgres: slow", []string{"link"}, 2, moment, long, nil, (*machine).slowLink},
	{"network to Postgres: half-open, relay not told", []string{"link"}, 2, moment, moment, nil, (*machine).loseServer},
	{"network to Postgres: half-open, server not told", []string{"link"}, 2, moment, moment, nil, (*machine).loseRelay},

	{"registry: refuses", []string{"registry"}, 2, moment, long, nil, (*machine).refuseRegistry},
	{"registry: hangs", []string{"registry"}, 1, moment, long, nil, (*machine).freezeRegistry},
	{"disk of the relay's cache full", []string{"cache"}, 1, moment, long, func(s surroundings) bool { return s.cache }, (*machine).fillCache},

	{"Kafka: all brokers gone", []string{"brokers", "wire"}, 2, moment, long, onFake, (*machine).fakeDown},
	{"Kafka: broker gone", []string{"brokers"}, 3, moment, long, onFake, (*machine).fakeLeaves},
	{"Kafka: leaders move", []string{"brokers"}, 3, moment, moment, onFake, (*machine).fakeLeaders},
	{"Kafka: coordinators move", []string{"coordinators"}, 2, moment, moment,
		func(s surroundings) bool { return !s.real && s.exactlyOnce }, (*machine).fakeCoordinators},
	{"Kafka: writes refused", []string{"answers"}, 6, 500 * time.Millisecond, long, onFake, (*machine).fakeRefuses},
	{"Kafka: writes to one topic refused", []string{"answers"}, 3, 500 * time.Millisecond, long, onFake, (*machine).fakeRefusesTopic},
	{"Kafka: slow", []string{"thought"}, 2, moment, long, onFake, (*machine).fakeSlow},
	{"network to Kafka: cut", []string{"wire"}, 2, moment, moment, onFake, (*machine).fakeCut},
	{"network to Kafka: answers lost", []string{"wire"}, 3, moment, short, onFake, (*machine).fakeAnswers},
	{"network to Kafka: requests lost", []string{"wire"}, 1, moment, short, onFake, (*machine).fakeRequests},

	{"Kafka: broker killed", []string{"brokers"}, 4, moment, long, onReal, (*machine).realKill},
	{"Kafka: broker frozen", []string{"brokers"}, 3, moment, long, onReal, (*machine).realFreeze},
	{"Kafka: leaders move", []string{"brokers"}, 3, moment, moment, onReal, (*machine).realLeaders},
	{"network to Kafka: cut", []string{"wire"}, 2, moment, short, onReal, (*machine).realCut},
	{"network to Kafka: black hole", []string{"wire"}, 2, moment, long, onReal, (*machine).realBlackHole},
	{"network to Kafka: slow", []string{"wire"}, 2, moment, long, onReal, (*machine).realSlow},
	{"network to Kafka: half-open, relay not told", []string{"wire"}, 1, moment, moment, onReal, (*machine).realHalfOpen},
}

// kindsFor are the kinds that there can be, in the catalogue's order.
func kindsFor(s surroundings) (kinds []trait) {
	for _, k := range catalogue {
		if k.here == nil || k.here(s) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}
