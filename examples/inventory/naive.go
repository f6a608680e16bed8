package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/segmentio/kafka-go"
)

// consumeNaively is the loop that most people write first: fetch, apply in a transaction, commit the offset. It is careful about
// everything but one thing: it believes that a message comes once.
func consumeNaively(ctx context.Context, s services, db *sqlx.DB, log *slog.Logger, settled func()) error {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: s.Brokers, GroupID: s.naiveGroup(), Topic: s.Topic, StartOffset: kafka.FirstOffset,
		SessionTimeout: s.Session, HeartbeatInterval: s.Session / 4, JoinGroupBackoff: 200 * time.Millisecond,
		MaxWait: 250 * time.Millisecond, CommitInterval: time.Second,
	})
	defer r.Close() //nolint:errcheck // it commits what it can
	for {
		m, err := r.FetchMessage(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		for !applyNaively(ctx, db, m, log) {
			if wait(ctx, 200*time.Millisecond) != nil {
				return nil
			}
		}
		settled()
		if err := r.CommitMessages(ctx, m); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// applyNaively reports whether the message may be acknowledged: applied, or refused for good.
func applyNaively(ctx context.Context, db *sqlx.DB, m kafka.Message, log *slog.Logger) bool {
	var o Order
	if err := json.Unmarshal(m.Value, &o); err != nil {
		log.Warn("not an order", "err", err)
		return true
	}
	err := inTx(ctx, db, func(tx *sqlx.Tx) error { return take(ctx, tx, orderID(m), o) })
	if errors.Is(err, errOutOfStock) || errors.Is(err, errQuantity) {
		log.Info("refused", "err", err)
		return true
	}
	if err != nil {
		log.Warn("not applied, trying again", "err", err)
	}
	return err == nil
}
