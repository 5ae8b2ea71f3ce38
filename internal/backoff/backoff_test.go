package backoff

import (
	"testing"
	"time"
)

func TestPause(t *testing.T) {
	const least, most = 100 * time.Millisecond, 5 * time.Second
	for failures, want := range map[int]time.Duration{
		0: least, 1: least, 2: 200 * time.Millisecond, 6: 3200 * time.Millisecond, 7: most, 1 << 40: most,
	} {
		low, high := most*2, time.Duration(0)
		for range 1000 {
			d := Pause(failures, least, most)
			low, high = min(low, d), max(high, d)
		}
		if low < want*4/5 || high > want*6/5 {
			t.Errorf("%d failures: %v to %v, want %v give or take a fifth", failures, low, high, want)
		}
		if high-low < want/5 {
			t.Errorf("%d failures: %v to %v is no spread", failures, low, high)
		}
	}
	if d := Pause(9, time.Minute, time.Second); d > 1200*time.Millisecond {
		t.Errorf("%v is more than the most", d)
	}
	if d := Pause(1, 0, 0); d != 0 {
		t.Errorf("no pause is %v", d)
	}
}
