package sink

import (
	"regexp"
	"strings"
	"testing"
)

func TestRoute(t *testing.T) {
	long := strings.Repeat("x", 250)
	for _, c := range []struct {
		name     string
		template string
		fallback string
		typ, agg string // "-" is NULL
		topic    string
		reason   Reason
	}{
		{"domain", "{domain}", "", "orders.placed.v1", "-", "orders", ""},
		{"default template", "", "", "orders.placed.v12", "-", "orders", ""},
		{"all of a type", "ev.{domain}-{event}_{version}", "", "orders.placed.v1", "-", "ev.orders-placed_v1", ""},
		{"whole type", "{type}", "", "orders.placed.v1", "-", "orders.placed.v1", ""},
		{"any type as a whole", "{type}", "", "OrderPlaced", "-", "OrderPlaced", ""},
		{"literal", "events", "", "-", "-", "events", ""},
		{"role", "outbox.event.{aggregatetype}", "", "Whatever it is", "Order.Sub", "outbox.event.Order.Sub", ""},
		{"role twice", "{aggregatetype}.{aggregatetype}", "", "-", "a", "a.a", ""},
		{"version 0", "{domain}", "", "a.b.v0", "-", "a", ""},
		{"two parts", "{domain}", "", "orders.placed", "-", "", ReasonUnroutable},
		{"one part", "{domain}", "", "orders", "-", "", ReasonUnroutable},
		{"four parts", "{domain}", "", "com.orders.placed.v1", "-", "", ReasonUnroutable},
		{"no number", "{domain}", "", "orders.placed.v", "-", "", ReasonUnroutable},
		{"no version", "{event}", "", "orders.placed.1", "-", "", ReasonUnroutable},
		{"leading zero", "{version}", "", "orders.placed.v01", "-", "", ReasonUnroutable},
		{"minor version", "{domain}", "", "orders.placed.v1.2", "-", "", ReasonUnroutable},
		{"sign", "{domain}", "", "orders.placed.v-1", "-", "", ReasonUnroutable},
		{"upper case v", "{domain}", "", "orders.placed.V1", "-", "", ReasonUnroutable},
		{"empty domain", "{domain}", "", ".placed.v1", "-", "", ReasonUnroutable},
		{"empty event", "{domain}", "", "orders..v1", "-", "", ReasonUnroutable},
		{"empty type", "{domain}", "", "", "-", "", ReasonUnroutable},
		{"NULL type", "{domain}", "", "-", "-", "", ReasonUnroutable},
		{"NULL role", "x.{aggregatetype}", "", "orders.placed.v1", "-", "", ReasonUnroutable},
		{"fallback for a shape", "{domain}", "misc", "orders", "-", "misc", ""},
		{"fallback for a NULL type", "{type}", "misc", "-", "-", "misc", ""},
		{"fallback for a NULL role", "{aggregatetype}", "misc", "orders.placed.v1", "-", "misc", ""},
		{"space", "{domain}", "misc", "or ders.placed.v1", "-", "or ders", ReasonInvalidTopic},
		{"slash", "{aggregatetype}", "", "-", "a/b", "a/b", ReasonInvalidTopic},
		{"letters of others", "{domain}", "", "订单.placed.v1", "-", "订单", ReasonInvalidTopic},
		{"not UTF-8", "{aggregatetype}", "", "-", "a\xff", "a\xff", ReasonInvalidTopic},
		{"zero byte", "{aggregatetype}", "", "-", "a\x00", "a\x00", ReasonInvalidTopic},
		{"braces in a value", "{aggregatetype}", "", "x.y.v1", "{domain}", "{domain}", ReasonInvalidTopic},
		{"dot", "{aggregatetype}", "", "-", ".", ".", ReasonInvalidTopic},
		{"dots", "{aggregatetype}{aggregatetype}", "", "-", ".", "..", ReasonInvalidTopic},
		{"three dots", "{aggregatetype}", "", "-", "...", "...", ""},
		{"empty", "{aggregatetype}", "", "-", "", "", ReasonInvalidTopic},
		{"empty part", "x.{aggregatetype}", "", "-", "", "x.", ""},
		{"as long as may be", "{aggregatetype}", "", "-", long[:249], long[:249], ""},
		{"too long", "{aggregatetype}", "", "-", long, long, ReasonInvalidTopic},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := newRouter(BatchConfig{Topic: c.template, DefaultTopic: c.fallback})
			if err != nil {
				t.Fatal(err)
			}
			ev := &Event{}
			if c.typ != "-" {
				ev.Type = []byte(c.typ)
			}
			if c.agg != "-" {
				ev.AggregateType = []byte(c.agg)
			}
			for range 2 { // the second time from what is known
				topic, rej := r.topic(ev)
				if topic != c.topic {
					t.Errorf("topic %q, want %q", topic, c.topic)
				}
				switch {
				case rej == nil && c.reason != "":
					t.Errorf("no rejection, want %s", c.reason)
				case rej != nil && rej.Reason != c.reason:
					t.Errorf("rejected: %v, want %q", rej, c.reason)
				}
			}
		})
	}
}

func TestRouteByRole(t *testing.T) {
	ev := order()
	for role, topic := range map[string]string{
		"id": "e-1", "key": "42", "type": "orders.placed.v1", "aggregatetype": "order", "tenant": "acme",
		"correlation_id": "corr", "causation_id": "cause", "traceparent": string(ev.Traceparent),
	} {
		r, err := newRouter(BatchConfig{Topic: "{" + role + "}"})
		if err != nil {
			t.Errorf("%s: %v", role, err)
			continue
		}
		if got, rej := r.topic(ev); got != topic || rej != nil {
			t.Errorf("%s: topic %q (%v), want %q", role, got, rej, topic)
		}
	}
}

func TestTypeTopicWins(t *testing.T) {
	r, err := newRouter(BatchConfig{
		Topic: "{domain}", DefaultTopic: "misc",
		TypeTopics: map[string]string{"orders.placed.v1": "special", "order placed!": "odd", "orders.gone.v1": ""},
	})
	if err != nil {
		t.Fatal(err)
	}
	for typ, topic := range map[string]string{
		"orders.placed.v1": "special", "order placed!": "odd", "orders.gone.v1": "orders", "orders.placed.v2": "orders", "x": "misc",
	} {
		if got, rej := r.topic(&Event{Type: []byte(typ)}); got != topic || rej != nil {
			t.Errorf("%s: topic %q (%v), want %q", typ, got, rej, topic)
		}
	}
}

func TestTemplateErrors(t *testing.T) {
	for _, c := range []struct {
		template string
		roles    []string
		want     string
	}{
		{"{domian}", nil, "unknown placeholder {domian}; known are {domain} {event} {version} {type} {id} {key} {aggregatetype} {tenant} {correlation_id} {causation_id} {traceparent}"},
		{"{x}", []string{"id", "type", "key"}, "unknown placeholder {x}; known are {domain} {event} {version} {type} {id} {key}"},
		{"{tenant}", []string{"id", "type"}, "set outbox.columns.tenant"},
		{"{payload}", nil, "cannot be part of a topic name"},
		{"{headers}", nil, "cannot be part of a topic name"},
		{"{occurred_at}", nil, "cannot be part of a topic name"},
		{"{}", nil, "unknown placeholder {}"},
		{"{Domain}", nil, "unknown placeholder {Domain}"},
		{"a{domain", nil, "{ without }"},
		{"a}b", nil, "} without {"},
		{"{{domain}}", nil, "unknown placeholder {{domain}"},
		{"a b", nil, `cannot hold " "`},
		{"{domain}.ü", nil, `cannot hold "ü"`},
		{"..", nil, "directory"},
		{strings.Repeat("x", 250), nil, "250 characters"},
	} {
		_, err := newRouter(BatchConfig{Topic: c.template, Roles: c.roles})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "routing.topic") {
			t.Errorf("%s: error %v, want %q", c.template, err, c.want)
		}
	}
}

// Topics without end must not be memory without end.
func TestKnownTopicsAreBounded(t *testing.T) {
	r, err := newRouter(BatchConfig{Topic: "{key}"})
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("k0000000")
	for range maxKnownTopics + 10 {
		for i := len(key) - 1; ; i-- {
			if key[i]++; key[i] <= '9' {
				break
			}
			key[i] = '0'
		}
		if topic, rej := r.topic(&Event{Key: key}); topic != string(key) || rej != nil {
			t.Fatalf("%s: %q, %v", key, topic, rej)
		}
		if len(r.known) > maxKnownTopics {
			t.Fatalf("%d topics are remembered", len(r.known))
		}
	}
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"{domain}", "a.{event}-{version}", "{type}", "{{", "}", "{key}{tenant}", "..", "outbox.event.{aggregatetype}"} {
		f.Add(s, "orders.placed.v1", "42")
	}
	f.Add("{domain}", "a.b.v01", "")
	legal := regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
	placeholder := regexp.MustCompile(`\{[^{}]*\}`)
	shape := regexp.MustCompile(`^([^.]+)\.([^.]+)\.(v(?:0|[1-9][0-9]*))$`)
	f.Fuzz(func(t *testing.T, template, typ, key string) {
		ev := &Event{Type: []byte(typ), Key: []byte(key), Tenant: []byte(key), AggregateType: []byte(key)}
		r, err := newRouter(BatchConfig{Topic: template})
		if err != nil {
			return
		}
		topic, rej := r.topic(ev)
		if rej == nil && (!legal.MatchString(topic) || topic == "." || topic == "..") {
			t.Fatalf("template %q, type %q, key %q: illegal topic %q", template, typ, key, topic)
		}
		// The oracle: text replacement, for types without the characters that make a difference to regexp's dot.
		if template == "" || strings.ContainsAny(typ, "\n") {
			return
		}
		m := shape.FindStringSubmatch(typ)
		broken := false
		expect := placeholder.ReplaceAllStringFunc(template, func(p string) string {
			switch p {
			case "{domain}", "{event}", "{version}":
				if m == nil {
					broken = true
					return ""
				}
				return m[map[string]int{"{domain}": 1, "{event}": 2, "{version}": 3}[p]]
			case "{type}":
				return typ
			case "{key}", "{tenant}", "{aggregatetype}":
				return key
			}
			broken = true // NULL here
			return ""
		})
		if broken {
			if rej == nil || rej.Reason != ReasonUnroutable {
				t.Fatalf("template %q, type %q: topic %q, %v; want unroutable", template, typ, topic, rej)
			}
			return
		}
		if topic != expect {
			t.Fatalf("template %q, type %q, key %q: topic %q, want %q", template, typ, key, topic, expect)
		}
	})
}
