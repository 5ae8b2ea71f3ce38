package chaos

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
)

// session is a beginning of a stream, as a relay logged it.
type session struct {
	at    time.Time
	start pglogrepl.LSN // what the slot had confirmed
}

// journal keeps the relays' logs in files, and the sessions in them in mind.
type journal struct {
	log   *report
	files map[string]*os.File // by instance

	mu       sync.Mutex
	sessions []session // of this round
}

func newJournal(log *report) *journal { return &journal{log: log, files: map[string]*os.File{}} }

// of is for the log of an instance's next process.
func (j *journal) of(name string) (io.Writer, error) {
	if j.files[name] == nil {
		f, err := j.log.create("relay-" + name + ".log")
		if err != nil {
			return nil, err
		}
		j.files[name] = f
	}
	return &clerk{journal: j, file: j.files[name]}, nil
}

// clerk writes down the log of one process.
type clerk struct {
	journal *journal
	file    io.Writer
	line    []byte
}

func (c *clerk) Write(p []byte) (int, error) {
	c.line = append(c.line, p...)
	for {
		end := bytes.IndexByte(c.line, '\n')
		if end < 0 {
			break
		}
		c.journal.read(c.line[:end])
		c.line = c.line[end+1:]
	}
	return c.file.Write(p)
}

func (j *journal) read(line []byte) {
	if !bytes.Contains(line, []byte(`"streaming"`)) {
		return
	}
	var entry struct {
		Time time.Time
		Msg  string
		LSN  string
	}
	if json.Unmarshal(line, &entry) != nil || entry.Msg != "streaming" {
		return
	}
	start, err := pglogrepl.ParseLSN(entry.LSN)
	if err != nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sessions = append(j.sessions, session{entry.Time, start})
}

// take returns the sessions since the last take, by time.
func (j *journal) take() []session {
	j.mu.Lock()
	defer j.mu.Unlock()
	taken := j.sessions
	j.sessions = nil
	slices.SortFunc(taken, func(a, b session) int { return a.at.Compare(b.at) })
	return taken
}
