package bench

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/dedupe/redisstore"
	"github.com/idemq/idemq/dedupe/sqlstore"
	"github.com/idemq/idemq/internal/testenv"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // what a nil Logger means
	testenv.Main(m)
}

var ids atomic.Int64

func newID() string { return "m-" + strconv.FormatInt(ids.Add(1), 10) }

func redisClient(b *testing.B) redis.UniversalClient {
	b.Helper()
	client, err := redisstore.NewClient(testenv.Redis(b))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, client.Close()) })
	return client
}

func postgres(b *testing.B) (*sqlx.DB, *sqlstore.Log) {
	b.Helper()
	db, err := sqlstore.Open(testenv.Postgres(b))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	log := sqlstore.New(db, sqlstore.Config{})
	require.NoError(b, log.Migrate(b.Context()))
	db.MustExecContext(b.Context(), "CREATE TABLE seen (id BYTEA PRIMARY KEY)")
	db.MustExecContext(b.Context(), "CREATE TABLE stock (sku INT PRIMARY KEY, quantity BIGINT NOT NULL)")
	db.MustExecContext(b.Context(), "INSERT INTO stock SELECT n, 1000000000 FROM generate_series(0, 99) AS n")
	return db, log
}

// BenchmarkClaim: who is first with an id. One caller.
func BenchmarkClaim(b *testing.B) {
	client := redisClient(b)
	store := redisstore.New(client, redisstore.Config{})
	claim := func(b *testing.B) dedupe.Grip {
		k, err := dedupe.NewKey("bench", "", newID())
		require.NoError(b, err)
		req := dedupe.ClaimRequest{Key: k, Owner: dedupe.Owner(k.ID()), Fingerprint: dedupe.NoFingerprint, Lease: time.Minute, Retention: time.Hour}
		rep := store.Claim(b.Context(), []dedupe.ClaimRequest{req})[0]
		require.NoError(b, rep.Err)
		return dedupe.Grip{Key: k, Owner: req.Owner}
	}
	b.Run("redis", func(b *testing.B) {
		for b.Loop() {
			claim(b)
		}
	})
	b.Run("redis-and-complete", func(b *testing.B) {
		for b.Loop() {
			rep := store.Complete(b.Context(), []dedupe.CompleteRequest{{Grip: claim(b), Fingerprint: dedupe.NoFingerprint, Retention: time.Hour}})[0]
			require.NoError(b, rep.Err)
		}
	})
	b.Run("redis-setnx", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, client.SetNX(b.Context(), "bench:"+newID(), "1", time.Hour).Err())
		}
	})
	db, _ := postgres(b)
	b.Run("postgres-insert", func(b *testing.B) {
		for b.Loop() {
			_, err := db.ExecContext(b.Context(), "INSERT INTO seen (id) VALUES ($1) ON CONFLICT DO NOTHING", []byte(newID()))
			require.NoError(b, err)
		}
	})
}

// BenchmarkTransactional: a stock decrement on PostgreSQL, bare and made idempotent.
func BenchmarkTransactional(b *testing.B) {
	db, log := postgres(b)
	client := redisClient(b)
	decrement := func(ctx context.Context, tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE stock SET quantity = quantity - 1 WHERE sku = $1", ids.Load()%100)
		return err
	}
	inTx := func(ctx context.Context, _ *dedupe.Claim) error {
		return log.InTx(ctx, func(tx *sqlx.Tx) error { return decrement(ctx, tx) })
	}
	bare := func(ctx context.Context, _ *dedupe.Claim) error {
		tx, err := db.BeginTxx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		if err := decrement(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	}
	do := func(b *testing.B, cfg dedupe.Config, id func() string, want dedupe.Verdict, fn func(context.Context, *dedupe.Claim) error) {
		guard, err := dedupe.New(cfg)
		require.NoError(b, err)
		for b.Loop() {
			out, err := guard.Do(b.Context(), dedupe.Delivery{ID: id(), Fingerprint: dedupe.NoFingerprint}, fn)
			require.NoError(b, err)
			require.Equal(b, want, out.Verdict)
		}
	}
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			ids.Add(1)
			require.NoError(b, bare(b.Context(), nil))
		}
	})
	store := redisstore.New(client, redisstore.Config{})
	b.Run("row", func(b *testing.B) {
		do(b, dedupe.Config{Scope: "row", Mode: dedupe.Transactional, Log: log}, newID, dedupe.Claimed, inTx)
	})
	b.Run("row-and-redis", func(b *testing.B) {
		do(b, dedupe.Config{Scope: "both", Mode: dedupe.Transactional, Log: log, Store: store}, newID, dedupe.Claimed, inTx)
	})
	b.Run("duplicate-in-redis", func(b *testing.B) {
		cfg := dedupe.Config{Scope: "duplicate", Mode: dedupe.Transactional, Log: log, Store: store}
		guard, err := dedupe.New(cfg)
		require.NoError(b, err)
		_, err = guard.Do(b.Context(), dedupe.Delivery{ID: "same", Fingerprint: dedupe.NoFingerprint}, inTx)
		require.NoError(b, err)
		do(b, cfg, func() string { return "same" }, dedupe.Done, inTx)
	})
	b.Run("logged", func(b *testing.B) {
		do(b, dedupe.Config{Scope: "logged", Mode: dedupe.Logged, Log: log, Store: store}, newID, dedupe.Claimed, bare)
	})
}

// BenchmarkPipeline: what the pipeline and the guard cost when the stores cost nothing.
func BenchmarkPipeline(b *testing.B) {
	handler := func(_ context.Context, m *consumer.Message) error {
		if len(m.Value) == 0 {
			return fmt.Errorf("empty")
		}
		return nil
	}
	message := func() *consumer.Message {
		return &consumer.Message{Key: []byte("k"), Value: []byte("v"), Headers: consumer.Headers{{Name: "msg_id", Value: []byte(newID())}}}
	}
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, handler(b.Context(), message()))
		}
	})
	b.Run("memory", func(b *testing.B) {
		guard, err := dedupe.New(dedupe.Config{Scope: "bench", Mode: dedupe.RedisOnly, Store: memstore.New()})
		require.NoError(b, err)
		pipe, err := consumer.NewPipeline(consumer.Config{Guard: guard, ID: consumer.IDFromHeader("msg_id"), Handler: handler})
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			d := pipe.Process(b.Context(), message(), nil)
			if d.Action != consumer.Ack {
				b.Fatal(d.Err)
			}
		}
	})
}
