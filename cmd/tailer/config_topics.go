package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

func (l *loader) checkTopics() {
	c := l.cfg
	if err := checkTemplate(c.Routing.Topic, c.Outbox.Roles); err != nil {
		l.problem("routing.topic", "routing.topic: %s", err)
	}
	name := func(path, topic string) {
		if topic == "" {
			return
		}
		if err := checkTopic(topic); err != nil {
			l.problem(path, "%s: %s", path, err)
		}
	}
	name("routing.default", c.Routing.Default)
	if c.DLQ.Topic == "" {
		l.problem("dlq.topic", "dlq.topic is empty: dead letters need a topic")
	}
	name("dlq.topic", c.DLQ.Topic)
	for _, typ := range slices.Sorted(maps.Keys(c.Schema.Types)) {
		name("schema.types."+typ+".topic", c.Schema.Types[typ].Topic)
	}
}

var (
	topicName    = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)
	topicLetters = regexp.MustCompile(`^[A-Za-z0-9._-]*$`)
)

func checkTopic(name string) error {
	if !topicName.MatchString(name) || name == "." || name == ".." {
		return fmt.Errorf("%q is no topic's name: 1 to 249 letters, digits, dots, dashes and underscores", name)
	}
	return nil
}

// checkTemplate finds what can be wrong before the first event.
func checkTemplate(template string, mapped map[string]string) error {
	if template == "" {
		return fmt.Errorf("empty")
	}
	rest := template
	for rest != "" {
		i := strings.IndexAny(rest, "{}")
		literal := rest
		if i >= 0 {
			literal = rest[:i]
		}
		if !topicLetters.MatchString(literal) {
			return fmt.Errorf("%q in %q cannot be part of a topic's name", literal, template)
		}
		if i < 0 {
			return nil
		}
		end := strings.IndexByte(rest[i:], '}')
		if rest[i] == '}' || end < 0 {
			return fmt.Errorf("%q has an unpaired brace", template)
		}
		name := rest[i+1 : i+end]
		rest = rest[i+end+1:]
		if slices.Contains([]string{"domain", "event", "version", "type"}, name) {
			continue
		}
		if !slices.Contains(roles, name) {
			known := append([]string{"domain", "event", "version", "type"}, roles...)
			return fmt.Errorf("no placeholder {%s}, the nearest is {%s}", name, nearest(name, known))
		}
		if mapped[name] == "" {
			return fmt.Errorf("{%s} needs outbox.columns.%s", name, name)
		}
	}
	return nil
}
