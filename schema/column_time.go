package schema

import (
	"math"
	"strconv"
)

// Dates and times as PostgreSQL writes them in the ISO style, and the forms
// they leave in. All arithmetic is on the proleptic Gregorian calendar in
// integers, as PostgreSQL's own; time.Time is the oracle in the tests, but
// would cost its parser and a location per row.

// stamp is a parsed date or timestamp. Invariant: the fields are in range and
// the day exists in its month; year is astronomical (1 BC is 0).
type stamp struct {
	year, month, day             int
	hour, minute, second, micros int
	offset                       int // seconds east of UTC
}

const (
	secondsPerDay = 24 * 60 * 60
	microsPerSec  = 1_000_000
)

// What the PostgreSQL JDBC driver, and so Debezium, makes of a timestamp
// that is infinite, in microseconds since 1970.
const (
	jdbcInfinity         = 9223372036825200000
	jdbcNegativeInfinity = -9223372036832400000
)

// parseStamp reads YYYY-MM-DD[( |T)HH:MM:SS[.ffffff][Z|±HH[:MM[:SS]]]][ BC]
// with four to seven digits of year. Without an offset it is taken for UTC.
// More than six digits of a second are refused, not cut.
func parseStamp(text []byte) (s stamp, ok bool) {
	p := stampReader{text: text}
	start := p.pos
	s.year = p.digits(4, 7)
	if p.pos-start > 4 && text[start] == '0' {
		return s, false
	}
	p.byte('-')
	s.month = p.digits(2, 2)
	p.byte('-')
	s.day = p.digits(2, 2)
	if !p.bad && p.pos < len(text) && (text[p.pos] == 'T' || text[p.pos] == ' ' && !p.atBC()) {
		p.pos++
		p.clock(&s)
		p.zone(&s)
	}
	bc := p.atBC()
	if bc {
		p.pos += len(" BC")
	}
	if p.bad || p.pos != len(text) || s.year == 0 {
		return s, false
	}
	if bc {
		s.year = 1 - s.year
	}
	if s.month < 1 || s.month > 12 || s.day < 1 || s.day > daysIn(s.year, s.month) {
		return s, false
	}
	return s, s.hour < 24 && s.minute < 60 && s.second < 60
}

// stampReader reads fixed forms; the first mismatch sets bad, and what follows is
// without meaning.
type stampReader struct {
	text []byte
	pos  int
	bad  bool
}

func (p *stampReader) digits(least, most int) (n int) {
	start := p.pos
	for p.pos < len(p.text) && p.pos-start < most && p.text[p.pos]-'0' <= 9 {
		n = n*10 + int(p.text[p.pos]-'0')
		p.pos++
	}
	if p.pos-start < least {
		p.bad = true
	}
	return n
}

func (p *stampReader) byte(c byte) {
	if p.peek() != c {
		p.bad = true
		return
	}
	p.pos++
}

func (p *stampReader) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

func (p *stampReader) atBC() bool { return string(p.text[p.pos:]) == " BC" }

func (p *stampReader) clock(s *stamp) {
	s.hour = p.digits(2, 2)
	p.byte(':')
	s.minute = p.digits(2, 2)
	p.byte(':')
	s.second = p.digits(2, 2)
	if p.peek() == '.' {
		p.pos++
		start := p.pos
		s.micros = p.digits(1, 6)
		for n := p.pos - start; n < 6; n++ {
			s.micros *= 10
		}
	}
}

func (p *stampReader) zone(s *stamp) {
	sign := 1
	switch p.peek() {
	case 'Z':
		p.pos++
		return
	case '-':
		sign = -1
	case '+':
	default:
		return
	}
	p.pos++
	h := p.digits(2, 2)
	var m, sec int
	if p.peek() == ':' {
		p.pos++
		m = p.digits(2, 2)
		if p.peek() == ':' { // zones of before 1900 have seconds
			p.pos++
			sec = p.digits(2, 2)
		}
	}
	if h > 24 || m > 59 || sec > 59 {
		p.bad = true
	}
	s.offset = sign * (h*3600 + m*60 + sec)
}

// daysPerEra is the length of 400 years, after which the calendar repeats;
// daysToEpoch leads from 0000-03-01, where eras are counted from, to 1970.
const (
	daysPerEra  = 146097
	daysToEpoch = 719468
)

// days counts from 1970-01-01.
func (s *stamp) days() int64 { return civil(s.year, s.month, s.day) }

// setDays is the inverse of days. The year is taken to start in March, so that
// the leap day comes last.
func (s *stamp) setDays(days int64) {
	days += daysToEpoch
	era := floorDiv(days, daysPerEra)
	day := days - era*daysPerEra
	yearOfEra := (day - day/1460 + day/36524 - day/146096) / 365
	dayOfYear := day - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	m := (5*dayOfYear + 2) / 153
	s.day = int(dayOfYear - (153*m+2)/5 + 1)
	s.month = int(m + 3)
	s.year = int(yearOfEra + era*400)
	if s.month > 12 {
		s.month -= 12
		s.year++
	}
}

// seconds counts from 1970-01-01 00:00:00 UTC.
func (s *stamp) seconds() int64 {
	return s.days()*secondsPerDay + int64(s.hour*3600+s.minute*60+s.second-s.offset)
}

// toUTC moves s to offset 0.
func (s *stamp) toUTC() {
	if s.offset == 0 {
		return
	}
	sec := s.seconds()
	days := floorDiv(sec, secondsPerDay)
	rest := int(sec - days*secondsPerDay)
	s.setDays(days)
	s.hour, s.minute, s.second, s.offset = rest/3600, rest/60%60, rest%60, 0
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// appendRFC3339 appends the instant in UTC with six digits; RFC 3339 has the
// years 1 to 9999 only.
func appendRFC3339(dst, text []byte) ([]byte, bool) {
	s, ok := parseStamp(text)
	if !ok {
		return dst, false
	}
	s.toUTC()
	if s.year < 1 || s.year > 9999 {
		return dst, false
	}
	return s.appendISO(dst, 6), true
}

// appendZoned appends the instant as Debezium's ZonedTimestamp does: ISO 8601
// with a sign before a year that four digits cannot hold, and a fixed number
// of digits, 0 meaning none.
func appendZoned(dst, text []byte, digits int) ([]byte, bool) {
	s, ok := parseStamp(text)
	if !ok {
		return dst, false
	}
	s.toUTC()
	switch {
	case s.year < 0:
		dst = append(dst, '-')
		s.year = -s.year
	case s.year > 9999:
		dst = append(dst, '+')
	}
	return s.appendISO(dst, digits), true
}

func (s *stamp) appendISO(dst []byte, digits int) []byte {
	dst = appendPadded(dst, s.year, 4)
	dst = append(dst, '-')
	dst = appendPadded(dst, s.month, 2)
	dst = append(dst, '-')
	dst = appendPadded(dst, s.day, 2)
	dst = append(dst, 'T')
	dst = appendPadded(dst, s.hour, 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, s.minute, 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, s.second, 2)
	if digits > 0 {
		dst = append(dst, '.')
		dst = appendPadded(dst, s.micros, 6)
		dst = dst[:len(dst)-6+digits]
	}
	return append(dst, 'Z')
}

// appendPadded appends n, which is not negative, with at least width digits.
func appendPadded(dst []byte, n, width int) []byte {
	for limit := 10; width > 1; width-- {
		if n < limit {
			for ; width > 1; width-- {
				dst = append(dst, '0')
			}
			break
		}
		limit *= 10
	}
	return strconv.AppendInt(dst, int64(n), 10)
}

// appendDays appends a date as days since 1970.
func appendDays(dst, text []byte) ([]byte, bool) {
	s, ok := parseStamp(text)
	if !ok {
		return dst, false
	}
	return strconv.AppendInt(dst, s.days(), 10), true
}

// appendEpoch appends a timestamp as microseconds since 1970 divided by unit.
// PostgreSQL counts from 2000, so its last 30 years of microseconds have no
// int64 here.
func appendEpoch(dst, text []byte, unit int64) ([]byte, bool) {
	switch string(text) {
	case "infinity":
		return strconv.AppendInt(dst, jdbcInfinity/unit, 10), true
	case "-infinity":
		return strconv.AppendInt(dst, jdbcNegativeInfinity/unit, 10), true
	}
	s, ok := parseStamp(text)
	if !ok {
		return dst, false
	}
	sec := s.seconds()
	if sec > math.MaxInt64/microsPerSec-1 {
		return dst, false
	}
	return strconv.AppendInt(dst, floorDiv(sec*microsPerSec+int64(s.micros), unit), 10), true
}

// appendDayTime appends HH:MM:SS[.ffffff] as microseconds of the day, or as
// milliseconds where digits is 3. 24:00:00 is a time of day in PostgreSQL.
func appendDayTime(dst, text []byte, digits int) ([]byte, bool) {
	var s stamp
	p := stampReader{text: text}
	p.clock(&s)
	sum := int64(s.hour*3600+s.minute*60+s.second)*microsPerSec + int64(s.micros)
	if p.bad || p.pos != len(text) || s.minute > 59 || s.second > 59 || sum > secondsPerDay*microsPerSec {
		return dst, false
	}
	if digits == 3 {
		sum /= 1000
	}
	return strconv.AppendInt(dst, sum, 10), true
}
