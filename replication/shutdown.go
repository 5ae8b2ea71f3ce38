package replication

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// ShuttingDown reports whether the server ended a connection, or refused one,
// because it stops, crashed or has not started yet (57P01, 57P02, 57P03). 57P01
// alone is also what pg_terminate_backend leaves: ask by connecting again.
func ShuttingDown(err error) bool {
	for _, e := range append(attempts(err), err) {
		var pg *pgconn.PgError
		if errors.As(e, &pg) {
			switch pg.Code {
			case "57P01", "57P02", "57P03":
				return true
			}
		}
	}
	return false
}
