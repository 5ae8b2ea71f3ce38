package replication

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/tailer-relay/tailer/internal/crashpoint"
)

const (
	// maxInterval is the longest time between two statuses that ask for a reply.
	maxInterval = 3 * time.Second
	// confirmGap is the shortest time between two statuses sent because the
	// watermark moved. It is also what a crash of ours repeats at most.
	confirmGap = 100 * time.Millisecond
	// replyGap bounds the answers to reply requests: a server that shuts down
	// asks again after each, thousands of times a second.
	replyGap = 10 * time.Millisecond
	// gatedPause is how often a silenced status writer looks whether it may speak.
	gatedPause = 100 * time.Millisecond
	// silences are the intervals without a word after which a link is dead.
	silences = 3
)

// pacer decides when a status is due. It does no I/O.
type pacer struct {
	interval time.Duration

	sent    pglogrepl.LSN // the watermark in the last status
	sentAt  time.Time
	askedAt time.Time // when a status last asked for a reply
}

// due tells whether a status is to be sent now, whether it asks for a reply,
// and else how long nothing will be due if nothing happens.
//
// The periodic status asks for a reply, because a server that is told unasked
// sends nothing, and a dead link would look like a quiet one.
func (p *pacer) due(now time.Time, watermark pglogrepl.LSN, requested bool) (send, ask bool, wait time.Duration) {
	next := p.askedAt.Add(p.interval)
	if !now.Before(next) {
		return true, true, 0
	}
	if watermark > p.sent {
		next = earlier(next, p.sentAt.Add(confirmGap))
	}
	if requested {
		next = earlier(next, p.sentAt.Add(replyGap))
	}
	if !now.Before(next) {
		return true, false, 0
	}
	return false, false, next.Sub(now)
}

// done records a status that was sent.
func (p *pacer) done(now time.Time, watermark pglogrepl.LSN, ask bool) {
	p.sent, p.sentAt = watermark, now
	if ask {
		p.askedAt = now
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// report is the status writer. It ends when Close asks it to, or when the link
// is dead: then it interrupts the reader, which reports the reason.
func (s *Stream) report() {
	defer close(s.reported)
	p := pacer{interval: s.interval, sent: s.start}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-s.wake:
		case <-timer.C:
		}
		if quiet := s.silence(); quiet > silences*s.interval && !s.busy() {
			s.interrupt(&Error{Op: "read", Object: "the replication stream", Class: Transient,
				Err: fmt.Errorf("nothing heard from the server for %v, although it was asked to reply", quiet.Round(time.Millisecond))})
			return
		}
		wait, err := s.speak(&p)
		if err != nil {
			// The server's own reason, if it sent one, waits in the reader's
			// socket and says more than a broken pipe: leave it time to come.
			select {
			case <-s.closing:
			case <-time.After(s.interval):
				s.interrupt(&Error{Op: "send", Object: "status", Class: classifyCause(err), Err: err})
			}
			return
		}
		timer.Reset(min(wait, max(s.interval/4, time.Millisecond)))
	}
}

// speak sends a status if one is due and returns for how long none will be.
func (s *Stream) speak(p *pacer) (time.Duration, error) {
	for {
		now := time.Now()
		watermark := s.Confirmed()
		send, ask, wait := p.due(now, watermark, s.requested.Load())
		if !send {
			return wait, nil
		}
		if s.cfg.Alive != nil && !s.cfg.Alive() {
			return gatedPause, nil
		}
		s.requested.Store(false) // before sending: a request that comes now is a new one
		if watermark > p.sent {
			crashpoint.Pass("status.before")
		}
		if err := s.send(watermark, ask, now.Add(silences*s.interval)); err != nil {
			return 0, err
		}
		if watermark > p.sent {
			crashpoint.Pass("status.after")
		}
		p.done(now, watermark, ask)
	}
}

// send writes one status. The deadline only ends a write into a link that is
// dead; it is never used to cancel one, which would cut a frame in two.
func (s *Stream) send(lsn pglogrepl.LSN, ask bool, deadline time.Time) error {
	s.status.fill(lsn, time.Now(), ask)
	if err := s.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := s.conn.Write(s.status[:])
	return err
}

// silence is how long the reader has been waiting without hearing anything; 0
// while it does something else, when silence is our own.
func (s *Stream) silence() time.Duration {
	waiting := s.waiting.Load()
	if waiting == 0 {
		return 0
	}
	return max(0, s.clock()-time.Duration(max(waiting, s.heard.Load())))
}

// busy tells that the server's silence has another reason than a dead link. A
// walsender that decodes a large transaction of tables that are not published
// looks at what it was sent only when half of wal_sender_timeout has passed, and
// a session given up before would begin with the same transaction again.
func (s *Stream) busy() bool { return s.cfg.Busy != nil && s.cfg.Busy() }

// nudge wakes the status writer. It never blocks.
func (s *Stream) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
