package schema

import (
	"context"
	"time"
)

// Newer returns a type's encoder by a later version of its schema than t's, or
// nil where there is none. It is for a payload that t refused: its writer may
// have registered what it follows a moment ago. The registry is asked at most
// every 2 s for a type, and its silence counts as no.
func (c *Catalog) Newer(ctx context.Context, typ []byte, t *TypeEncoder) *TypeEncoder {
	if c.registry == nil || c.files != nil {
		return nil
	}
	name := string(typ)
	c.mu.Lock()
	due := c.pace.now().Sub(c.checked[name]) >= c.pace.newer && !c.pace.now().Before(c.away)
	c.mu.Unlock()
	if due {
		c.check(ctx, name)
	}
	if now := (*c.known.Load())[name]; now != nil && now != t {
		return now
	}
	return nil
}

// refresh is the catalogue's goroutine: it looks for newer versions, the type
// that has waited longest first.
func (c *Catalog) refresh(ctx context.Context) {
	defer close(c.done)
	tick := time.NewTicker(c.pace.tick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if typ, ok := c.due(); ok {
			c.check(ctx, typ)
		}
	}
}

// due picks the known type whose latest version was asked for longest ago, if
// that is long enough.
func (c *Catalog) due() (string, bool) {
	now := c.pace.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.away) {
		return "", false
	}
	oldest, found := now.Add(-c.pace.refresh), ""
	for typ := range *c.known.Load() {
		if at := c.checked[typ]; !at.After(oldest) {
			oldest, found = at, typ
		}
	}
	return found, found != ""
}

// check asks for a known type's latest version and takes it where it is
// another one. Nothing it meets takes the type out of use.
func (c *Catalog) check(ctx context.Context, typ string) {
	subject := c.cfg.subject(typ, "")
	limited, cancel := context.WithTimeout(ctx, resolveLimit*c.registry.timeout)
	defer cancel()
	d, err := c.registry.latest(limited, subject)
	if ctx.Err() != nil {
		return
	}
	old := (*c.known.Load())[typ]
	if old == nil {
		return // only a known type can have a newer schema
	}
	now := c.pace.now()
	c.mu.Lock()
	c.checked[typ] = now
	if err != nil && err != errMissing {
		c.away = now.Add(c.pace.max)
	}
	c.mu.Unlock()
	switch {
	case err == errMissing:
		c.log.Warn("subject is gone from the registry; its last schema stays in use", "type", typ, "subject", subject, "schema_id", old.id)
		return
	case err != nil:
		c.log.Warn("no look at the latest schema", "type", typ, "subject", subject, "err", err)
		return
	case d.id == old.id:
		return
	}
	t, err := c.compile(d)
	if err != nil {
		c.log.Warn("the latest schema cannot be used; the one before stays in use", "type", typ, "subject", subject, "schema_id", old.id, "err", err)
		return
	}
	c.install(typ, t)
}
