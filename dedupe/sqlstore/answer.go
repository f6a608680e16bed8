package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// question is one request of a call.
type question struct {
	key   dedupe.Key
	wrong error // the request itself is: nothing is asked
	// waits: another transaction may hold the row for long, so it is asked in a transaction that gives up early.
	waits bool
	ask   func(ctx context.Context, q querier, st statements) (dedupe.Reply, error)
	// locked is the reply where the wait for the row was over; nil: unavailable.
	locked func() dedupe.Reply
}

// chunk bounds how many rows one transaction of the log's own locks, and what has to fit into Timeout.
const chunk = 100

// answer asks every question and answers every one, sorted by key so that two batches do not lock each other out, the same key in
// order.
func (l *Log) answer(ctx context.Context, op string, qs []question) []dedupe.Reply {
	replies := make([]dedupe.Reply, len(qs))
	order := make([]int, 0, len(qs))
	for i, q := range qs {
		if replies[i].Err = q.wrong; q.wrong == nil {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return compareKeys(qs[a].key, qs[b].key) })
	for some := range slices.Chunk(order, chunk) {
		l.answerSome(ctx, qs, some, replies)
	}
	for i := range replies {
		replies[i].Err = keyError(op, qs[i].key, replies[i].Err)
	}
	return replies
}

// answerSome asks many in one transaction. Where one fails for a reason of its own they are asked one by one, so that it fails alone.
func (l *Log) answerSome(ctx context.Context, qs []question, some []int, replies []dedupe.Reply) {
	err := l.endedBefore(ctx)
	var st statements
	if err == nil {
		st, err = l.statements(ctx)
	}
	if err == nil && len(some) > 1 {
		err = l.together(ctx, func(ctx context.Context, q querier) (err error) {
			for _, i := range some {
				if replies[i], err = qs[i].ask(ctx, q, st); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			return
		}
		if isFault(err, faultData) || isFault(err, faultLocked) {
			err = nil
		}
	}
	for _, i := range some {
		if err != nil {
			replies[i] = dedupe.Reply{Err: err}
		} else {
			replies[i] = l.answerOne(ctx, st, qs[i])
		}
	}
}

func (l *Log) answerOne(ctx context.Context, st statements, qn question) (rep dedupe.Reply) {
	run := l.alone
	if qn.waits || l.d.readsAfter() {
		run = l.together
	}
	err := run(ctx, func(ctx context.Context, q querier) (err error) {
		rep, err = qn.ask(ctx, q, st)
		return err
	})
	switch {
	case err == nil:
		return rep
	case isFault(err, faultLocked) && qn.locked != nil:
		return qn.locked()
	}
	return dedupe.Reply{Err: err}
}

func compareKeys(a, b dedupe.Key) int {
	return cmp.Or(strings.Compare(a.Scope(), b.Scope()), strings.Compare(a.Namespace(), b.Namespace()), strings.Compare(a.ID(), b.ID()))
}

// What is checked of every request: values that no database should be asked to cut or to doubt.

// maxOwnerBytes is the size of the column in MySQL.
const maxOwnerBytes = 255

// maxResultBytes is the most that a guard allows for a result.
const maxResultBytes = 1 << 20

func checkKey(k dedupe.Key, o dedupe.Owner) error {
	switch {
	case k.IsZero():
		return fmt.Errorf("%w: key is zero; make one with dedupe.NewKey", dedupe.ErrInvalidID)
	case o == "":
		return errors.New("owner is empty; every delivery attempt has a random one")
	case len(o) > maxOwnerBytes:
		return fmt.Errorf("owner has %d bytes; at most %d", len(o), maxOwnerBytes)
	}
	return nil
}

func checkDuration(field string, d time.Duration) error {
	if d < time.Millisecond {
		return fmt.Errorf("%s %v: at least 1ms", field, d)
	}
	return nil
}

func checkOriginal(s string) error {
	if len(s) > dedupe.MaxOriginalBytes {
		return fmt.Errorf("original has %d bytes; at most %d", len(s), dedupe.MaxOriginalBytes)
	}
	return nil
}

func checkResult(b []byte) error {
	if len(b) > maxResultBytes {
		return fmt.Errorf("%w: %d bytes; at most %d", dedupe.ErrResultTooLarge, len(b), maxResultBytes)
	}
	return nil
}
