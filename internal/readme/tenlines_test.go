package readme_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/sqlstore"
)

type Order struct {
	SKU string
	Qty int
}

// README: ten lines

func decrement(ctx context.Context, tx *sqlx.Tx, m consumer.Decoded[Order]) error {
	_, err := tx.ExecContext(ctx, `UPDATE stock SET quantity = quantity - $1 WHERE sku = $2`, m.Body.Qty, m.Body.SKU)
	return err
}

func consume(ctx context.Context, db *sqlx.DB, brokers ...string) error {
	idem := sqlstore.New(db, sqlstore.Config{})
	guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Transactional, Log: idem})
	if err != nil {
		return err
	}
	pipe, err := consumer.NewPipeline(consumer.Config{Guard: guard, ID: consumer.IDFromHeader("msg_id"), Handler: consumer.JSON(sqlstore.Transactional(idem, decrement))})
	if err != nil {
		return err
	}
	return kafka.Run(ctx, kafka.Config{Brokers: brokers, Topics: []string{"orders"}}, pipe)
}

// README: end

// README: own loop

// ownLoop acknowledges what the guard says is settled. Retry and dead letters are yours here; a consumer.Pipeline does both.
func ownLoop(ctx context.Context, r *kafkago.Reader, guard *dedupe.Guard, apply, letter func(context.Context, kafkago.Message) error) error {
	for {
		m, err := r.FetchMessage(ctx)
		if err != nil {
			return err
		}
		d := dedupe.Delivery{ID: header(m, "msg_id"), Namespace: m.Topic, Fingerprint: dedupe.FingerprintOf(m.Value)}
		for settled := false; !settled; {
			_, err := guard.Do(ctx, d, func(ctx context.Context, _ *dedupe.Claim) error { return apply(ctx, m) })
			switch {
			case err == nil: // applied now or before, or a dead letter: acknowledge
				settled = true
			case errors.Is(err, dedupe.ErrInvalidID), errors.Is(err, dedupe.ErrConflict):
				settled = letter(ctx, m) == nil // repeating does not help
			} // else: busy, a store away, or apply's own error: nothing is acknowledged
			if !settled && !wait(ctx, time.Second) {
				return ctx.Err()
			}
		}
		if err := r.CommitMessages(ctx, m); err != nil {
			return err
		}
	}
}

// README: end

func header(m kafkago.Message, name string) string {
	for _, h := range m.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

var _ = ownLoop

// TestTenLines runs the README's program on an embedded broker.
func TestTenLines_SentTwice_AppliedOnce(t *testing.T) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	require.NoError(t, err)
	defer broker.Close()
	addr := broker.ListenAddrs()[0]
	order := kafka.WithID(&kafkago.Message{Key: []byte("tea"), Value: []byte(`{"SKU":"tea","Qty":2}`)}, "order-1")
	transport := &kafkago.Transport{MetadataTopics: []string{"orders"}}
	defer transport.CloseIdleConnections()
	w := &kafkago.Writer{Addr: kafkago.TCP(addr), Topic: "orders", RequiredAcks: kafkago.RequireAll, Transport: transport}
	require.NoError(t, w.WriteMessages(t.Context(), *order, *order))
	require.NoError(t, w.Close())

	db, err := sqlstore.Open("sqlite:" + filepath.Join(t.TempDir(), "readme.db"))
	require.NoError(t, err)
	defer db.Close()
	idem := sqlstore.New(db, sqlstore.Config{})
	require.NoError(t, idem.Migrate(t.Context()))
	db.MustExec("CREATE TABLE stock (sku TEXT PRIMARY KEY, quantity INTEGER NOT NULL)")
	db.MustExec("INSERT INTO stock VALUES ('tea', 10)")

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- consume(ctx, db, addr) }()
	client := &kafkago.Client{Addr: kafkago.TCP(addr), Transport: transport}
	require.Eventually(t, func() bool { return committed(t, client) == 2 }, waitFor, pollEvery, "both records are acknowledged")
	stop()
	require.NoError(t, <-ended)
	var quantity int
	require.NoError(t, db.Get(&quantity, "SELECT quantity FROM stock WHERE sku = 'tea'"))
	require.Equal(t, 8, quantity)
}

func committed(t *testing.T, client *kafkago.Client) int64 {
	t.Helper()
	res, err := client.OffsetFetch(t.Context(), &kafkago.OffsetFetchRequest{GroupID: "inventory", Topics: map[string][]int{"orders": {0}}})
	if err != nil || res.Error != nil || len(res.Topics["orders"]) != 1 {
		return -1
	}
	return res.Topics["orders"][0].CommittedOffset
}
