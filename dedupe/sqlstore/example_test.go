package sqlstore_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/jmoiron/sqlx"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/sqlstore"
)

// order is what a broker delivers, with its claim, as *consumer.Message is.
type order struct {
	id    string
	claim *dedupe.Claim
}

func (o order) Claim() *dedupe.Claim { return o.claim }

// exampleDB is a new SQLite database with one business table.
func exampleDB() (db *sqlx.DB, remove func()) {
	dir, err := os.MkdirTemp("", "sqlstore")
	if err != nil {
		log.Fatal(err)
	}
	if db, err = sqlstore.Open("sqlite:" + filepath.Join(dir, "shop.db")); err != nil {
		log.Fatal(err)
	}
	db.MustExec("CREATE TABLE stock (sku TEXT PRIMARY KEY, quantity INTEGER)")
	db.MustExec("INSERT INTO stock VALUES ('bolt', 10)")
	return db, func() { db.Close(); os.RemoveAll(dir) }
}

func quantity(db *sqlx.DB) (n int) {
	if err := db.Get(&n, "SELECT quantity FROM stock"); err != nil {
		log.Fatal(err)
	}
	return n
}

// Three deliveries of one order, one decrement.
func ExampleTransactional() {
	ctx := context.Background()
	db, remove := exampleDB()
	defer remove()

	idem := sqlstore.New(db, sqlstore.Config{})
	if err := idem.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Transactional, Log: idem})
	if err != nil {
		log.Fatal(err)
	}
	handle := sqlstore.Transactional(idem, func(ctx context.Context, tx *sqlx.Tx, o order) error {
		_, err := tx.ExecContext(ctx, "UPDATE stock SET quantity = quantity - 1")
		return err
	})
	for range 3 {
		d := dedupe.Delivery{ID: "order-1", Namespace: "orders", Fingerprint: dedupe.FingerprintOf([]byte("one bolt"))}
		out, err := guard.Do(ctx, d, func(ctx context.Context, c *dedupe.Claim) error { return handle(ctx, order{d.ID, c}) })
		fmt.Println(out.Verdict, err, quantity(db))
	}
	// Output:
	// claimed <nil> 9
	// done <nil> 9
	// done <nil> 9
}

// The row goes into a transaction of one's own, as its first statement.
func ExampleLog_Record() {
	ctx := context.Background()
	db, remove := exampleDB()
	defer remove()
	idem := sqlstore.New(db, sqlstore.Config{})
	if err := idem.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Transactional, Log: idem})
	if err != nil {
		log.Fatal(err)
	}
	handle := func(ctx context.Context, c *dedupe.Claim) error {
		tx, err := db.BeginTx(ctx, nil) // of database/sql, gorm, pgx, anything
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := idem.Record(ctx, tx, c); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE stock SET quantity = quantity - 1"); err != nil {
			return err
		}
		return tx.Commit()
	}
	d := dedupe.Delivery{ID: "order-1", Namespace: "orders", Fingerprint: dedupe.FingerprintOf([]byte("one bolt"))}
	for range 2 {
		out, err := guard.Do(ctx, d, handle)
		fmt.Println(out.Verdict, err, quantity(db))
	}
	// Output:
	// claimed <nil> 9
	// done <nil> 9
}

// What is wrong is said in one line each, with the remedy.
func ExampleLog_Check() {
	ctx := context.Background()
	db, remove := exampleDB()
	defer remove()
	idem := sqlstore.New(db, sqlstore.Config{})
	findings, err := idem.Check(ctx, dedupe.CheckEnv{})
	for _, f := range findings {
		fmt.Println(f.Error())
	}
	fmt.Println(err)
	// Output:
	// log-not-migrated: no table idempotent_log_meta; run Migrate, or the DDL, in the database that the log is in
	// <nil>
}

// The tables for one's own migrations.
func ExampleDDL() {
	ddl, err := sqlstore.DDL(sqlstore.Postgres, sqlstore.Config{Table: "shop_idempotent_log"})
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(ddl) {
		if strings.HasPrefix(line, "CREATE") || strings.HasPrefix(line, "INSERT") {
			fmt.Print(line)
		}
	}
	// Output:
	// CREATE TABLE IF NOT EXISTS "shop_idempotent_log_meta" (
	// CREATE TABLE IF NOT EXISTS "shop_idempotent_log" (
	// CREATE INDEX IF NOT EXISTS "shop_idempotent_log_purge" ON "shop_idempotent_log" (scope, state, expires_at);
	// INSERT INTO "shop_idempotent_log_meta" (scope, incarnation, schema_version, identity, created_at, updated_at)
}

// ExecFunc takes whatever runs a query and counts rows.
func ExampleExecFunc() {
	tx := sqlstore.ExecFunc(func(_ context.Context, query string, args ...any) (int64, error) {
		fmt.Println(query, len(args))
		return 1, nil
	})
	res, err := tx.ExecContext(context.Background(), "INSERT ...", 1, 2)
	if err != nil {
		log.Fatal(err)
	}
	n, err := res.RowsAffected()
	fmt.Println(n, err)
	// Output:
	// INSERT ... 2
	// 1 <nil>
}
