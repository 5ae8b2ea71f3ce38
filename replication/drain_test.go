package replication_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tailer-relay/tailer/e2e/postgres"
	"github.com/tailer-relay/tailer/replication"
)

// BenchmarkDrain reads a backlog with Next alone, beside pg_recvlogical on an
// equal slot of the same server (Debian's, which has it), taking turns.
//
//	go test -run '^$' -bench Drain -benchtime 3x ./replication/
func BenchmarkDrain(b *testing.B) {
	const rows = 300_000
	bin := "/usr/lib/postgresql/15/bin"
	if _, err := os.Stat(filepath.Join(bin, "pg_recvlogical")); err != nil {
		b.Skip("no pg_recvlogical of Debian's PostgreSQL 15")
	}
	for _, batch := range []int{1, 100} {
		server, cfg := outbox(b, postgres.Options{Version: "15", Debian: true, TLS: true,
			Settings: map[string]string{"max_wal_size": "4GB", "shared_buffers": "256MB"}})
		fill(b, server, rows, batch)
		end := server.Query1(b, `SELECT pg_current_wal_flush_lsn()`)
		secure := cfg
		secure.DSN = fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=require", server.Port())

		b.Run(fmt.Sprintf("next/batch=%d", batch), func(b *testing.B) { drain(b, server, cfg, rows) })
		b.Run(fmt.Sprintf("tls/batch=%d", batch), func(b *testing.B) { drain(b, server, secure, rows) })
		b.Run(fmt.Sprintf("pg_recvlogical/batch=%d", batch), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				slot := copySlot(b, server)
				b.StartTimer()
				cmd := exec.Command(filepath.Join(bin, "pg_recvlogical"), "-d", server.DSN("postgres"), "-S", slot, "--start",
					"-f", "/dev/null", "-o", "proto_version=1", "-o", "publication_names=tailer", "--endpos", end, "--no-loop")
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("pg_recvlogical: %v\n%s", err, out)
				}
				b.StopTimer()
				usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
				b.ReportMetric(seconds(usage)/rows*1e6, "cpu-s/Mrow")
				server.Exec(b, fmt.Sprintf(`SELECT pg_drop_replication_slot('%s')`, slot))
				b.StartTimer()
			}
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func drain(b *testing.B, server *postgres.Server, cfg replication.Config, rows int) {
	for range b.N {
		b.StopTimer()
		cfg.Slot = copySlot(b, server)
		before := usageNow(b)
		b.StartTimer()
		s := open(b, cfg)
		readRows(b, s, rows)
		b.StopTimer()
		b.ReportMetric((usageNow(b)-before)/float64(rows)*1e6, "cpu-s/Mrow")
		shut(s)
		server.Exec(b, fmt.Sprintf(`SELECT pg_drop_replication_slot('%s')`, cfg.Slot))
		b.StartTimer()
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// fill commits rows of 327 bytes in transactions of batch rows.
func fill(b *testing.B, server *postgres.Server, rows, batch int) {
	server.Exec(b, fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP
		INSERT INTO outbox (payload) SELECT repeat('x', 319) FROM generate_series(1, %d); COMMIT; END LOOP; END $$`, rows/batch, batch))
}

var slots int

// copySlot makes a slot that has the whole backlog before it.
func copySlot(b *testing.B, server *postgres.Server) string {
	slots++
	name := fmt.Sprintf("copy%d", slots)
	server.Exec(b, fmt.Sprintf(`SELECT pg_copy_logical_replication_slot('tailer', '%s')`, name))
	return name
}

func usageNow(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return seconds(&u)
}

func seconds(u *syscall.Rusage) float64 {
	return float64(u.Utime.Nano()+u.Stime.Nano()) / float64(time.Second)
}

// BenchmarkLoneEvent is an insert, its commit and its arrival at an idle
// stream, one after the other.
func BenchmarkLoneEvent(b *testing.B) {
	server, cfg := outbox(b, postgres.Options{})
	s := open(b, cfg)
	conn := server.Conn(b, "postgres")
	var arrival time.Duration
	n := 0
	for b.Loop() {
		if _, err := conn.Exec(b.Context(), `INSERT INTO outbox (payload) VALUES ('x')`); err != nil {
			b.Fatal(err)
		}
		committed := time.Now()
		s.Confirm(readRows(b, s, 1))
		arrival += time.Since(committed)
		n++
	}
	b.ReportMetric(float64(arrival.Microseconds())/float64(n), "us-after-commit")
}
