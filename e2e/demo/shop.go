package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// tables are the order service's own. The outbox is made by tailer init.
const tables = `
CREATE TABLE stock (sku text PRIMARY KEY, quantity int NOT NULL);
CREATE TABLE orders (id bigserial PRIMARY KEY, customer text NOT NULL, total numeric(12,2) NOT NULL, status text NOT NULL);
CREATE TABLE order_lines (order_id bigint NOT NULL REFERENCES orders, sku text NOT NULL REFERENCES stock, quantity int NOT NULL, price numeric(12,2) NOT NULL);
CREATE TABLE payments (order_id bigint NOT NULL REFERENCES orders, amount numeric(12,2) NOT NULL, method text NOT NULL);
INSERT INTO stock SELECT sku, 10000 FROM unnest(ARRAY['keyboard', 'mouse', 'monitor', 'cable', 'lamp']) sku;`

var (
	customers = []string{"Ada", "Grace", "Edsger", "Barbara", "Tony", "Frances", "Donald", "Katherine"}
	methods   = []string{"CARD", "TRANSFER", "WALLET"}
	carriers  = []string{"DHL", "UPS", "PostNord"}
	prices    = map[string]int{"keyboard": 8990, "mouse": 2450, "monitor": 31900, "cable": 799, "lamp": 4200} // cents
	articles  = []string{"keyboard", "mouse", "monitor", "cable", "lamp"}
)

// event is a row of the outbox and what a consumer should make of it.
type event struct {
	typ, key string
	payload  map[string]any
	essence  string // what decoding the published value must give; see describe
	reason   string // why it must become a dead letter; "" when it is valid
}

// shop is the order service: one customer request at a time, each one
// transaction that writes business rows and what happened to the outbox.
type shop struct {
	conn   *pgx.Conn
	ledger *ledger
	rate   float64

	requests int
	mistakes int
	unpaid   []order
	unsent   []order
}

type order struct {
	id    int64
	total int // cents
}

// errDeclined rolls a request back: nothing of it may ever be published.
var errDeclined = errors.New("payment declined")

// run serves requests until ctx ends. A request that has begun is finished, so
// that its fate is known.
func (s *shop) run(ctx context.Context) error {
	next := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(next)):
		}
		n, err := s.request()
		if err != nil {
			return fmt.Errorf("order service: %w", err)
		}
		next = next.Add(time.Duration(float64(n) / s.rate * float64(time.Second)))
		if late := time.Now(); next.Before(late) { // no burst after a pause
			next = late
		}
	}
}

// request is one transaction. It returns how many events it wrote.
func (s *shop) request() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tx, err := s.conn.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback(ctx) // after a commit it does nothing

	s.requests++
	events, err := s.handle(ctx, tx)
	declined := errors.Is(err, errDeclined)
	if err != nil && !declined {
		return 0, err
	}
	ids := make([]string, len(events))
	for i, e := range events {
		payload, err := json.Marshal(e.payload)
		if err != nil {
			return 0, err
		}
		err = tx.QueryRow(ctx, `INSERT INTO outbox (aggregate_id, type, payload) VALUES ($1, $2, $3) RETURNING id::text`,
			e.key, e.typ, payload).Scan(&ids[i])
		if err != nil {
			return 0, err
		}
	}
	fate := s.ledger.begin(ids, events)
	if declined {
		err = tx.Rollback(ctx)
	} else {
		err = tx.Commit(ctx)
	}
	s.ledger.end(fate, err == nil && !declined, time.Now())
	return len(events), err
}

// handle does the business of a request and says what happened. Every eighth
// request comes from a build with a bug, and one payment in eight is declined.
func (s *shop) handle(ctx context.Context, tx pgx.Tx) ([]event, error) {
	if s.requests%8 == 3 {
		return s.mistake(ctx, tx)
	}
	switch n := rand.IntN(10); {
	case n < 3 && len(s.unsent) > 0:
		return s.ship(ctx, tx)
	case n < 7 && len(s.unpaid) > 0:
		return s.pay(ctx, tx)
	}
	return s.place(ctx, tx)
}

func (s *shop) place(ctx context.Context, tx pgx.Tx) ([]event, error) {
	type line struct {
		SKU      string      `json:"sku"`
		Quantity int         `json:"quantity"`
		Price    json.Number `json:"price"`
	}
	customer := pick(customers)
	var lines []line
	var total, items int
	for _, i := range rand.Perm(len(articles))[:1+rand.IntN(2)] {
		sku, quantity := articles[i], 1+rand.IntN(3)
		lines = append(lines, line{sku, quantity, json.Number(money(prices[sku]))})
		total += quantity * prices[sku]
		items += quantity
	}
	o := order{total: total}
	err := tx.QueryRow(ctx, `INSERT INTO orders (customer, total, status) VALUES ($1, $2::text::numeric, 'placed') RETURNING id`,
		customer, money(total)).Scan(&o.id)
	if err != nil {
		return nil, err
	}
	events := []event{{
		typ: "order.placed.v1", key: o.key(),
		payload: map[string]any{"order_id": o.id, "customer": customer, "lines": lines, "total": json.Number(money(total)),
			"currency": "EUR", "placed_at": time.Now().UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)},
		essence: fmt.Sprintf("%s: %s, %s EUR", customer, plural(items, "item"), money(total)),
	}}
	for _, l := range lines {
		_, err := tx.Exec(ctx, `INSERT INTO order_lines VALUES ($1, $2, $3, $4::text::numeric)`, o.id, l.SKU, l.Quantity, string(l.Price))
		if err != nil {
			return nil, err
		}
		var left int
		err = tx.QueryRow(ctx, `UPDATE stock SET quantity = CASE WHEN quantity < 100 THEN 10000 ELSE quantity - $2 END WHERE sku = $1 RETURNING quantity`, l.SKU, l.Quantity).Scan(&left)
		if err != nil {
			return nil, err
		}
		events = append(events, event{
			typ: "stock.reserved.v1", key: l.SKU,
			payload: map[string]any{"sku": l.SKU, "order_id": o.id, "quantity": l.Quantity, "left": left},
			essence: fmt.Sprintf("%d for %s, %d left", l.Quantity, o.key(), left),
		})
	}
	s.unpaid = append(s.unpaid, o)
	return events, nil
}

func (s *shop) pay(ctx context.Context, tx pgx.Tx) ([]event, error) {
	o, rest := s.unpaid[0], s.unpaid[1:]
	method := pick(methods)
	_, err := tx.Exec(ctx, `INSERT INTO payments VALUES ($1, $2::text::numeric, $3)`, o.id, money(o.total), method)
	if err == nil {
		_, err = tx.Exec(ctx, `UPDATE orders SET status = 'paid' WHERE id = $1`, o.id)
	}
	if err != nil {
		return nil, err
	}
	events := []event{{
		typ: "order.paid.v1", key: o.key(),
		payload: map[string]any{"order_id": o.id, "amount": json.Number(money(o.total)), "method": method, "paid_at": time.Now().UTC().UnixMicro()},
		essence: fmt.Sprintf("%s EUR by %s", money(o.total), method),
	}}
	if rand.IntN(8) == 0 {
		return events, errDeclined
	}
	s.unpaid, s.unsent = rest, append(s.unsent, o)
	return events, nil
}

func (s *shop) ship(ctx context.Context, tx pgx.Tx) ([]event, error) {
	o, rest := s.unsent[0], s.unsent[1:]
	var parcel string
	err := tx.QueryRow(ctx, `UPDATE orders SET status = 'shipped' WHERE id = $1 RETURNING gen_random_uuid()::text`, o.id).Scan(&parcel)
	if err != nil {
		return nil, err
	}
	s.unsent = rest
	carrier, day := pick(carriers), time.Now().UTC().AddDate(0, 0, 1+rand.IntN(4)).Format(time.DateOnly)
	return []event{{
		typ: "order.shipped.v1", key: o.key(),
		payload: map[string]any{"order_id": o.id, "carrier": carrier, "parcel": parcel, "expected_on": day},
		essence: fmt.Sprintf("%s, due %s", carrier, day),
	}}, nil
}

// mistake places an order as usual, and with it an event that no consumer
// could read: each kind of bug in its turn.
func (s *shop) mistake(ctx context.Context, tx pgx.Tx) ([]event, error) {
	events, err := s.place(ctx, tx)
	if err != nil {
		return nil, err
	}
	o := s.unpaid[len(s.unpaid)-1]
	wrong := event{key: o.key(), reason: "invalid"}
	switch s.mistakes++; s.mistakes % 4 {
	case 1: // text where a number belongs, deep inside
		wrong.typ = "order.placed.v1"
		wrong.payload = map[string]any{"order_id": o.id, "customer": "Bob", "total": 12.5, "currency": "EUR", "placed_at": 0,
			"lines": []any{map[string]any{"sku": "lamp", "quantity": "two", "price": 12.5}}}
	case 2: // a rounding error that would cost somebody money
		wrong.typ = "order.paid.v1"
		wrong.payload = map[string]any{"order_id": o.id, "amount": json.Number("12.505"), "method": "CARD", "paid_at": 0}
	case 3: // a renamed field
		wrong.typ = "order.shipped.v1"
		wrong.payload = map[string]any{"order_id": o.id, "shipper": "DHL", "parcel": "7f0c0a4e-8f3d-4f3e-9a55-2f6f0d9b6c11", "expected_on": "2030-01-01"}
	default: // a type that nobody wrote a schema for
		wrong.typ, wrong.reason = "order.returned.v1", "no_schema"
		wrong.payload = map[string]any{"order_id": o.id}
	}
	return append(events, wrong), nil
}

func (o order) key() string { return fmt.Sprintf("order-%d", o.id) }

func money(cents int) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

func pick(from []string) string { return from[rand.IntN(len(from))] }
