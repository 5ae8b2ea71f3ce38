package chaos

import (
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// types are of two topics.
var types = []string{"order.placed.v1", "payment.taken.v1"}

const (
	// walDisk is room for what a slot holds back in an outage, in MiB; maxWAL is
	// what the server wants without one.
	walDisk = 512
	maxWAL  = 96
	// cacheDisk is room for a few schemas, in MiB.
	cacheDisk = 1
)

// lay sets everything up, up to a relay that streams and one that stands by.
func (m *machine) lay() error {
	if m.opt.Real {
		if err := m.layReal(); err != nil {
			return err
		}
	} else if err := m.layFake(m.opt.Seed); err != nil {
		return err
	}
	m.layServer()
	if err := m.layDisks(); err != nil {
		return err
	}
	m.link = harness.NewProxy(m.t, m.pg.Addr())
	m.layRegistry()

	m.with = surroundings{real: m.opt.Real, exactlyOnce: m.opt.ExactlyOnce, disk: m.wal != nil, cache: m.cache != nil}
	m.ledger = harness.NewLedger(m.t, m.pg, harness.LedgerOptions{Types: types, Partitioned: true})
	m.account = harness.NewAccount(m.ledger.DLQ())
	m.config = m.ledger.Config(m.brokers).
		With("postgres.dsn", strings.Replace(m.ledger.DSN(), m.pg.Addr(), m.link.Addr(), 1)).
		With("schema", harness.Config{"registry": harness.Config{"url": "http://" + m.registry.Addr()}}).
		With("delivery.batch_records", batchRecords).
		With("delivery.drain_timeout", "3s")
	var isolation []kgo.Opt
	if m.opt.Real {
		m.config = m.config.With("kafka.topics.replication_factor", 3)
	}
	if m.opt.ExactlyOnce {
		m.config = m.config.With("delivery.mode", "exactly_once")
		isolation = append(isolation, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	m.consumer = harness.NewConsumerWith(m.t, m.direct, m.ledger.Topics(), isolation...)
	m.sampler = harness.StartSampler(m.t, m.ledger.DSN(), m.ledger.Slot(), m.ends, m.ledger.Topics()...)
	m.journal = newJournal(m.log)
	for n, name := range []string{"a", "b"} {
		m.relays[n] = &instance{name: name}
		m.launch(m.relays[n], true)
	}
	_, err := m.ready()
	return err
}

func (m *machine) layServer() {
	opt := m.opt.Postgres
	opt.Settings = maps.Clone(opt.Settings)
	if opt.Settings == nil {
		opt.Settings = map[string]string{}
	}
	opt.Settings["wal_sender_timeout"] = fmt.Sprint(senderTimeout.Milliseconds())
	opt.Settings["max_wal_size"] = fmt.Sprintf("%dMB", maxWAL)
	opt.Settings["min_wal_size"] = "32MB"
	m.pg = postgres.New(m.t, opt)
	m.t.Cleanup(func() {
		if m.t.Failed() {
			m.log.keep("postgres.log", m.pg.LogTail(5000))
		}
	})
}

// layDisks makes the small file systems, where that can be.
func (m *machine) layDisks() error {
	wal, err := newDisk(m.t, walDisk, func() { _ = m.pg.Stop("immediate") }) // Close says what is wrong with it
	if err != nil {
		m.log.say("no full disks: %v", err)
		return nil
	}
	if m.cache, err = newDisk(m.t, cacheDisk, func() {}); err != nil {
		return err
	}
	if err := m.pg.Stop("fast"); err != nil {
		return err
	}
	if err := moveWAL(m.t, m.pg.DataDir(), wal); err != nil {
		return err
	}
	m.wal = wal
	m.log.say("the WAL is on a tmpfs of %d MiB, the relays' caches on one of %d", walDisk, cacheDisk)
	return m.pg.StartAgain()
}

// cacheOf is where an instance keeps its schemas, for its environment.
func (m *machine) cacheOf(name string, cold bool) []string {
	if m.cache == nil {
		return nil // a new folder each time
	}
	dir := filepath.Join(m.cache.dir, name)
	if cold {
		if err := os.RemoveAll(dir); err != nil {
			m.t.Errorf("empty the cache: %v", err)
		}
	}
	return []string{"XDG_CACHE_HOME=" + dir}
}

func (m *machine) layRegistry() {
	registry := srfake.NewRegistry()
	for n, typ := range types {
		registry.SeedSchema(typ, 1, 100+n, sr.Schema{Schema: harness.LedgerSchema, Type: sr.TypeAvro})
	}
	server := httptest.NewServer(registry.Handler())
	m.t.Cleanup(server.Close)
	m.registry = harness.NewProxy(m.t, server.Listener.Addr().String())
}

// current is where the WAL ends.
func (m *machine) current() (pglogrepl.LSN, error) {
	return pglogrepl.ParseLSN(m.pg.Query1(m.t, "SELECT pg_current_wal_lsn()::text"))
}
