package memstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// Store is a dedupe.Store and dedupe.Memory in memory, as Redis is one. Safe for concurrent use.
type Store struct {
	*book

	// Of the memory, lost with it:
	life  string            // changes whenever the memory is another one
	marks map[string]string // scope -> the life that wrote its mark
	modes map[string]dedupe.Mode
	// Of the client:
	remembered map[string]bool // scopes whose loss is to be noticed
}

var _ dedupe.Memory = (*Store)(nil)

// New returns an empty Store that lives by time.Now.
func New() *Store { return NewWithClock(time.Now) }

// NewWithClock returns an empty Store that lives by now, which is asked once for each call and must be safe for concurrent use.
func NewWithClock(now func() time.Time) *Store {
	return &Store{
		book:       &book{clock: now, rows: map[dedupe.Key]row{}},
		life:       rand.Text(),
		marks:      map[string]string{},
		modes:      map[string]dedupe.Mode{},
		remembered: map[string]bool{},
	}
}

// Claim implements dedupe.Store.
func (s *Store) Claim(ctx context.Context, reqs []dedupe.ClaimRequest) []dedupe.Reply {
	return each(ctx, s.book, "claim", reqs, func(r dedupe.ClaimRequest) dedupe.Key { return r.Key }, s.claimUnlessLost)
}

func (s *Store) claimUnlessLost(b at, r dedupe.ClaimRequest) dedupe.Reply {
	if scope := r.Key.Scope(); s.remembered[scope] && s.marks[scope] != s.life {
		return dedupe.Reply{Err: dedupe.ErrMemoryLost}
	}
	return b.claim(r)
}

// Learn implements dedupe.Store.
func (s *Store) Learn(ctx context.Context, recs []dedupe.Record, retention time.Duration) []error {
	errs := make([]error, len(recs))
	view, unlock := s.lock()
	defer unlock()
	for i, rec := range recs {
		if errs[i] = ended(ctx); errs[i] == nil {
			errs[i] = view.learn(rec, retention)
		}
		errs[i] = opError("learn", rec.Key, errs[i])
	}
	return errs
}

// Remember implements dedupe.Memory.
func (s *Store) Remember(ctx context.Context, scope string) (lost bool, err error) {
	if err := ended(ctx); err != nil {
		return false, fmt.Errorf("memstore: remember scope %q: %w", scope, err)
	}
	_, unlock := s.lock()
	defer unlock()
	by, marked := s.marks[scope]
	s.marks[scope] = s.life
	s.remembered[scope] = true
	return marked && by != s.life, nil
}

// NoteMode implements dedupe.Memory.
func (s *Store) NoteMode(ctx context.Context, scope string, m dedupe.Mode) (dedupe.Mode, error) {
	return s.mode(ctx, "note", scope, m, false)
}

// ChangeMode implements dedupe.Memory. The Audit is not kept.
func (s *Store) ChangeMode(ctx context.Context, scope string, m dedupe.Mode, _ dedupe.Audit) error {
	_, err := s.mode(ctx, "change", scope, m, true)
	return err
}

func (s *Store) mode(ctx context.Context, op, scope string, m dedupe.Mode, change bool) (dedupe.Mode, error) {
	if err := errors.Join(ended(ctx), validMode(m)); err != nil {
		return 0, scopeError(op+" mode of", scope, err)
	}
	_, unlock := s.lock()
	defer unlock()
	if _, noted := s.modes[scope]; !noted || change {
		s.modes[scope] = m
	}
	return s.modes[scope], nil
}

// Flush loses everything, as a server restarted without persistence does.
func (s *Store) Flush() {
	_, unlock := s.lock()
	defer unlock()
	clear(s.rows)
	clear(s.marks)
	clear(s.modes)
	s.life = rand.Text()
}

// StoreSnapshot is what a Store knew at one moment.
type StoreSnapshot struct {
	rows  map[dedupe.Key]row
	marks map[string]string
	modes map[string]dedupe.Mode
}

// Snapshot is what s knows now.
func (s *Store) Snapshot() StoreSnapshot {
	view, unlock := s.lock()
	defer unlock()
	return StoreSnapshot{rows: view.copied(), marks: maps.Clone(s.marks), modes: maps.Clone(s.modes)}
}

// RestoreFrom makes s know what it knew at the snapshot and nothing since, as a server does that loaded an old file, or a replica
// that was promoted before it heard of the last writes: the memory is another one.
func (s *Store) RestoreFrom(snap StoreSnapshot) {
	_, unlock := s.lock()
	defer unlock()
	s.rows, s.marks, s.modes = maps.Clone(snap.rows), maps.Clone(snap.marks), maps.Clone(snap.modes)
	s.life = rand.Text()
}
