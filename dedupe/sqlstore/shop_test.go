package sqlstore_test

import (
	"context"
	"database/sql"
	"net/url"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/sqlstore"
)

// shop is what the tests work on: stock that goes down once for each order, and a movement without a unique key on the order, so
// that a second run would show.
type shop struct {
	database
	log   *sqlstore.Log
	db    *sqlx.DB
	guard *dedupe.Guard
}

func newShop(t testing.TB, d database, change ...func(*sqlstore.Config)) *shop {
	t.Helper()
	db := open(t, d.url(t))
	return newShopIn(t, d, newLog(t, db, change...), db)
}

func newShopIn(t testing.TB, d database, l *sqlstore.Log, db *sqlx.DB) *shop {
	t.Helper()
	require.NoError(t, l.Migrate(context.Background()))
	for _, statement := range []string{
		"CREATE TABLE stock (sku VARCHAR(40) PRIMARY KEY, quantity BIGINT NOT NULL)",
		"CREATE TABLE movement (msg VARCHAR(300) NOT NULL, delta BIGINT NOT NULL)",
		"INSERT INTO stock VALUES ('bolt', 1000), ('nut', 1000)",
	} {
		db.MustExec(statement)
	}
	return &shop{database: d, log: l, db: db, guard: newGuard(t, l, dedupe.Transactional)}
}

func newGuard(t testing.TB, l dedupe.Log, m dedupe.Mode) *dedupe.Guard {
	t.Helper()
	g, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: m, Log: l, StopGrace: 500 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, g.Close(ctx))
	})
	return g
}

// delivery of order id; the same body each time.
func delivery(id string) dedupe.Delivery {
	return dedupe.Delivery{ID: id, Namespace: "orders", Fingerprint: dedupe.FingerprintOf([]byte("body of " + id))}
}

// sell is the business of every test.
func (s *shop) sell(ctx context.Context, tx sqlstore.Execer, id string) error {
	if _, err := tx.ExecContext(ctx, "UPDATE stock SET quantity = quantity - 1 WHERE sku = 'bolt'"); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, rebound(s.db, "INSERT INTO movement VALUES (?, -1)"), id)
	return err
}

// consume delivers id to a handler that sells in InTx.
func (s *shop) consume(ctx context.Context, id string) (dedupe.Outcome, error) {
	return s.guard.Do(ctx, delivery(id), func(ctx context.Context, _ *dedupe.Claim) error {
		return s.log.InTx(ctx, func(tx *sqlx.Tx) error { return s.sell(ctx, tx, id) })
	})
}

// sold is how many movements id has.
func (s *shop) sold(t testing.TB, id string) (n int) {
	t.Helper()
	require.NoError(t, s.db.Get(&n, rebound(s.db, "SELECT COUNT(*) FROM movement WHERE msg = ?"), id))
	return n
}

// key of order id.
func (s *shop) key(t testing.TB, id string) dedupe.Key {
	t.Helper()
	k, err := s.guard.Key("orders", id)
	require.NoError(t, err)
	return k
}

// claim is one of order id, settled with the test.
func (s *shop) claim(t testing.TB, d dedupe.Delivery) *dedupe.Claim {
	t.Helper()
	out, err := s.guard.Claim(context.Background(), d)
	require.NoError(t, err)
	require.Equal(t, dedupe.Claimed, out.Verdict)
	t.Cleanup(func() {
		_, errs := s.guard.Release(context.Background(), dedupe.ReleaseReason{HandBack: true}, out.Claim)
		_ = errs // the test has settled it, or the database is gone: either way it is out of flight now
	})
	return out.Claim
}

// claimAnyway is a claim of order id by a process that does not know yet that another has recorded it, or is about to.
func (s *shop) claimAnyway(t testing.TB, id string) *dedupe.Claim {
	t.Helper()
	blind := newGuard(t, blindLog{s.log}, dedupe.Transactional)
	out, err := blind.Claim(context.Background(), delivery(id))
	require.NoError(t, err)
	require.Equal(t, dedupe.Claimed, out.Verdict)
	t.Cleanup(func() {
		_, errs := blind.Release(context.Background(), dedupe.ReleaseReason{HandBack: true}, out.Claim)
		_ = errs // as in claim
	})
	return out.Claim
}

// blindLog knows nothing before the handler runs.
type blindLog struct{ *sqlstore.Log }

func (blindLog) Inspect(_ context.Context, keys []dedupe.Key) ([]dedupe.Record, error) {
	recs := make([]dedupe.Record, len(keys))
	for i, k := range keys {
		recs[i].Key = k
	}
	return recs, nil
}

// foundRowsPool is another pool of the same MariaDB database, whose counts are of the rows that were found.
func foundRowsPool(t testing.TB, db *sqlx.DB) *sqlx.DB {
	t.Helper()
	var name string
	require.NoError(t, db.Get(&name, "SELECT DATABASE()"))
	u, err := url.Parse(mariadb.url(t))
	require.NoError(t, err)
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.DBName, cfg.ClientFoundRows = "tcp", u.Host, u.User.Username(), name, true
	cfg.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	found := sqlx.NewDb(sql.OpenDB(connector), "mysql")
	t.Cleanup(func() { require.NoError(t, found.Close()) })
	return found
}
