package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The bare loop is the least that moves a row from a slot to a topic without
// losing it: it receives, produces each row at once with an idempotent producer
// and acks=all, does not wait for the answer before it reads on, and confirms
// what is acknowledged. It routes nothing, validates nothing, knows no dead
// letter and keeps no order around a failed record: what it adds to a
// latency is the price of the parts themselves.

// bareVariable turns this program into the loop; its value is a bareConfig.
const bareVariable = "TAILER_BENCH_BARE"

// bareHeader carries the row's first column, its id.
const bareHeader = "id"

type bareConfig struct {
	DSN, Slot, Publication, Topic string
	Brokers                       []string
}

// bareMain is the loop's process. It runs until it is killed.
func bareMain(text string) int {
	var cfg bareConfig
	err := json.Unmarshal([]byte(text), &cfg)
	if err == nil {
		err = bareLoop(context.Background(), cfg)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func bareLoop(ctx context.Context, cfg bareConfig) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.DefaultProduceTopic(cfg.Topic), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	connConfig, err := pgconn.ParseConfig(cfg.DSN)
	if err != nil {
		return err
	}
	connConfig.RuntimeParams["replication"] = "database"
	conn, err := pgconn.ConnectConfig(ctx, connConfig)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	err = pglogrepl.StartReplication(ctx, conn, cfg.Slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", fmt.Sprintf("publication_names '%s'", cfg.Publication)}})
	if err != nil {
		return err
	}
	var acks acknowledged
	stop := make(chan struct{})
	var status sync.WaitGroup
	defer status.Wait()
	defer close(stop)
	status.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if lsn := acks.confirmed(); lsn != 0 {
				// Without it the server ends the stream, which the reader sees.
				_ = pglogrepl.SendStandbyStatusUpdate(ctx, conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: lsn})
			}
		}
	})
	for {
		msg, err := conn.Frontend().Receive()
		if err != nil {
			return err
		}
		switch msg := msg.(type) {
		case *pgproto3.CopyData:
			if err := bareMessage(ctx, msg.Data, client, &acks); err != nil {
				return err
			}
		case *pgproto3.ErrorResponse:
			return errors.New(msg.Message)
		}
	}
}

// bareMessage handles one message of the stream.
func bareMessage(ctx context.Context, data []byte, client *kgo.Client, acks *acknowledged) error {
	if len(data) == 0 || data[0] != pglogrepl.XLogDataByteID {
		return nil // a keepalive; statuses go out often enough
	}
	frame, err := pglogrepl.ParseXLogData(data[1:])
	if err != nil {
		return err
	}
	msg, err := pglogrepl.Parse(frame.WALData)
	if err != nil {
		return err
	}
	switch msg := msg.(type) {
	case *pglogrepl.InsertMessage:
		// The table's columns: id, occurred_at, aggregate_id, type, payload, …
		columns := msg.Tuple.Columns
		tx := acks.row()
		client.Produce(ctx, &kgo.Record{Key: columns[2].Data, Value: columns[4].Data,
			Headers: []kgo.RecordHeader{{Key: bareHeader, Value: columns[0].Data}}},
			func(_ *kgo.Record, err error) {
				if err == nil { // else the position stays where it is
					acks.done(tx)
				}
			})
	case *pglogrepl.CommitMessage:
		acks.commit(msg.TransactionEndLSN)
	}
	return nil
}

// acknowledged finds what may be confirmed: the end of the last transaction
// before which every row is acknowledged.
type acknowledged struct {
	mu   sync.Mutex
	open []*transaction // the last one may still grow
	lsn  pglogrepl.LSN
}

type transaction struct {
	end  pglogrepl.LSN // 0 until its commit is read
	rows int           // not yet acknowledged
}

func (a *acknowledged) row() *transaction {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.last()
	t.rows++
	return t
}

// last is the transaction that is being read.
func (a *acknowledged) last() *transaction {
	if n := len(a.open); n > 0 && a.open[n-1].end == 0 {
		return a.open[n-1]
	}
	t := &transaction{}
	a.open = append(a.open, t)
	return t
}

func (a *acknowledged) commit(end pglogrepl.LSN) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last().end = end
	a.advance()
}

func (a *acknowledged) done(t *transaction) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t.rows--
	a.advance()
}

func (a *acknowledged) advance() {
	for len(a.open) > 0 && a.open[0].end != 0 && a.open[0].rows == 0 {
		a.lsn = a.open[0].end
		a.open = a.open[1:]
	}
}

func (a *acknowledged) confirmed() pglogrepl.LSN {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lsn
}
