package sink

// Outcome says how far a batch has come when Publish returns without an error.
type Outcome int

const (
	// Done: every record is acknowledged, in its topic or as a dead letter. The batch may be reset.
	Done Outcome = iota
	// Left: records of topics that cannot be written to wait, as copies. The batch may be reset; its number comes
	// back in a Late when they are settled.
	Left
	// Held: as Left, but what waits is the batch's own memory. It must be dropped, never reset.
	Held
)

func (o Outcome) String() string {
	switch o {
	case Done:
		return "done"
	case Left:
		return "left"
	case Held:
		return "held"
	}
	return "unknown"
}

// Late tells of batches that Publish had returned as Left or Held.
type Late struct {
	Settled []uint64 // the numbers of batches that are settled now, each once
	Err     error    // ends the session
}
