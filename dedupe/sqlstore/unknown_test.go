package sqlstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/sqlstore"
)

// newShopBehindProxy has a pool through a proxy for its log, and works in the same database.
func newShopBehindProxy(t *testing.T, d database, change ...func(*sqlstore.Config)) (*shop, *proxy) {
	t.Helper()
	direct := d.url(t)
	p := newProxy(t, hostOf(t, direct))
	through := p.through(t, direct)
	if d.name == "PostgreSQL" {
		// Statements are sent whole each time, so that the proxy can tell them.
		through += "&default_query_exec_mode=exec"
	}
	db := open(t, through)
	return newShopIn(t, d, newLog(t, db, change...), db), p
}

// Reply cut on INSERT: the row was there, and asking again with the same owner says so. An unknown insert error taken for success
// (Jaskey), and a read timeout re-executed by database/sql (go-sql-driver #582), are the two ways to get this wrong.
func TestClaim_ReplyToTheInsertIsLost_IsUnknownAndTheSameOwnerFindsItself(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s, p := newShopBehindProxy(t, d)
		k, o := key(t, "o-1"), newOwner()
		require.NoError(t, claim(t, s.log, key(t, "warm"), newOwner()).Err)
		// In MySQL the row is read after it, and the COMMIT decides. (3 is the command "query": READ COMMITTED is not meant.)
		p.loseAnswerTo(map[string]string{"PostgreSQL": "INSERT INTO", "MariaDB": "\x03COMMIT"}[d.name])
		rep := claim(t, s.log, k, o)
		require.Equal(t, 1, p.lost())
		require.ErrorIs(t, rep.Err, dedupe.ErrOutcomeUnknown)
		require.NotErrorIs(t, rep.Err, dedupe.ErrUnavailable)
		before := inspect(t, s.log, k)
		require.Equal(t, dedupe.StateClaimed, before.State, "the row was there")
		require.Equal(t, dedupe.Busy, claim(t, s.log, k, newOwner()).Verdict)
		again := claim(t, s.log, k, o)
		require.NoError(t, again.Err)
		require.Equal(t, dedupe.Claimed, again.Verdict)
		require.Equal(t, before.Fence, again.Record.Fence)
		require.Zero(t, again.Record.Deaths+again.Record.Failures)
	})
}

// A transaction of the log's own whose statement is cut off is not committed: that is known.
func TestClaim_MySQL_ReplyToTheInsertIsLost_IsUnavailableAndNothingIsThere(t *testing.T) {
	s, p := newShopBehindProxy(t, mariadb)
	require.NoError(t, claim(t, s.log, key(t, "warm"), newOwner()).Err)
	p.loseAnswerTo("INSERT INTO")
	rep := claim(t, s.log, key(t, "o-1"), newOwner())
	require.Equal(t, 1, p.lost())
	require.ErrorIs(t, rep.Err, dedupe.ErrUnavailable)
	require.Equal(t, dedupe.Claimed, claim(t, s.log, key(t, "o-1"), newOwner()).Verdict)
}

// The same for the statement that ends a claim: a repeated complete finds itself, a repeated release counts once.
func TestSettle_ReplyIsLost_IsUnknownAndCountsOnceWhenAskedAgain(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s, p := newShopBehindProxy(t, d)
		c := claim(t, s.log, key(t, "o-1"), newOwner())
		require.NoError(t, c.Err)
		release := dedupe.ReleaseRequest{Grip: dedupe.Grip{Key: c.Record.Key, Owner: c.Record.Owner, Incarnation: c.Record.Incarnation}, Failed: true}
		p.loseAnswerTo(map[string]string{"PostgreSQL": "UPDATE", "MariaDB": "\x03COMMIT"}[d.name])
		require.ErrorIs(t, only(t, s.log.Release(t.Context(), []dedupe.ReleaseRequest{release})).Err, dedupe.ErrOutcomeUnknown)
		rep := only(t, s.log.Release(t.Context(), []dedupe.ReleaseRequest{release}))
		require.NoError(t, rep.Err)
		require.Equal(t, 1, rep.Record.Failures)
	})
}

// Reply cut on COMMIT: the row was there, and InTx finds it.
func TestInTx_ReplyToTheCommitIsLost_RowIsFoundAndTheEffectIsDoneOnce(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s, p := newShopBehindProxy(t, d)
		runs := 0
		out, err := s.guard.Do(t.Context(), delivery("o-1"), func(ctx context.Context, _ *dedupe.Claim) error {
			return s.log.InTx(ctx, func(tx *sqlx.Tx) error {
				runs++
				p.loseAnswerTo("COMMIT")
				return s.sell(ctx, tx, "o-1")
			})
		})
		require.Equal(t, 1, p.lost())
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		require.Equal(t, 1, runs)
		require.Equal(t, 1, s.sold(t, "o-1"))
	})
}

// The handler's time ends while the COMMIT is under way: nobody can look, so nothing is said and nothing is acknowledged. The guard looks
// and finds the row.
func TestInTx_ReplyToTheCommitIsLostAndNobodyCanLook_IsOutcomeUnknown(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s, p := newShopBehindProxy(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := s.claim(t, delivery("o-1"))
		err := sqlstore.Transactional(s.log, func(ctx context.Context, tx *sqlx.Tx, _ message) error {
			p.onCut = cancel
			p.loseAnswerTo("COMMIT")
			return s.sell(ctx, tx, "o-1")
		})(ctx, message{c})
		require.ErrorIs(t, err, dedupe.ErrOutcomeUnknown)
		require.Eventually(t, func() bool { return s.sold(t, "o-1") == 1 }, 10*time.Second, 10*time.Millisecond)
		outs, errs := s.guard.Complete(t.Context(), c)
		require.NoError(t, errs[0])
		require.Equal(t, dedupe.Claimed, outs[0].Verdict, "this delivery's row")
	})
}

type message struct{ c *dedupe.Claim }

func (m message) Claim() *dedupe.Claim { return m.c }

// A ctx timeout on a blocked autocommit insert: the server inserts it later.
func TestClaim_ContextEndsWhileTheInsertIsBlocked_IsUnknownAndThePhantomIsOnesOwn(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s := newShop(t, d)
		k, o := s.key(t, "o-1"), newOwner()
		end := held(t, s, "o-1") // an uncommitted row of the same key
		impatient := newLog(t, s.db, func(c *sqlstore.Config) { c.Timeout = time.Second })
		rep := claim(t, impatient, k, o)
		if d.name == "PostgreSQL" {
			require.ErrorIs(t, rep.Err, dedupe.ErrOutcomeUnknown)
		} else if rep.Err != nil { // a transaction, which is rolled back; or Busy, where the server's limit came first
			require.ErrorIs(t, rep.Err, dedupe.ErrUnavailable)
		}
		require.NoError(t, end(false)) // and now the server may execute what nobody waits for
		again := claim(t, s.log, k, o)
		require.NoError(t, again.Err)
		require.Equal(t, dedupe.Claimed, again.Verdict)
		require.Zero(t, again.Record.Deaths+again.Record.Failures)
	})
}

// The backend dies in the middle of a handler's transaction: nothing is committed, nothing is counted.
func TestInTx_BackendTerminatedInTheMiddle_IsUnavailableAndNoAttempt(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s := newShop(t, d)
		kill := map[string]string{"PostgreSQL": "SELECT pg_terminate_backend($1)", "MariaDB": "KILL ?"}[d.name]
		ask := map[string]string{"PostgreSQL": "SELECT pg_backend_pid()", "MariaDB": "SELECT CONNECTION_ID()"}[d.name]
		for name, swallow := range map[string]bool{"the handler returns the error": false, "the handler makes it its own": true} {
			t.Run(name, func(t *testing.T) {
				_, err := s.guard.Do(t.Context(), delivery(name), func(ctx context.Context, _ *dedupe.Claim) error {
					return s.log.InTx(ctx, func(tx *sqlx.Tx) error {
						var pid int64
						require.NoError(t, tx.Get(&pid, ask))
						_, err := s.db.Exec(kill, pid)
						require.NoError(t, err)
						var sellErr error
						require.Eventually(t, func() bool { sellErr = s.sell(ctx, tx, name); return sellErr != nil }, 10*time.Second, 5*time.Millisecond)
						if swallow {
							return errors.New("could not sell")
						}
						return sellErr
					})
				})
				require.ErrorIs(t, err, dedupe.ErrUnavailable)
				require.Zero(t, s.sold(t, name))
				require.Equal(t, dedupe.StateAbsent, state(t, s.log, s.key(t, name)))
			})
		}
	})
}

// Killed before the COMMIT is sent: it never reached the server.
func TestInTx_BackendTerminatedBeforeTheCommit_AppliesNothing(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s := newShop(t, d, func(c *sqlstore.Config) { c.TxLimit = 2 * time.Second })
		kill := map[string]string{"PostgreSQL": "SELECT pg_terminate_backend($1)", "MariaDB": "KILL ?"}[d.name]
		ask := map[string]string{"PostgreSQL": "SELECT pg_backend_pid()", "MariaDB": "SELECT CONNECTION_ID()"}[d.name]
		_, err := s.guard.Do(t.Context(), delivery("o-1"), func(ctx context.Context, _ *dedupe.Claim) error {
			return s.log.InTx(ctx, func(tx *sqlx.Tx) error {
				var pid int64
				require.NoError(t, tx.Get(&pid, ask))
				require.NoError(t, s.sell(ctx, tx, "o-1"))
				_, err := s.db.Exec(kill, pid)
				require.NoError(t, err)
				return nil
			})
		})
		require.True(t, dedupe.IsOutage(err), err)
		require.Zero(t, s.sold(t, "o-1"))
		_, err = s.consume(t.Context(), "o-1")
		require.NoError(t, err)
		require.Equal(t, 1, s.sold(t, "o-1"))
	})
}
