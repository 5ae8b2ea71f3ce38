package harness_test

import (
	"context"
	"debug/buildinfo"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// The whole chain under load, with a kill in the middle: every judge agrees,
// and the relay's probes, metrics and use of resources can be read.
func TestRelayUnderLoad(t *testing.T) {
	pg := postgres.New(t, postgres.Options{})
	fake := kafka.NewFake(t, kafka.FakeOptions{})
	ledger := harness.NewLedger(t, pg, harness.LedgerOptions{Types: []string{"order.placed.v1", "payment.made.v1"}})
	consumer := harness.NewConsumer(t, fake.Addrs(), ledger.Topics()...)
	sampler := harness.StartSampler(t, ledger.DSN(), ledger.Slot(), harness.FakeEnds(fake.Cluster), ledger.Topics()...)
	options := harness.RelayOptions{Config: ledger.Config(fake.Addrs())}

	relay := harness.StartRelay(t, options).Ready()
	writers := ledger.Write(t, harness.WriteOptions{})
	writers.WaitRows(500, time.Minute)
	relay.Kill()
	if code := relay.ExitCode(); code != -1 {
		t.Errorf("exit code %d after SIGKILL", code)
	}

	relay = harness.StartRelay(t, options).Ready()
	writers.WaitRows(writers.Rows()+500, time.Minute)
	writers.Stop()
	ledger.WaitDelivered(t, consumer, time.Minute)

	if code, body := relay.Probe("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	metrics := relay.Metrics()
	if n, ok := metrics.Sum("tailer_events_published_total", `topic="order"`); !ok || n == 0 {
		t.Errorf("published to order: %v, %v", n, ok)
	}
	usage := relay.Usage()
	if usage.RSS == 0 || usage.PeakRSS < usage.RSS/2 || usage.CPU == 0 {
		t.Errorf("usage while it runs: %+v", usage)
	}
	if code := relay.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	if after := relay.Usage(); after.CPU < usage.CPU || after.PeakRSS < usage.RSS/2 {
		t.Errorf("usage after its end: %+v, before %+v", after, usage)
	}
	records := consumer.CatchUp(time.Minute)
	ledger.Check(t, records).AssertAtLeastOnce(t, len(records))
	harness.AssertAcks(t, sampler.Stop(), records)
}

// A slot that is advanced before its event is in Kafka, as a relay that loses
// events would do, is seen by sampler and judge; and after it is not.
func TestSamplerSeesEarlyConfirm(t *testing.T) {
	pg := postgres.New(t, postgres.Options{})
	fake := kafka.NewFake(t, kafka.FakeOptions{Topics: map[string]int32{"order": 1}})
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprintf("early=%v", early), func(t *testing.T) {
			database := fmt.Sprintf("early_%v", early)
			pg.Exec(t, "CREATE DATABASE "+database)
			ledger := harness.NewLedger(t, pg, harness.LedgerOptions{Database: database, Slot: database})
			sampler := harness.StartSampler(t, ledger.DSN(), ledger.Slot(), harness.BrokerEnds(t, fake.Addrs()), "order")
			ledger.Insert(t, 0, 1)
			begin := pg.Query1In(t, database, "SELECT encode(data, 'hex') FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2) LIMIT 1", database, database)
			message, err := hex.DecodeString(begin)
			if err != nil || message[0] != 'B' {
				t.Fatalf("peeked %q, %v", begin, err)
			}
			advance := func() {
				to := pg.Query1In(t, database, "SELECT end_lsn::text FROM pg_replication_slot_advance($1, pg_current_wal_lsn())", database)
				lsn, err := pglogrepl.ParseLSN(to)
				if err != nil {
					t.Fatal(err)
				}
				sampler.WaitConfirmed(lsn, 10*time.Second)
			}
			if early {
				advance()
			}
			event := ledger.Committed(t)[0]
			client, err := kgo.NewClient(kgo.SeedBrokers(fake.Addrs()...), kgo.DefaultProduceTopic("order"))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			record := &kgo.Record{Key: []byte(event.Key), Headers: []kgo.RecordHeader{
				{Key: "ce_id", Value: []byte(event.ID)},
				{Key: "ce_sequence", Value: fmt.Appendf(nil, "%016X-%010d", binary.BigEndian.Uint64(message[1:]), 0)},
			}}
			if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if !early {
				advance()
			}
			var mine []harness.Record
			for _, r := range harness.ReadAll(t, fake.Addrs(), "order") {
				if r.ID() == event.ID {
					mine = append(mine, r)
				}
			}
			problems := harness.JudgeAcks(sampler.Stop(), mine)
			if found := len(problems) > 0; len(mine) != 1 || found != early {
				t.Errorf("read %d records, found %q", len(mine), problems)
			}
		})
	}
}

// The load itself: what writers commit has numbers without gaps for each key,
// whatever they rolled back, also over a crash of the server.
func TestWritersNumberCommits(t *testing.T) {
	pg := postgres.New(t, postgres.Options{})
	ledger := harness.NewLedger(t, pg, harness.LedgerOptions{Keys: 5})
	writers := ledger.Write(t, harness.WriteOptions{})
	writers.WaitRows(1000, time.Minute)
	if err := pg.Restart("immediate"); err != nil {
		t.Fatal(err)
	}
	writers.WaitRows(writers.Rows()+1000, time.Minute)
	writers.Stop()
	events := ledger.Committed(t)
	if int64(len(events)) < writers.Rows() {
		t.Errorf("%d rows in the table, %d were answered", len(events), writers.Rows())
	}
	count, most := map[string]int64{}, map[string]int64{}
	seen := map[string]bool{}
	for _, e := range events {
		count[e.Key]++
		most[e.Key] = max(most[e.Key], e.N)
		place := fmt.Sprint(e.Key, "/", e.N)
		if seen[place] || seen[e.ID] {
			t.Errorf("number %d of %s, or id %s, twice", e.N, e.Key, e.ID)
		}
		seen[place], seen[e.ID] = true, true
	}
	for key, n := range most {
		if count[key] != n {
			t.Errorf("%s has %d events numbered up to %d", key, count[key], n)
		}
	}
}

func TestConfigWith(t *testing.T) {
	base := harness.Config{"kafka": harness.Config{"brokers": []string{"a"}}}
	changed := base.With("kafka.topics.create", true).With("http.listen", "").With("kafka.brokers", nil)
	if got := changed.YAML(t); got != "http:\n    listen: \"\"\nkafka:\n    topics:\n        create: true\n" {
		t.Errorf("got\n%s", got)
	}
	if got := base.YAML(t); got != "kafka:\n    brokers:\n        - a\n" {
		t.Errorf("the original became\n%s", got)
	}
}

func TestRunCommand(t *testing.T) {
	if got := harness.Run(t, nil, "version"); got.Code != 0 || got.Stdout == "" {
		t.Errorf("version: %+v", got)
	}
	if got := harness.Run(t, harness.Config{"no_such_key": 1}, "run"); got.Code != 2 || !strings.Contains(got.Stderr, "no_such_key") {
		t.Errorf("an unknown key: %+v", got)
	}
}

// The relay carries nothing of the test bench.
func TestBinaryIsPlain(t *testing.T) {
	info, err := buildinfo.ReadFile(harness.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]bool{}
	for _, dep := range info.Deps {
		modules[dep.Path] = true
	}
	if !modules["github.com/twmb/franz-go"] {
		t.Fatalf("no client of Kafka among the modules: %v", modules)
	}
	for _, bench := range []string{"github.com/twmb/franz-go/pkg/kfake", "github.com/fergusstrange/embedded-postgres", "github.com/lib/pq", "github.com/twmb/avro"} {
		if modules[bench] {
			t.Errorf("tailer was built with %s", bench)
		}
	}
}

// A topic that appears later is read, in full.
func TestConsumerSeesNewTopic(t *testing.T) {
	fake := kafka.NewFake(t, kafka.FakeOptions{})
	consumer := harness.NewConsumer(t, fake.Addrs(), "later")
	if got := consumer.CatchUp(10 * time.Second); len(got) != 0 {
		t.Fatalf("read %d records of a missing topic", len(got))
	}
	kafka.CreateTopic(t, fake.Addrs(), "later", 2, -1, nil)
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.Addrs()...), kgo.DefaultProduceTopic("later"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for i := range 10 {
		if err := client.ProduceSync(ctx, &kgo.Record{Key: fmt.Append(nil, i), Value: nil}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	got := consumer.WaitLen(10, 10*time.Second)
	if again := harness.ReadAll(t, fake.Addrs(), "later"); len(got) != 10 || len(again) != 10 || got[0].Value != nil {
		t.Errorf("read %d and %d records", len(got), len(again))
	}
}
