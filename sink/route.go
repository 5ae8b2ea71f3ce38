package sink

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
)

const (
	// maxTopicName is Kafka's limit: the name is also a directory's, with a partition number behind it.
	maxTopicName = 249
	// maxKnownTopics bounds the memory of a template whose topics have no end, by key for example.
	maxKnownTopics = 10000
)

// placeholder is what a routing template can stand for.
type placeholder uint8

const (
	phLiteral placeholder = iota
	phDomain
	phEvent
	phVersion
	phType
	phID
	phKey
	phCorrelationID
	phCausationID
	phTraceparent
	phTenant
	phAggregateType
)

// placeholders lists the names in the order in which an error shows them.
var placeholders = []struct {
	name string
	ph   placeholder
	role bool
}{
	{"domain", phDomain, false},
	{"event", phEvent, false},
	{"version", phVersion, false},
	{"type", phType, false},
	{"id", phID, true},
	{"key", phKey, true},
	{"aggregatetype", phAggregateType, true},
	{"tenant", phTenant, true},
	{"correlation_id", phCorrelationID, true},
	{"causation_id", phCausationID, true},
	{"traceparent", phTraceparent, true},
}

// topicPart is a piece of a compiled template: a literal, or the name of a placeholder.
type topicPart struct {
	ph   placeholder
	text string
}

// router finds an event's topic. It belongs to the builder's goroutine.
type router struct {
	parts    []topicPart
	byType   map[string]string
	fallback string            // routing.default
	known    map[string]string // legal topic names seen so far, so that a known route costs no allocation
	buf      []byte
}

func newRouter(cfg BatchConfig) (*router, error) {
	r := &router{
		fallback: cfg.DefaultTopic,
		byType:   make(map[string]string, len(cfg.TypeTopics)),
		known:    make(map[string]string),
	}
	var errs []error
	if r.fallback != "" {
		if why := topicFault(r.fallback); why != "" {
			errs = append(errs, fmt.Errorf("routing.default: %q is no topic name: %s", r.fallback, why))
		}
	}
	types := make([]string, 0, len(cfg.TypeTopics))
	for typ := range cfg.TypeTopics {
		types = append(types, typ)
	}
	sort.Strings(types)
	for _, typ := range types {
		topic := cfg.TypeTopics[typ]
		if topic == "" {
			continue
		}
		if why := topicFault(topic); why != "" {
			errs = append(errs, fmt.Errorf("schema.types.%s.topic: %q is no topic name: %s", typ, topic, why))
		}
		r.byType[typ] = topic
	}
	template := cfg.Topic
	if template == "" {
		template = "{domain}"
	}
	parts, err := compileTopic(template, cfg.Roles)
	if err != nil {
		errs = append(errs, err)
	}
	r.parts = parts
	return r, errors.Join(errs...)
}

// compileTopic splits a template into its parts. Braces have no escape: a topic name holds none.
func compileTopic(template string, roles []string) ([]topicPart, error) {
	var parts []topicPart
	fail := func(format string, args ...any) ([]topicPart, error) {
		return nil, fmt.Errorf("routing.topic %q: %s", template, fmt.Sprintf(format, args...))
	}
	for rest := template; rest != ""; {
		open := strings.IndexAny(rest, "{}")
		literal := rest
		if open >= 0 {
			literal = rest[:open]
		}
		if i := illegalTopicByte(literal); i >= 0 {
			return fail("a topic name cannot hold %q", firstRune(literal[i:]))
		}
		if literal != "" {
			parts = append(parts, topicPart{phLiteral, literal})
		}
		if open < 0 {
			break
		}
		if rest[open] == '}' {
			return fail("} without {")
		}
		name, after, ok := strings.Cut(rest[open+1:], "}")
		if !ok {
			return fail("{ without }")
		}
		ph, err := findPlaceholder(name, roles)
		if err != nil {
			return fail("%s", err)
		}
		parts = append(parts, topicPart{ph, name})
		rest = after
	}
	// A template without a placeholder is a topic name, and can be judged now.
	if len(parts) == 1 && parts[0].ph == phLiteral {
		if why := topicFault(template); why != "" {
			return fail("no topic name: %s", why)
		}
	}
	return parts, nil
}

func findPlaceholder(name string, roles []string) (placeholder, error) {
	known := make([]string, 0, len(placeholders))
	for _, p := range placeholders {
		mapped := !p.role || roles == nil || slices.Contains(roles, p.name)
		if p.name == name {
			if !mapped {
				return 0, fmt.Errorf("no column has the role of {%s}; set outbox.columns.%s", name, name)
			}
			return p.ph, nil
		}
		if mapped {
			known = append(known, "{"+p.name+"}")
		}
	}
	switch name {
	case "payload", "headers", "occurred_at":
		return 0, fmt.Errorf("{%s} cannot be part of a topic name; known are %s", name, strings.Join(known, " "))
	}
	return 0, fmt.Errorf("unknown placeholder {%s}; known are %s", name, strings.Join(known, " "))
}

// topic finds the event's topic. With a rejection the topic is the illegal name that came out, or "".
func (r *router) topic(ev *Event) (string, *Rejection) {
	if ev.Type != nil {
		if topic, ok := r.byType[string(ev.Type)]; ok {
			return topic, nil
		}
	}
	var shape typeShape
	var parsed bool
	r.buf = r.buf[:0]
	for _, part := range r.parts {
		var text []byte
		switch part.ph {
		case phLiteral:
			r.buf = append(r.buf, part.text...)
			continue
		case phDomain, phEvent, phVersion:
			if !parsed {
				var ok bool
				if shape, ok = parseType(ev.Type); !ok {
					return r.unroutable(typeFault(ev.Type))
				}
				parsed = true
			}
			text = shape.part(part.ph)
		default:
			if text = ev.role(part.ph); text == nil {
				return r.unroutable(fmt.Sprintf("routing.topic needs {%s}, which is NULL", part.text))
			}
		}
		r.buf = append(r.buf, text...)
	}
	if topic, ok := r.known[string(r.buf)]; ok {
		return topic, nil
	}
	topic := string(r.buf)
	if why := topicFault(topic); why != "" {
		return topic, &Rejection{Reason: ReasonInvalidTopic, Message: fmt.Sprintf("%s is no topic name: %s", shorten(topic), why)}
	}
	if len(r.known) >= maxKnownTopics {
		clear(r.known)
	}
	r.known[topic] = topic
	return topic, nil
}

func (r *router) unroutable(why string) (string, *Rejection) {
	if r.fallback != "" {
		return r.fallback, nil
	}
	return "", &Rejection{Reason: ReasonUnroutable, Message: why + ", and routing.default is not set"}
}

func typeFault(typ []byte) string {
	if typ == nil {
		return "the event type is NULL"
	}
	return fmt.Sprintf("event type %s has not the shape <domain>.<event>.v<n>", shorten(string(typ)))
}

// role is the text of the column with a role; nil is NULL.
func (ev *Event) role(ph placeholder) []byte {
	switch ph {
	case phType:
		return ev.Type
	case phID:
		return ev.ID
	case phKey:
		return ev.Key
	case phCorrelationID:
		return ev.CorrelationID
	case phCausationID:
		return ev.CausationID
	case phTraceparent:
		return ev.Traceparent
	case phTenant:
		return ev.Tenant
	case phAggregateType:
		return ev.AggregateType
	}
	return nil
}

// typeShape is an event type taken apart, borrowed from it.
type typeShape struct{ domain, event, version []byte }

func (s *typeShape) part(ph placeholder) []byte {
	switch ph {
	case phDomain:
		return s.domain
	case phEvent:
		return s.event
	}
	return s.version
}

// parseType takes <domain>.<event>.v<n> apart.
func parseType(typ []byte) (typeShape, bool) {
	domain, rest, ok := bytes.Cut(typ, []byte{'.'})
	if !ok {
		return typeShape{}, false
	}
	event, version, ok := bytes.Cut(rest, []byte{'.'})
	if !ok || len(domain) == 0 || len(event) == 0 || len(version) < 2 || version[0] != 'v' {
		return typeShape{}, false
	}
	digits := version[1:]
	for _, d := range digits {
		if d < '0' || d > '9' {
			return typeShape{}, false
		}
	}
	if digits[0] == '0' && len(digits) > 1 {
		return typeShape{}, false
	}
	return typeShape{domain, event, version}, true
}

// topicFault says why a name is none that Kafka can hold; "" when it is one.
func topicFault(name string) string {
	switch {
	case name == "":
		return "it is empty"
	case name == "." || name == "..":
		return "it is a directory's name"
	case len(name) > maxTopicName:
		return fmt.Sprintf("it has %d characters, Kafka takes %d", len(name), maxTopicName)
	}
	if i := illegalTopicByte(name); i >= 0 {
		return fmt.Sprintf("it holds %q, Kafka takes letters, digits, '.', '_' and '-'", firstRune(name[i:]))
	}
	return ""
}

func illegalTopicByte(name string) int {
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return i
		}
	}
	return -1
}

func firstRune(s string) string {
	for _, r := range s {
		return string(r)
	}
	return ""
}

// shorten quotes a text for a message and keeps it to a line.
func shorten(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(s[:most], ""))
	}
	return fmt.Sprintf("%q", s)
}
