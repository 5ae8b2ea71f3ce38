package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// WriteOptions describe a load. The zero value is three writers, each as fast as
// it can, with transactions of 1 to 500 rows over several keys, a fifth of them
// rolled back, a third with savepoints, a tenth by COPY.
type WriteOptions struct {
	Writers int
	MaxRows int           // of a transaction; they are spread over the orders of magnitude
	Bytes   int           // of padding in a payload
	Pause   time.Duration // between a writer's transactions, on average
	Plain   bool          // only INSERT and COMMIT
	Seed    uint64        // for the same choices again; 0: others each time
}

// Writers is a running load. It rides out a server that goes away.
type Writers struct {
	t    testing.TB
	l    *Ledger
	opt  WriteOptions
	stop context.CancelFunc
	wg   sync.WaitGroup

	transactions, rows atomic.Int64

	mu  sync.Mutex
	err error // the first error that no outage explains
}

// Write starts a load; Stop or the test's end stops it.
func (l *Ledger) Write(t testing.TB, opt WriteOptions) *Writers {
	t.Helper()
	if opt.Writers == 0 {
		opt.Writers = 3
	}
	if opt.MaxRows == 0 {
		opt.MaxRows = 500
	}
	if opt.Seed == 0 {
		opt.Seed = rand.Uint64()
	}
	t.Logf("writers start with seed %d", opt.Seed)
	ctx, stop := context.WithCancel(context.Background())
	w := &Writers{t: t, l: l, opt: opt, stop: stop}
	for i := range opt.Writers {
		rng := rand.New(rand.NewPCG(opt.Seed, uint64(i)))
		w.wg.Go(func() { w.loop(ctx, rng) })
	}
	t.Cleanup(func() {
		w.stop()
		w.wg.Wait()
	})
	return w
}

// Stop ends the load after each writer's current transaction, and fails the
// test if a writer failed for a reason of its own.
func (w *Writers) Stop() {
	w.t.Helper()
	w.stop()
	w.wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		w.t.Fatalf("a writer: %v", w.err)
	}
	w.t.Logf("%d transactions committed with %d rows", w.Transactions(), w.Rows())
}

// Transactions is how many commits were answered; the database may have more.
func (w *Writers) Transactions() int64 { return w.transactions.Load() }

// Rows is how many rows those had.
func (w *Writers) Rows() int64 { return w.rows.Load() }

// WaitRows waits until so many rows are committed.
func (w *Writers) WaitRows(n int64, limit time.Duration) {
	w.t.Helper()
	Eventually(w.t, limit, fmt.Sprintf("%d committed rows", n), func() bool { return w.Rows() >= n })
}

func (w *Writers) loop(ctx context.Context, rng *rand.Rand) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			conn.Close(context.Background())
		}
	}()
	for ctx.Err() == nil {
		// Not under ctx: a stop lets the transaction end, and every answer
		// of a living server comes well within this.
		try, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		var err error
		if conn == nil || conn.IsClosed() {
			conn, err = pgx.Connect(try, w.l.DSN())
		}
		var rows int
		if err == nil {
			rows, err = w.transaction(try, conn, rng)
		}
		cancel()
		switch {
		case err == nil && rows > 0:
			w.transactions.Add(1)
			w.rows.Add(int64(rows))
		case err != nil && !outage(err):
			w.mu.Lock()
			if w.err == nil {
				w.err = err
			}
			w.mu.Unlock()
			return
		case err != nil:
			if conn != nil {
				conn.Close(context.Background())
			}
		}
		pause := 50 * time.Millisecond
		if err == nil {
			pause = time.Duration(rng.Float64() * 2 * float64(w.opt.Pause))
		}
		if pause > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
}

// outage tells a server that goes away from a statement that is wrong. A wrong
// one has an SQLSTATE of another class than shutdown (57P) and connection (08, 53).
func outage(err error) bool {
	var state interface{ SQLState() string }
	if !errors.As(err, &state) {
		return true
	}
	code := state.SQLState()
	return strings.HasPrefix(code, "57P") || strings.HasPrefix(code, "08") || strings.HasPrefix(code, "53")
}

// transaction runs one, and returns how many rows it committed.
func (w *Writers) transaction(ctx context.Context, conn *pgx.Conn, rng *rand.Rand) (rows int, err error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			tx.Rollback(context.Background()) // without effect on a lost connection
		}
	}()
	keys := w.lockedKeys(rng)
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = keyName(key)
	}
	// In one order, so that writers wait for each other instead of deadlocking.
	if _, err := tx.Exec(ctx, "SELECT 1 FROM counter WHERE key = ANY($1) ORDER BY key FOR UPDATE", names); err != nil {
		return 0, err
	}
	// Spread over the orders of magnitude: most transactions are small.
	left := w.opt.MaxRows
	for left > 1 && rng.IntN(2) == 0 {
		left = (left + 2) / 3
	}
	left = 1 + rng.IntN(left)
	for left > 0 {
		n := min(left, 1+rng.IntN(50))
		left -= n
		key := keys[rng.IntN(len(keys))]
		if w.opt.Plain || rng.IntN(3) > 0 {
			if err := w.insert(ctx, tx, rng, key, n); err != nil {
				return 0, err
			}
			rows += n
			continue
		}
		// A savepoint, half of them rolled back with what they drew.
		inner, err := tx.Begin(ctx)
		if err != nil {
			return 0, err
		}
		if err := w.insert(ctx, inner, rng, key, n); err != nil {
			return 0, err
		}
		if rng.IntN(2) == 0 {
			if err := inner.Rollback(ctx); err != nil {
				return 0, err
			}
			continue
		}
		if err := inner.Commit(ctx); err != nil {
			return 0, err
		}
		rows += n
	}
	if !w.opt.Plain && rng.IntN(5) == 0 {
		return 0, tx.Rollback(ctx)
	}
	return rows, tx.Commit(ctx)
}

// lockedKeys draws the keys of a transaction, in the order of their names.
func (w *Writers) lockedKeys(rng *rand.Rand) []int {
	drawn := rng.Perm(w.l.opt.Keys)[:min(w.l.opt.Keys, 1+rng.IntN(3))]
	slices.SortFunc(drawn, func(a, b int) int { return strings.Compare(keyName(a), keyName(b)) })
	return drawn
}

func keyName(key int) string { return fmt.Sprintf("key-%d", key) }

const draw = "UPDATE counter SET n = n + $2 WHERE key = $1 RETURNING n - $2"

// insert writes n events of a key, by one INSERT or by COPY.
func (w *Writers) insert(ctx context.Context, tx pgx.Tx, rng *rand.Rand, key, n int) error {
	name, typ := keyName(key), w.l.typeOf(key)
	if w.opt.Plain || rng.IntN(10) > 0 {
		_, err := tx.Exec(ctx, `WITH drawn (before) AS (`+draw+`)
			INSERT INTO outbox (aggregate_id, type, payload)
			SELECT $1, $3, jsonb_build_object('key', $1::text, 'n', before + g, 'pad', repeat('x', $4))
			FROM drawn, generate_series(1, $2::bigint) g`, name, int64(n), typ, w.opt.Bytes)
		return err
	}
	var before int64
	if err := tx.QueryRow(ctx, draw, name, int64(n)).Scan(&before); err != nil {
		return err
	}
	pad := strings.Repeat("x", w.opt.Bytes)
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"outbox"}, []string{"aggregate_id", "type", "payload"},
		pgx.CopyFromSlice(n, func(i int) ([]any, error) {
			return []any{name, typ, map[string]any{"key": name, "n": before + int64(i) + 1, "pad": pad}}, nil
		}))
	return err
}

// Insert commits n events of the ledger in one transaction, from a key's number.
func (l *Ledger) Insert(t testing.TB, key, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, l.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	w := &Writers{l: l, opt: WriteOptions{Plain: true}}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return w.insert(ctx, tx, nil, key, n) })
	if err != nil {
		t.Fatalf("insert %d events of %s: %v", n, keyName(key), err)
	}
}
