package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

func pgError(severity, code string) error {
	return fmt.Errorf("wrapped: %w", &pgconn.PgError{SeverityUnlocalized: severity, Severity: "ÜBERSETZT", Code: code, Message: "in any language"})
}

func myError(number uint16) error {
	return fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: number, Message: "in any language"})
}

// Errors are told by code, never by text: a localised server froze a partition (Wolverine #2639).
func TestFault_IsToldByCode(t *testing.T) {
	pg, my, lite := dialects[Postgres], dialects[MySQL], dialects[SQLite]
	for _, c := range []struct {
		d    *dialect
		err  error
		want fault
	}{
		{pg, pgError("ERROR", "40001"), faultConflict},
		{pg, pgError("ERROR", "40P01"), faultConflict},
		{pg, pgError("ERROR", "55P03"), faultLocked},
		{pg, pgError("ERROR", "25006"), faultRefused},
		{pg, pgError("ERROR", "57014"), faultRefused},
		{pg, pgError("FATAL", "57P03"), faultRefused},
		{pg, pgError("FATAL", "53300"), faultRefused},
		{pg, pgError("ERROR", "53100"), faultRefused},
		{pg, pgError("FATAL", "57P01"), faultCut},
		{pg, pgError("PANIC", "58030"), faultCut},
		{pg, pgError("ERROR", "08006"), faultCut},
		{pg, pgError("ERROR", "40003"), faultCut},
		{pg, pgError("ERROR", "23505"), faultData},
		{pg, pgError("ERROR", "22021"), faultData},
		{pg, pgError("FATAL", "28P01"), faultData},
		{pg, pgError("FATAL", "3D000"), faultData},
		{pg, pgError("ERROR", "42P01"), faultData},
		{pg, pgx.ErrTxCommitRollback, faultData},
		{pg, driver.ErrBadConn, faultNotSent},
		{pg, io.ErrUnexpectedEOF, faultCut},
		{pg, &net.OpError{Op: "read", Err: errors.New("reset")}, faultCut},
		{pg, context.DeadlineExceeded, faultCut},
		{pg, errors.New("deadlock detected"), faultOther},
		{my, myError(1213), faultConflict},
		{my, myError(1020), faultConflict},
		{my, myError(1205), faultLocked},
		{my, myError(1290), faultRefused},
		{my, myError(1040), faultRefused},
		{my, myError(1047), faultRefused},
		{my, myError(1053), faultCut},
		{my, myError(1927), faultCut},
		{my, myError(1062), faultData},
		{my, myError(1045), faultData},
		{my, mysql.ErrInvalidConn, faultCut},
		{my, driver.ErrBadConn, faultNotSent},
		{my, errors.New("Deadlock found when trying to get lock"), faultOther},
		{lite, errors.New("database is locked"), faultOther},
		{lite, context.Canceled, faultCut},
	} {
		require.Equal(t, c.want, c.d.faultOf(c.err), "%s: %v", c.d.name, c.err)
	}
}

// What a caller may conclude: surely not done, or perhaps done. Inside a transaction nothing is done before the commit.
func TestFailed_CutIsUnknownOnlyWhereItCommitsByItself(t *testing.T) {
	d := dialects[Postgres]
	require.ErrorIs(t, d.failed(io.EOF, true), dedupe.ErrOutcomeUnknown)
	require.ErrorIs(t, d.failed(io.EOF, false), dedupe.ErrUnavailable)
	require.ErrorIs(t, d.failed(pgError("ERROR", "40001"), true), dedupe.ErrUnavailable)
	require.False(t, dedupe.IsOutage(d.failed(pgError("ERROR", "42P01"), true)))
	require.ErrorIs(t, d.failed(errors.New("never seen before"), true), dedupe.ErrOutcomeUnknown, "what is not known is not guessed")
	refused := pgError("FATAL", "28P01")
	require.False(t, dedupe.IsOutage(d.notReached(refused)), "a wrong password is no outage")
	require.ErrorIs(t, d.notReached(context.DeadlineExceeded), dedupe.ErrUnavailable, "waiting for a connection sends nothing")
}

func TestNotReached_WrongURL_HasARemedy(t *testing.T) {
	login, missing := "; correct user and password in the database URL", "; create the database first"
	for code, remedy := range map[string]string{"28P01": login, "28000": login, "3D000": missing, "53300": ""} {
		err := pgError("FATAL", code)
		require.Equal(t, err.Error()+remedy, dialects[Postgres].notReached(err).cause.Error())
	}
	for number, remedy := range map[uint16]string{1045: login, 1049: missing, 1044: missing + ", or let this user use it", 1040: ""} {
		err := myError(number)
		require.Equal(t, err.Error()+remedy, dialects[MySQL].notReached(err).cause.Error())
	}
}
