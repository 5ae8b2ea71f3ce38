package replication

import (
	"context"

	"github.com/jackc/pglogrepl"
)

// System is what IDENTIFY_SYSTEM tells: which cluster a server is, on which
// timeline, and where its WAL ends.
type System struct {
	ID       string
	Timeline int32
	Flushed  pglogrepl.LSN
}

// Identify asks a server who it is, over a replication connection of its own:
// to queries the timeline is told only as of the last checkpoint.
func Identify(ctx context.Context, cfg Config) (System, error) {
	conn, _, err := dial(ctx, cfg, true)
	if err != nil {
		return System{}, err
	}
	defer closeQuietly(conn)
	id, err := pglogrepl.IdentifySystem(ctx, conn.PgConn())
	if err != nil {
		return System{}, &Error{Op: "identify", Object: "the server", Class: classifyCause(err), Hint: HintOf(err), Err: err}
	}
	return System{ID: id.SystemID, Timeline: id.Timeline, Flushed: id.XLogPos}, nil
}

// TimelineHistory reads the history file of a timeline, which says where the
// timelines before it were left. The first timeline has none.
func TimelineHistory(ctx context.Context, cfg Config, timeline int32) ([]byte, error) {
	if timeline <= 1 {
		return nil, nil
	}
	conn, _, err := dial(ctx, cfg, true)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(conn)
	history, err := pglogrepl.TimelineHistory(ctx, conn.PgConn(), timeline)
	if err != nil {
		return nil, &Error{Op: "read", Object: "the timeline's history", Class: classifyCause(err), Hint: HintOf(err), Err: err}
	}
	return history.Content, nil
}
