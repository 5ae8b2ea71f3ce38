#!/bin/sh
# Run once by the image of Postgres, when it makes the database: the role that
# the relay streams as. It may log in and replicate; init grants it the rest.
set -eu
psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --set=password="$(cat /run/secrets/relay_password)" \
	--username="${POSTGRES_USER:-postgres}" --dbname="${POSTGRES_DB:-postgres}" <<'SQL'
CREATE ROLE relay LOGIN REPLICATION PASSWORD :'password';
SQL
