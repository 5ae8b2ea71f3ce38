package harness

// stateTables are what `tailer init` makes for a relay to remember in; a test of
// the gap law compares the two. A ledger has them without init, whose slot would
// be there before a test wants it.
var stateTables = []string{
	`CREATE TABLE tailer_state (slot text PRIMARY KEY, system_identifier text NOT NULL, timeline integer NOT NULL,
		confirmed_lsn pg_lsn NOT NULL, updated_at timestamptz NOT NULL DEFAULT now(), session text)`,
	`CREATE TABLE tailer_state_gaps (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, slot text NOT NULL, from_lsn pg_lsn NOT NULL,
		to_lsn pg_lsn, reason text NOT NULL, accepted_at timestamptz NOT NULL DEFAULT now(), accepted_by text NOT NULL)`,
}
