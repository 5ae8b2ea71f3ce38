package replication

import (
	"encoding/binary"
	"fmt"
	"io"
)

const (
	readBuffer = 256 << 10 // several wake-ups of a backlogged socket
	keepBuffer = 4 << 20   // a buffer grown beyond this is given back
	maxMessage = 1 << 30   // what Postgres itself refuses to send
)

// messageReader cuts protocol messages out of a byte stream.
//
// The bytes of a message stay where they were read. A body is lent until the
// next call of message.
type messageReader struct {
	src io.Reader // one Read is one wait

	buf []byte
	// Invariant: r <= w <= len(buf); buf[r:w] is received and not yet returned.
	r, w int
}

func newMessageReader(src io.Reader) messageReader {
	return messageReader{src: src, buf: make([]byte, readBuffer)}
}

// message returns the next message. An error of the source leaves what was
// received so far in place, so a call after a timeout goes on where it was.
func (m *messageReader) message() (kind byte, body []byte, err error) {
	for {
		need := 5
		if have := m.w - m.r; have >= need {
			n := binary.BigEndian.Uint32(m.buf[m.r+1:])
			if n < 4 || n > maxMessage {
				return 0, nil, &protocolError{fmt.Sprintf("message %q with length %d", m.buf[m.r], n)}
			}
			need = 1 + int(n)
			if have >= need {
				kind = m.buf[m.r]
				body = m.buf[m.r+5 : m.r+need : m.r+need]
				m.r += need
				return kind, body, nil
			}
		}
		if err := m.fill(need); err != nil {
			return 0, nil, err
		}
	}
}

// buffered is the number of bytes received and not yet returned.
func (m *messageReader) buffered() int { return m.w - m.r }

// fill reads once, after making room for a message of need bytes.
func (m *messageReader) fill(need int) error {
	if m.r == m.w {
		m.r, m.w = 0, 0
		if len(m.buf) > keepBuffer && need <= readBuffer {
			m.buf = make([]byte, readBuffer)
		}
	}
	// Shifting is cheap when little is left over, and needed when the message
	// does not fit behind it.
	if m.r > 0 && (len(m.buf)-m.r < need || m.w == len(m.buf)) {
		m.w = copy(m.buf, m.buf[m.r:m.w])
		m.r = 0
	}
	if m.w == len(m.buf) {
		// Doubling by what has really arrived keeps a corrupt length from
		// allocating a gigabyte.
		grown := make([]byte, min(2*len(m.buf), max(need, readBuffer)))
		m.w = copy(grown, m.buf[:m.w])
		m.buf = grown
	}
	n, err := m.src.Read(m.buf[m.w:])
	m.w += n
	if n > 0 {
		return nil // an error beside data comes again with the next read
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
