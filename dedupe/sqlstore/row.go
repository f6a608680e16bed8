package sqlstore

import (
	"context"
	"strings"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// row is what one statement saw of a key, and of the log at the same moment.
type row struct {
	dedupe.Record        // StateAbsent: there is no row
	present       string // the log's incarnation
	written       string // the row's
}

// read reads the row of k; an absent one is an answer.
func (l *Log) read(ctx context.Context, q querier, st statements, k dedupe.Key) (row, error) {
	r, err := l.scan(ctx, q, st["read"], keyArgs(k), k)
	if noRow(err) {
		return row{Record: dedupe.Record{Key: k}}, nil
	}
	return r, err
}

// write runs a statement that writes at most the row of k, and returns the row as it is then, whoever wrote it. Where the dialect readsAfter,
// q is a transaction.
func (l *Log) write(ctx context.Context, q querier, st statements, name string, k dedupe.Key, a args) (r row, wrote bool, err error) {
	if l.d.returning {
		r, err = l.scan(ctx, q, st[name], a, k)
		if !noRow(err) {
			return r, err == nil, err
		}
	} else {
		n, err := l.exec(ctx, q, st[name], a)
		if err != nil {
			return r, false, err
		}
		wrote = n == 1
	}
	r, err = l.read(ctx, q, st, k)
	return r, wrote, err
}

// scan reads one row of columns.sql.
func (l *Log) scan(ctx context.Context, q querier, s statement, a args, k dedupe.Key) (row, error) {
	var (
		r                                     row
		owner, fingerprint, original          []byte
		left, createdAt, updatedAt, expiresAt int64
	)
	err := l.query(ctx, q, s, a, &r.State, &owner, &r.Fence, &left, &r.Failures, &r.Deaths, &r.AloneDeaths, &r.Alone, &r.Generation,
		&r.written, &fingerprint, &r.Result, &r.Reason, &original, &createdAt, &updatedAt, &expiresAt, &r.present)
	if err != nil {
		return row{}, err
	}
	r.Key, r.Owner, r.Original = k, dedupe.Owner(owner), string(original)
	copy(r.Fingerprint[:], fingerprint)
	r.CreatedAt, r.UpdatedAt = time.UnixMilli(createdAt), time.UnixMilli(updatedAt)
	r.Incarnation = dedupe.Incarnation(r.written)
	switch r.State {
	case dedupe.StateClaimed:
		r.LeaseLeft = time.Duration(left) * time.Millisecond
	case dedupe.StateDone: // its effect is in this life of the log, whichever life it was written in
		r.ExpiresAt = time.UnixMilli(expiresAt)
		r.Incarnation = dedupe.Incarnation(r.present)
	}
	return r, nil
}

// claimedBy: o holds the claim, expired or not.
func (r row) claimedBy(o dedupe.Owner) bool { return r.State == dedupe.StateClaimed && r.Owner == o }

// held: the claim of g is in place.
func (r row) held(g dedupe.Grip) bool {
	return r.claimedBy(g.Owner) && r.written == string(g.Incarnation) && r.present == r.written
}

// verdict about a key that is not the caller's.
func (r row) verdict() dedupe.Verdict {
	switch r.State {
	case dedupe.StateClaimed:
		return dedupe.Busy
	case dedupe.StateDead:
		return dedupe.Dead
	case dedupe.StateDone:
		return dedupe.Done
	default:
		return 0
	}
}

// inPlace says that a write is there, by this call or an earlier one of the same owner.
func (r row) inPlace() dedupe.Reply {
	return dedupe.Reply{Verdict: dedupe.Claimed, Record: r.Record}
}

// stale says whose the key is instead.
func (r row) stale() dedupe.Reply {
	return dedupe.Reply{Verdict: r.verdict(), Record: r.Record, Err: dedupe.ErrStale}
}

// keyArgs are the parameters that name k.
func keyArgs(k dedupe.Key) args {
	return args{"scope": []byte(k.Scope()), "namespace": []byte(k.Namespace()), "msg_id": []byte(k.ID())}
}

// with adds more parameters.
func (a args) with(more args) args {
	for name, v := range more {
		a[name] = v
	}
	return a
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// maxReasonRunes is the size of the column in MySQL.
const maxReasonRunes = 1024

// text is s as every database takes it: valid UTF-8, no NUL, not too long. It is for people.
func text(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if r := []rune(s); len(r) > maxReasonRunes {
		s = string(r[:maxReasonRunes])
	}
	return s
}

func audit(a dedupe.Audit) string { return text(a.By + ": " + a.Reason) }
