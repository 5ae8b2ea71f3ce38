package schema

import (
	"encoding/hex"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tailer-relay/tailer/decoder"
)

// How a column's text becomes a value.
//
// The server sends every value in its type's output form, under the session
// parameters of the replication connection: ISO dates in UTC, hex bytea. That
// text stands as it is, whatever the type, with these exceptions:
//
//   - bpchar loses its padding, as a cast to text would do (under Debezium not
//     in id, key and header columns: the router sends the padding);
//   - a bytea payload becomes the bytes themselves;
//   - an hstore in the headers role becomes a JSON object;
//   - boolean header columns are true and false, timestamptz ones RFC 3339 in
//     UTC with six digits;
//   - under Debezium, date header columns are days since 1970, timestamp ones
//     microseconds since 1970 (milliseconds where declared with a precision up
//     to 3), time ones microseconds of the day (likewise), and timestamptz ones
//     ISO 8601 with Z and as many digits as declared, six by default.
//
// A value without such a form stands as its text: infinity in a date or
// timestamptz, NaN in a numeric. infinity in a timestamp is, as with Debezium,
// a number: that of the PostgreSQL JDBC driver. BC and years above 9999 have
// Debezium forms (numbers, or ISO 8601 with a signed year), but no RFC 3339.
// Debezium's renderings of floats, intervals, timetz and arrays are Java's and
// not imitated: they stand as PostgreSQL writes them.
//
// A relation names a domain, an enum or an extension's type by its own OID,
// not the base type's (the base type's name comes in a Type message, which is
// not needed here). Such columns are text; in the occurred_at role they are
// read as a timestamp where they look like one.

// firstUserOID is where the OIDs of what users create begin: domains, enums
// and the types of extensions.
const firstUserOID = 16384

type format uint8

const (
	formatText    format = iota
	formatInstant        // occurred_at: text, and beside it an instant where it has one
	formatTrim
	formatBytes
	formatHstore
	formatBool
	formatRFC3339
	formatDays    // Debezium, date
	formatMicros  // Debezium, timestamp
	formatMillis  // Debezium, timestamp(0..3)
	formatZoned   // Debezium, timestamptz
	formatDayTime // Debezium, time: digits 6 for microseconds, 3 for milliseconds
)

func identityFormat(oid uint32, debezium bool) format {
	if debezium {
		return formatText
	}
	return textFormat(oid, debezium)
}

func textFormat(oid uint32, _ bool) format {
	if oid == pgtype.BPCharOID {
		return formatTrim
	}
	return formatText
}

func payloadFormat(oid uint32, _ bool) format {
	if oid == pgtype.ByteaOID {
		return formatBytes
	}
	return formatText
}

func documentFormat(oid uint32, _ bool) format {
	if oid >= firstUserOID {
		return formatHstore
	}
	return formatText
}

func instantFormat(oid uint32, _ bool) format {
	switch oid {
	case pgtype.TimestamptzOID, pgtype.TimestampOID, pgtype.DateOID, pgtype.TextOID, pgtype.VarcharOID, pgtype.BPCharOID:
		return formatInstant
	}
	if oid >= firstUserOID {
		return formatInstant
	}
	return formatText
}

func headerFormat(col decoder.RelationColumn, debezium bool) (format, int) {
	if !debezium {
		switch col.TypeOID {
		case pgtype.TimestamptzOID:
			return formatRFC3339, 0
		case pgtype.BPCharOID:
			return formatTrim, 0
		case pgtype.BoolOID:
			return formatBool, 0
		}
		return formatText, 0
	}
	precision := 6
	if m := col.TypeModifier; m >= 0 && m < 6 {
		precision = int(m)
	}
	switch col.TypeOID {
	case pgtype.BoolOID:
		return formatBool, 0
	case pgtype.DateOID:
		return formatDays, 0
	case pgtype.TimestampOID:
		if precision <= 3 {
			return formatMillis, 0
		}
		return formatMicros, 0
	case pgtype.TimestamptzOID:
		return formatZoned, precision
	case pgtype.TimeOID:
		if precision <= 3 {
			return formatDayTime, 3
		}
		return formatDayTime, 6
	}
	return formatText, 0
}

// append renders text; ok is false where the value has no such form and
// stands as its text.
func (f format) append(dst, text []byte, digits int) (out []byte, ok bool) {
	switch f {
	case formatBytes:
		if len(text) < 2 || text[0] != '\\' || text[1] != 'x' {
			return dst, false
		}
		out, err := hex.AppendDecode(dst, text[2:])
		return out, err == nil
	case formatHstore:
		return appendHstoreJSON(dst, text)
	case formatBool:
		switch string(text) {
		case "t":
			return append(dst, "true"...), true
		case "f":
			return append(dst, "false"...), true
		}
		return dst, false
	case formatRFC3339:
		return appendRFC3339(dst, text)
	case formatDays:
		return appendDays(dst, text)
	case formatMicros:
		return appendEpoch(dst, text, 1)
	case formatMillis:
		return appendEpoch(dst, text, 1000)
	case formatZoned:
		return appendZoned(dst, text, digits)
	case formatDayTime:
		return appendDayTime(dst, text, digits)
	}
	return dst, false
}

// trimBlanks drops the blanks that pad a bpchar.
func trimBlanks(text []byte) []byte {
	n := len(text)
	for n > 0 && text[n-1] == ' ' {
		n--
	}
	return text[:n:n]
}
