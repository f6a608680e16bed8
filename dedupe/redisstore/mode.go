package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/idemq/idemq/dedupe"
)

// NoteMode implements dedupe.Memory. The note is a key of the scope without a time to live; an evicting server may drop it, and a flush does.
// The error of a Redis that is away is dedupe.ErrUnavailable.
func (s *Store) NoteMode(ctx context.Context, scope string, m dedupe.Mode) (noted dedupe.Mode, err error) {
	noted, err = s.noteMode(ctx, scope, m, false, "")
	return noted, opError("note mode of scope", strconv.Quote(scope), err)
}

// ChangeMode implements dedupe.Memory. The Audit is kept in the note.
func (s *Store) ChangeMode(ctx context.Context, scope string, m dedupe.Mode, a dedupe.Audit) error {
	_, err := s.noteMode(ctx, scope, m, true, a.By+": "+a.Reason)
	return opError("change mode of scope", strconv.Quote(scope), err)
}

func (s *Store) noteMode(ctx context.Context, scope string, m dedupe.Mode, change bool, audit string) (dedupe.Mode, error) {
	mode, err := m.MarshalText()
	if err != nil || s.invalid != nil {
		return 0, errors.Join(s.invalid, err)
	}
	c := &call{
		script: modeScript, keys: []string{s.modeKey(scope)}, decide: change || m == dedupe.RedisOnly,
		args: []any{string(mode), flag(change), audit},
	}
	s.run(ctx, []*call{c})
	if c.err != nil {
		return 0, fmt.Errorf("key %q: %w", c.keys[0], readOnly(c.err))
	}
	noted, err := dedupe.ParseMode(c.value)
	if err != nil {
		return 0, fmt.Errorf("key %q: %w: %w", c.keys[0], ErrForeign, err)
	}
	return noted, nil
}
