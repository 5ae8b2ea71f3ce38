package sink

import (
	"errors"
	"fmt"
	"slices"
)

const (
	defaultMaxRecords = 10000
	defaultMaxBytes   = 8 << 20
)

// BatchConfig is everything that decides how an event becomes a record.
type BatchConfig struct {
	Slot    string
	Source  string // ce_source; "" is urn:tailer:<slot>
	Profile Profile

	Topic        string            // the routing template, "" is {domain}
	DefaultTopic string            // for events the template has no topic for; "" makes them dead letters
	TypeTopics   map[string]string // by event type; an empty topic counts as none
	DLQTopic     string            // "" is <slot>.dlq

	NullKeyDLQ           bool // a NULL key is a dead letter; else the record has no key
	NullPayloadTombstone bool // a NULL payload is a record without a value; else a dead letter

	HeaderColumns []string // header names, in their written order
	ContentType   string   // "" leaves the header out

	MaxRecords, MaxBytes int // 0 is 10,000 records and 8 MiB

	// Roles are the roles that have a column, so that a placeholder without one is found at start. nil: all of them.
	Roles []string
}

// Builder makes batches and holds what their Adds share: routes, interned names, scratch memory. It is not safe for
// concurrent use: it belongs to the goroutine that calls Add.
type Builder struct {
	cfg    BatchConfig
	enc    Encoder
	router *router
	names  names

	// prefix starts every slab: header values that are the same in each record, written once a batch.
	prefix                    []byte
	specversion, source, ctyp span

	// contextColumn says of which context header a header column has the name.
	contextColumn [numContext]bool

	row rowHeaders // of the row being added
}

// NewBuilder checks the configuration and reports everything that is wrong with it at once.
func NewBuilder(cfg BatchConfig, enc Encoder) (*Builder, error) {
	if cfg.Source == "" {
		cfg.Source = "urn:tailer:" + cfg.Slot
	}
	if cfg.DLQTopic == "" {
		cfg.DLQTopic = cfg.Slot + ".dlq"
	}
	if cfg.MaxRecords <= 0 {
		cfg.MaxRecords = defaultMaxRecords
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = defaultMaxBytes
	}

	var errs []error
	if enc == nil {
		errs = append(errs, errors.New("sink: no encoder"))
	}
	if cfg.Profile < CloudEvents || cfg.Profile > Plain {
		errs = append(errs, fmt.Errorf("record.profile: unknown profile %d", int(cfg.Profile)))
	}
	if why := topicFault(cfg.DLQTopic); why != "" {
		errs = append(errs, fmt.Errorf("dlq.topic: %q is no topic name: %s", cfg.DLQTopic, why))
	}
	router, err := newRouter(cfg)
	if err != nil {
		errs = append(errs, err)
	}
	if err := checkHeaderColumns(cfg.Profile, cfg.HeaderColumns); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	c := &Builder{cfg: cfg, enc: enc, router: router}
	for _, name := range cfg.HeaderColumns {
		c.names.columns = append(c.names.columns, lowerASCII(name))
	}
	for i, name := range contextNames {
		c.contextColumn[i] = slices.Contains(c.names.columns, name)
	}
	c.specversion = c.constant("1.0")
	c.source = c.constant(cfg.Source)
	c.ctyp = c.constant(cfg.ContentType)
	return c, nil
}

func (c *Builder) constant(s string) span {
	off := len(c.prefix)
	c.prefix = append(c.prefix, s...)
	return span{off, len(c.prefix)}
}

// NewBatch gives an empty batch. A relay has two: one is filled while the other is published.
func (c *Builder) NewBatch() *Batch {
	b := &Batch{builder: c}
	b.Reset()
	return b
}
