package schema

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestRFC3339(t *testing.T) {
	for _, c := range []struct{ text, want string }{ // want "": no such form
		{"2026-01-02 03:04:05.678901+00", "2026-01-02T03:04:05.678901Z"},
		{"2026-01-02 03:04:05+00", "2026-01-02T03:04:05.000000Z"},
		{"2026-01-02 03:04:05.6+00", "2026-01-02T03:04:05.600000Z"},
		{"2026-01-02 03:04:05.000001+05:30", "2026-01-01T21:34:05.000001Z"},
		{"2025-12-31 23:59:59-00:30", "2026-01-01T00:29:59.000000Z"},
		{"1890-01-01 00:00:00+00:19:32", "1889-12-31T23:40:28.000000Z"},
		{"2026-01-02 03:04:05.678901", "2026-01-02T03:04:05.678901Z"},
		{"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000Z"},
		{"2026-01-02", "2026-01-02T00:00:00.000000Z"},
		{"0001-01-01 00:00:00+00", "0001-01-01T00:00:00.000000Z"},
		{"9999-12-31 23:59:59.999999+00", "9999-12-31T23:59:59.999999Z"},
		{"1500-02-28 12:00:00+00", "1500-02-28T12:00:00.000000Z"},
		{"2000-02-29 00:00:00+00", "2000-02-29T00:00:00.000000Z"},
		{"infinity", ""},
		{"-infinity", ""},
		{"0044-03-15 12:00:00+00 BC", ""},
		{"0044-03-15 BC", ""},
		{"10000-01-01 00:00:00+00", ""},
		{"294276-12-31 23:59:59.999999+00", ""},
		{"9999-12-31 23:59:59-01", ""}, // in UTC it is year 10000
		{"0001-01-01 00:00:00+01", ""}, // in UTC it is year 0
		{"2026-02-30 00:00:00+00", ""},
		{"1900-02-29 00:00:00+00", ""},
		{"2026-13-01 00:00:00+00", ""},
		{"2026-01-02 24:00:00+00", ""},
		{"2026-01-02 03:60:05+00", ""},
		{"2026-01-02 03:04:60+00", ""},
		{"2026-01-02 03:04:05.1234567+00", ""},
		{"2026-01-02 03:04:05.+00", ""},
		{"2026-01-02 03:04:05+0", ""},
		{"2026-01-02 03:04:05+00x", ""},
		{"2026-01-02 03:04", ""},
		{"2026-01-02 ", ""},
		{"02026-01-02", ""},
		{"0000-01-01", ""},
		{"26-01-02", ""},
		{"1767323045", ""},
		{"now", ""},
	} {
		got, ok := appendRFC3339([]byte("x"), []byte(c.text))
		if ok != (c.want != "") || string(got) != "x"+c.want {
			t.Errorf("%q: got %q, %v; want %q", c.text, got, ok, c.want)
		}
	}
}

func TestDebeziumTimes(t *testing.T) {
	zoned := func(digits int) func(dst, text []byte) ([]byte, bool) {
		return func(dst, text []byte) ([]byte, bool) { return appendZoned(dst, text, digits) }
	}
	epoch := func(unit int64) func(dst, text []byte) ([]byte, bool) {
		return func(dst, text []byte) ([]byte, bool) { return appendEpoch(dst, text, unit) }
	}
	dayTime := func(digits int) func(dst, text []byte) ([]byte, bool) {
		return func(dst, text []byte) ([]byte, bool) { return appendDayTime(dst, text, digits) }
	}
	for _, c := range []struct {
		name       string
		f          func(dst, text []byte) ([]byte, bool)
		text, want string
	}{
		{"date", appendDays, "2026-01-02", "20455"},
		{"date", appendDays, "1970-01-01", "0"},
		{"date", appendDays, "1969-12-31", "-1"},
		{"date", appendDays, "9999-12-31", "2932896"},
		{"date", appendDays, "0001-01-01", "-719162"},
		{"date", appendDays, "0001-12-31 BC", "-719163"},
		{"date", appendDays, "4713-01-01 BC", "-2440550"},
		{"date", appendDays, "5874897-12-31", "2145042905"}, // PostgreSQL's last date
		{"date", appendDays, "infinity", ""},
		{"timestamp", epoch(1), "2026-01-02 03:04:05.678901", "1767323045678901"},
		{"timestamp", epoch(1), "0001-01-01 00:00:00", "-62135596800000000"},
		{"timestamp", epoch(1), "1969-12-31 23:59:59.999999", "-1"},
		{"timestamp", epoch(1), "0001-12-31 23:59:59.999999 BC", "-62135596800000001"},
		{"timestamp", epoch(1), "294246-12-31 23:59:59.999999", "9223371244799999999"},
		{"timestamp", epoch(1), "294276-12-31 23:59:59.999999", ""}, // beyond int64
		{"timestamp", epoch(1), "infinity", "9223372036825200000"},
		{"timestamp", epoch(1), "-infinity", "-9223372036832400000"},
		{"timestamp(3)", epoch(1000), "2026-01-02 03:04:05.678", "1767323045678"},
		{"timestamp(3)", epoch(1000), "1969-12-31 23:59:59.999", "-1"},
		{"timestamptz", zoned(6), "2026-01-02 03:04:05.678901+00", "2026-01-02T03:04:05.678901Z"},
		{"timestamptz", zoned(6), "2026-01-02 03:04:05+00", "2026-01-02T03:04:05.000000Z"},
		{"timestamptz(3)", zoned(3), "2026-01-02 03:04:05.6+00", "2026-01-02T03:04:05.600Z"},
		{"timestamptz(0)", zoned(0), "2026-01-02 03:04:05+02", "2026-01-02T01:04:05Z"},
		{"timestamptz", zoned(6), "1969-12-31 23:59:59.999999+00", "1969-12-31T23:59:59.999999Z"},
		{"timestamptz", zoned(6), "10000-01-01 00:00:00+00", "+10000-01-01T00:00:00.000000Z"},
		{"timestamptz", zoned(6), "0044-03-15 12:00:00+00 BC", "-0043-03-15T12:00:00.000000Z"},
		{"timestamptz", zoned(6), "infinity", ""},
		{"time", dayTime(6), "00:00:00", "0"},
		{"time", dayTime(6), "03:04:05.678901", "11045678901"},
		{"time", dayTime(6), "24:00:00", "86400000000"},
		{"time", dayTime(6), "24:00:01", ""},
		{"time", dayTime(6), "03:04", ""},
		{"time(3)", dayTime(3), "03:04:05.678", "11045678"},
	} {
		got, ok := c.f(nil, []byte(c.text))
		if ok != (c.want != "") || string(got) != c.want {
			t.Errorf("%s %q: got %q, %v; want %q", c.name, c.text, got, ok, c.want)
		}
	}
}

// TestDaysAgainstTime walks the calendar beside time.Time, both ways.
func TestDaysAgainstTime(t *testing.T) {
	at := time.Date(-4713, 1, 1, 0, 0, 0, 0, time.UTC)
	days := at.Unix() / secondsPerDay
	for ; at.Year() < 12000; at, days = at.AddDate(0, 0, 97), days+97 {
		s := stamp{year: at.Year(), month: int(at.Month()), day: at.Day()}
		if got := s.days(); got != days {
			t.Fatalf("%v: %d days, want %d", at, got, days)
		}
		var back stamp
		back.setDays(days)
		if back != s {
			t.Fatalf("day %d: %+v, want %+v", days, back, s)
		}
	}
}

// FuzzStamp gives any instant, as PostgreSQL would write it, to the formatters
// and compares with time.Time.
func FuzzStamp(f *testing.F) {
	for _, v := range []int64{0, -1, 1767323045678901, -62135596800000000, -62135596800000001, 253402300799999999, 253402300800000000, 9223371244799999999, -210866803200000000} {
		f.Add(v, 0)
		f.Add(v, 19800)
		f.Add(v, -3599)
	}
	f.Fuzz(func(t *testing.T, micros int64, offset int) {
		if micros < -210866803200000000 || micros > 9223371244799999999 {
			t.Skip() // outside of PostgreSQL's timestamps, or of int64 here
		}
		offset %= 16 * 3600
		at := time.UnixMicro(micros).UTC()
		local := at.In(time.FixedZone("", offset))
		year, bc := local.Year(), ""
		if year <= 0 {
			year, bc = 1-year, " BC"
		}
		clock := strings.TrimSuffix(strings.TrimRight(local.Format("-01-02 15:04:05.000000"), "0"), ".")
		if local.Nanosecond() == 0 {
			clock = local.Format("-01-02 15:04:05")
		}
		zone, abs := "+", offset
		if offset < 0 {
			zone, abs = "-", -offset
		}
		zone += fmt.Sprintf("%02d", abs/3600)
		if abs%3600 != 0 {
			zone += fmt.Sprintf(":%02d", abs/60%60)
		}
		if abs%60 != 0 {
			zone += fmt.Sprintf(":%02d", abs%60)
		}
		text := fmt.Sprintf("%04d%s%s%s", year, clock, zone, bc)

		got, ok := appendEpoch(nil, []byte(text), 1)
		if want := strconv.FormatInt(micros, 10); !ok || string(got) != want {
			t.Errorf("%q: %q, %v; want %s", text, got, ok, want)
		}
		got, ok = appendRFC3339(nil, []byte(text))
		if want := at.Format("2006-01-02T15:04:05.000000Z"); at.Year() >= 1 && at.Year() <= 9999 {
			if !ok || string(got) != want {
				t.Errorf("%q: %q, %v; want %s", text, got, ok, want)
			}
		} else if ok {
			t.Errorf("%q: %q, but RFC 3339 has no year %d", text, got, at.Year())
		}
		if _, ok := appendZoned(nil, []byte(text), 6); !ok {
			t.Errorf("%q: no ISO form", text)
		}
	})
}

// FuzzStampText gives any text; whatever time.Parse reads in PostgreSQL's
// form must be read alike, and nothing may panic.
func FuzzStampText(f *testing.F) {
	for _, s := range []string{"", "infinity", "2026-01-02 03:04:05.678901+00", "0044-03-15 BC", "2026-01-02T03:04:05Z", "10000-01-01", "2026-01-02 03:04:05+05:30:10 BC"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := appendRFC3339(nil, []byte(text))
		appendDays(nil, []byte(text))
		appendDayTime(nil, []byte(text), 6)
		if !ok {
			return
		}
		back, err := time.Parse("2006-01-02T15:04:05.000000Z", string(got))
		if err != nil {
			t.Fatalf("%q became %q: %v", text, got, err)
		}
		for _, layout := range []string{"2006-01-02 15:04:05Z07", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05Z07:00:00", "2006-01-02 15:04:05", "2006-01-02"} {
			if want, err := time.Parse(layout, text); err == nil && !want.Equal(back) {
				t.Errorf("%q became %q, want %v", text, got, want.UTC())
			}
		}
	})
}
