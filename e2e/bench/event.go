package main

import (
	"crypto/md5"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// eventType has a schema of an ordinary order: numbers, decimals, an enum, a
// list of records, a union with null.
const eventType = "order.placed.v1"

//go:embed order.placed.v1.avsc
var eventSchema string

// payloadSize is the size of every payload, as jsonb prints it.
const payloadSize = 327

// payloadTemplate is a payload in jsonb's own order and spacing. {n} has ten
// digits and {r} sixteen hexadecimal ones, which differ from event to event so
// that compression has something to do.
const payloadTemplate = `{"note": null, "lines": [{"sku": "KB41", "price": "9.90", "quantity": 1}, {"sku": "CB7", "price": "7.99", "quantity": 3}], "total": "33.87", "payment": "{r}", "ship_to": {"zip": "53111", "city": "Bonn"}, "currency": "EUR", "customer": "c{n}", "order_id": {n}, "placed_at": "2026-11-05T09:12:44.123Z"}`

// firstOrder makes every number ten digits long.
const firstOrder = 1_000_000_000

// keys is how many aggregates the events belong to.
const keys = 20_000

func payload(i int) string {
	sum := md5.Sum([]byte(strconv.Itoa(i)))
	return strings.NewReplacer("{n}", strconv.Itoa(firstOrder+i), "{r}", fmt.Sprintf("%x", sum[:8])).Replace(payloadTemplate)
}

// payloadSQL is payload(i) for a column i.
func payloadSQL(i string) string {
	return fmt.Sprintf("replace(replace('%s', '{n}', (%d + %s)::text), '{r}', left(md5(%s::text), 16))::jsonb", payloadTemplate, firstOrder, i, i)
}

// loadSQL writes the events from first up to and without end, so many rows a
// transaction.
func loadSQL(first, end, rows int) string {
	return fmt.Sprintf(`DO $$
BEGIN
	FOR low IN %d .. %d BY %d LOOP
		INSERT INTO outbox (aggregate_id, type, payload)
		SELECT 'order-' || i %% %d, '%s', %s
		FROM generate_series(low, least(low + %d, %d)) i;
		COMMIT;
	END LOOP;
END $$`, first, end-1, rows, keys, eventType, payloadSQL("i"), rows-1, end-1)
}
