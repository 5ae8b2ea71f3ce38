package decoder

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// begin: final LSN, commit time, xid.
func (d *Decoder) begin(data []byte) error {
	c := newCursor(data)
	lsn := pglogrepl.LSN(c.uint64("final lsn"))
	micros := int64(c.uint64("commit time"))
	xid := c.uint32("xid")
	if err := c.end(); err != nil {
		return err
	}
	if d.open {
		return refuse(data, 0, "begin of %s inside the transaction of %s", lsn, d.commitLSN)
	}
	d.open, d.commitLSN, d.commitTime, d.xid = true, lsn, timestamp(micros), xid
	return nil
}

// commit: flags, commit LSN, end LSN, commit time.
func (d *Decoder) commit(data []byte, m *Message) error {
	c := newCursor(data)
	flags := c.uint8("flags")
	lsn := pglogrepl.LSN(c.uint64("commit lsn"))
	end := pglogrepl.LSN(c.uint64("end lsn"))
	micros := int64(c.uint64("commit time"))
	if err := c.end(); err != nil {
		return err
	}
	switch {
	case flags != 0:
		return refuse(data, 1, "unknown flags %#02x", flags)
	case !d.open:
		return refuse(data, 0, "commit of %s outside a transaction", lsn)
	case lsn != d.commitLSN:
		return refuse(data, 2, "commit of %s ends the transaction of %s", lsn, d.commitLSN)
	case end <= lsn:
		// The end is the address behind the commit record. One that is not
		// above the record would be confirmed and the transaction sent again.
		return refuse(data, 10, "end lsn %s is not above commit lsn %s", end, lsn)
	}
	m.EndLSN, m.CommitTime = end, timestamp(micros)
	d.open, d.commitLSN, d.commitTime, d.xid = false, 0, time.Time{}, 0
	return nil
}

// epoch is Postgres's own, 2000-01-01 00:00:00 UTC, in Unix seconds.
const epoch = 946_684_800

// timestamp converts microseconds since Postgres's epoch. Seconds and the rest
// are converted apart: microseconds times 1000 would overflow in 2262.
func timestamp(micros int64) time.Time {
	return time.Unix(epoch+micros/1_000_000, micros%1_000_000*1000).UTC()
}
