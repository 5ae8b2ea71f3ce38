package schema

import "math"

// The texts read here are RFC 3339's and its parts. A reader returns the value
// in nanoseconds or days, and a note when the text is not one. Checking the note
// is the caller's only error handling.

const (
	second      = 1_000_000_000
	nanosPerDay = 86400 * second

	noteForm     = "text of another form"
	noteCalendar = "no such day in the calendar"
	noteClock    = "no such time of day"
	noteFiner    = "finer than the unit"
	noteZone     = "no zone (Z or +hh:mm)"
	noteLocal    = "a zone, which a local timestamp does not have"
	noteRange    = "out of range"
)

// two reads two decimal digits, -1 when they are not.
func two(b []byte) int {
	x, y := b[0]-'0', b[1]-'0'
	if x > 9 || y > 9 {
		return -1
	}
	return int(x)*10 + int(y)
}

// readDate reads YYYY-MM-DD into days since 1970-01-01.
func readDate(b []byte) (days int64, note string) {
	if len(b) != 10 || b[4] != '-' || b[7] != '-' {
		return 0, noteForm
	}
	c, y, m, d := two(b), two(b[2:]), two(b[5:]), two(b[8:])
	if c < 0 || y < 0 || m < 0 || d < 0 {
		return 0, noteForm
	}
	y += 100 * c
	if m < 1 || m > 12 || d < 1 || d > daysIn(y, m) {
		return 0, noteCalendar
	}
	return civil(y, m, d), ""
}

func daysIn(y, m int) int {
	switch m {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// civil counts the days from 1970-01-01 in the proleptic Gregorian calendar. The
// year is taken to start in March, so that the leap day comes last.
func civil(y, m, d int) int64 {
	if m <= 2 {
		y--
		m += 12
	}
	era := y / 400
	if y < 0 {
		era = (y - 399) / 400
	}
	yoe := y - era*400
	doy := (153*(m-3)+2)/5 + d - 1
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return int64(era)*146097 + int64(doe) - 719468
}

// readClock reads hh:mm:ss[.fraction] at the start of b into whole seconds and
// nanoseconds, and returns what follows. A fraction finer than a nanosecond has
// nanos -1.
func readClock(b []byte) (secs, nanos int64, rest []byte, note string) {
	if len(b) < 8 || b[2] != ':' || b[5] != ':' {
		return 0, 0, nil, noteForm
	}
	h, m, s := two(b), two(b[3:]), two(b[6:])
	if h < 0 || m < 0 || s < 0 {
		return 0, 0, nil, noteForm
	}
	if h > 23 || m > 59 || s > 59 {
		return 0, 0, nil, noteClock
	}
	secs = int64(h*3600 + m*60 + s)
	rest = b[8:]
	if len(rest) == 0 || rest[0] != '.' {
		return secs, 0, rest, ""
	}
	frac := rest[1 : 1+digits(rest[1:])]
	if len(frac) == 0 {
		return 0, 0, nil, noteForm
	}
	rest = rest[1+len(frac):]
	for i := range max(9, len(frac)) {
		switch {
		case i >= len(frac):
			nanos *= 10
		case i < 9:
			nanos = nanos*10 + int64(frac[i]-'0')
		case frac[i] != '0':
			return secs, -1, rest, ""
		}
	}
	return secs, nanos, rest, ""
}

// readTime reads a time of day in units of unit nanoseconds.
func readTime(b []byte, unit int64) (v int64, note string) {
	secs, nanos, rest, note := readClock(b)
	switch {
	case note != "":
		return 0, note
	case len(rest) > 0:
		return 0, noteForm
	case nanos < 0 || nanos%unit != 0:
		return 0, noteFiner
	}
	return secs*(second/unit) + nanos/unit, ""
}

// readTimestamp reads a timestamp in units of unit nanoseconds since 1970.
func readTimestamp(b []byte, unit int64, local bool) (v int64, note string) {
	if len(b) < 11 {
		return 0, noteForm
	}
	days, note := readDate(b[:10])
	if note != "" {
		return 0, note
	}
	if c := b[10]; c != 'T' && c != 't' && c != ' ' {
		return 0, noteForm
	}
	secs, nanos, rest, note := readClock(b[11:])
	if note != "" {
		return 0, note
	}
	switch {
	case local && len(rest) > 0:
		if _, note := readZone(rest); note != "" {
			return 0, note
		}
		return 0, noteLocal
	case !local:
		offset, note := readZone(rest)
		if note != "" {
			return 0, note
		}
		secs -= offset
	}
	if nanos < 0 || nanos%unit != 0 {
		return 0, noteFiner
	}
	secs += days * 86400
	per := second / unit
	v = secs*per + nanos/unit
	// Only nanoseconds can leave 64 bits within the years 0000 to 9999. The first
	// representable second is a fraction, so it is compared as a fraction.
	if unit == 1 && (secs > math.MaxInt64/second || secs < math.MinInt64/second-1 ||
		secs == math.MaxInt64/second && nanos > math.MaxInt64%second ||
		secs == math.MinInt64/second-1 && nanos < second+math.MinInt64%second) {
		return 0, noteRange
	}
	return v, ""
}

// readZone reads Z or ±hh:mm into seconds east of UTC.
func readZone(b []byte) (secs int64, note string) {
	if len(b) == 0 {
		return 0, noteZone
	}
	if len(b) == 1 && b[0]|0x20 == 'z' {
		return 0, ""
	}
	if len(b) != 6 || b[0] != '+' && b[0] != '-' || b[3] != ':' {
		return 0, noteForm
	}
	h, m := two(b[1:]), two(b[4:])
	if h < 0 || m < 0 || h > 23 || m > 59 {
		return 0, noteForm
	}
	secs = int64(h*3600 + m*60)
	if b[0] == '-' {
		secs = -secs
	}
	return secs, ""
}

// readUUID reads the 36 character form.
func readUUID(b []byte) (id [16]byte, ok bool) {
	if len(b) != 36 || b[8] != '-' || b[13] != '-' || b[18] != '-' || b[23] != '-' {
		return id, false
	}
	n := 0
	for i := 0; i < 36; {
		if b[i] == '-' && (i == 8 || i == 13 || i == 18 || i == 23) {
			i++
			continue
		}
		hi, ok1 := hexDigit(b[i])
		lo, ok2 := hexDigit(b[i+1])
		if !ok1 || !ok2 {
			return id, false
		}
		id[n] = hi<<4 | lo
		n++
		i += 2
	}
	return id, true
}
