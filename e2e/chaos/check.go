package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/tailer-relay/tailer/e2e/harness"
)

// judge holds what was read since the last time against what was committed, and
// forgets both.
func (m *machine) judge(spells []spell, ready, drained time.Duration) error {
	m.consumer.CatchUp(patience)
	records := m.consumer.Take()
	samples := m.sampler.Take()
	part := m.account.Post(m.ledger.Committed(m.t), records)
	problems := slices.Clone(part.Problems)
	if len(samples) == 0 {
		problems = append(problems, "no look at the slot was taken")
	}
	problems = append(problems, harness.JudgeAcks(samples, part.First)...)
	if part.Dead > 0 {
		problems = append(problems, fmt.Sprintf("%d dead letters", part.Dead))
	}
	if m.opt.ExactlyOnce && part.Duplicates > 0 {
		problems = append(problems, fmt.Sprintf("%d duplicates for a consumer that reads committed records", part.Duplicates))
	}
	w := window{spells: spells, sessions: m.journal.take(), samples: samples, first: part.First, forgets: m.pg.Version() <= "16"}
	problems = append(problems, w.judge(part.Repeats)...)

	r := m.log
	if spells != nil {
		r.rounds++
	}
	r.committed += part.Committed
	r.delivered += part.Delivered
	r.repeats += part.Duplicates
	r.samples += len(samples)
	r.readyLongest, r.drainLongest = max(r.readyLongest, ready), max(r.drainLongest, drained)
	what := "healed"
	if spells == nil {
		what = "stopped"
	}
	r.say("  "+what+": ready after %v, drained after %v; %d committed, %d delivered, %d repeats, %d looks at the slot; %d faults so far",
		ready.Round(time.Millisecond), drained.Round(time.Millisecond), part.Committed, part.Delivered, part.Duplicates, len(samples), r.total())
	if len(problems) > 0 {
		const shown = 20
		if len(problems) > shown {
			problems = append(problems[:shown:shown], fmt.Sprintf("and %d more", len(problems)-shown))
		}
		return errors.New(strings.Join(problems, "\n"))
	}
	return m.prune()
}

// dropOldPartitions leaves the one that rows go to. Which one that is the server
// knows: a change whose COMMIT got no answer may have taken place.
const dropOldPartitions = `DO $$ DECLARE old text; BEGIN
	FOR old IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'outbox'::regclass AND c.relname <> 'outbox_' || (
			SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
			WHERE d.adrelid = 'outbox'::regclass AND a.attname = 'part')
	LOOP EXECUTE format('DROP TABLE %I', old); END LOOP;
END $$`

// prune removes what was judged, from the table and from the topics.
func (m *machine) prune() error {
	statements := []string{"TRUNCATE outbox", dropOldPartitions}
	for n := range 4 {
		statements = append(statements, fmt.Sprintf("ALTER TABLE outbox DROP COLUMN IF EXISTS note%d", n))
	}
	if err := m.pg.Run("postgres", statements...); err != nil {
		return err
	}
	if m.fake != nil {
		for _, topic := range m.ledger.Topics() {
			for _, p := range m.fake.PartitionInfos(topic) {
				if err := m.fake.DeleteRecords(topic, p.Partition, -1); err != nil {
					return fmt.Errorf("prune %s: %w", topic, err)
				}
			}
		}
		return nil
	}
	return m.pruneReal()
}

// pruneReal deletes what can be deleted now: it is for the disk's sake alone.
func (m *machine) pruneReal() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ends, err := m.admin.ListEndOffsets(ctx, m.ledger.Topics()...)
	if err != nil {
		m.log.note(fmt.Sprintf("prune: %v", err))
		return nil
	}
	offsets := kadm.Offsets{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			offsets.AddOffset(o.Topic, o.Partition, o.Offset, -1)
		}
	})
	if _, err := m.admin.DeleteRecords(ctx, offsets); err != nil {
		m.log.note(fmt.Sprintf("prune: %v", err))
	}
	return nil
}
