package decoder

// Messages that say nothing about rows. They are read to their last byte, so
// that a stream gone wrong is noticed here and not some messages later, and
// nothing of them is kept.

// typ: type id, namespace, name. The server announces a type that is not built
// in before the relation that uses it.
func (d *Decoder) typ(data []byte) error {
	c := newCursor(data)
	c.uint32("type id")
	c.text("namespace")
	c.text("type name")
	return c.end()
}

// origin: LSN on the origin, its name. It follows the Begin of a transaction
// that was itself replicated.
func (d *Decoder) origin(data []byte) error {
	c := newCursor(data)
	c.uint64("origin lsn")
	c.text("origin name")
	return c.end()
}

// truncate: relation count, options, that many relation ids.
func (d *Decoder) truncate(data []byte) error {
	c := newCursor(data)
	count := c.uint32("relation count")
	c.uint8("options")
	if c.err != nil {
		return c.err
	}
	if left := len(data) - c.off; uint64(count)*4 != uint64(left) {
		return refuse(data, 1, "%d relation ids in %d bytes", count, left)
	}
	if !d.open {
		return refuse(data, 0, "truncate outside a transaction")
	}
	return nil
}

// message: flags, LSN, prefix, content with its length. Made by
// pg_logical_emit_message. One that is not transactional comes at once, between
// transactions, even if its own rolls back.
func (d *Decoder) message(data []byte) error {
	c := newCursor(data)
	transactional := c.uint8("flags")&1 != 0
	c.uint64("lsn")
	c.text("prefix")
	size := c.uint32("content length")
	if c.err != nil {
		return c.err
	}
	if left := len(data) - c.off; uint64(size) != uint64(left) {
		return refuse(data, c.off-4, "content of %d bytes in %d bytes", size, left)
	}
	if transactional && !d.open {
		return refuse(data, 1, "transactional message outside a transaction")
	}
	return nil
}
