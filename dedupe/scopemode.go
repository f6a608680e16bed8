package dedupe

import (
	"context"
	"errors"
	"fmt"
)

// A scope runs in one mode, because two do not see each other's claims and what they know to be done. The log's scope row tells Transactional
// and Logged apart. RedisOnly asks no log, so all modes note theirs in Redis too: for RedisOnly that note decides, for the others it is what
// shows them that RedisOnly runs. They do without it when Redis does not answer, and cannot miss it after Redis was emptied.

// noteMode notes the scope's mode in Redis, and refuses to enter a scope that is noted to run in another.
func (g *Guard) noteMode(ctx context.Context) error {
	redis, ok := g.cfg.Store.(Memory)
	if !ok {
		return nil
	}
	mode := g.cfg.Mode
	noted, err := redis.NoteMode(ctx, g.cfg.Scope, mode)
	if err == nil && noted != mode && noted.hasLog() && mode.hasLog() { // the log has just said which of the two it is
		err = redis.ChangeMode(ctx, g.cfg.Scope, mode, Audit{By: "dedupe", Reason: "the log says so"})
		noted = mode
	}
	switch {
	case err != nil && mode == RedisOnly:
		return fmt.Errorf("dedupe: enter scope %q: %w", g.cfg.Scope, err)
	case err != nil:
		g.cfg.Logger.WarnContext(ctx, "mode not noted in redis: processes of this scope in redis-only would not be noticed",
			"scope", g.cfg.Scope, "mode", mode.String(), "err", err)
		return nil
	case noted != mode:
		return fmt.Errorf("dedupe: enter scope %q: %w: redis knows it as %v, not %v; stop all of its processes and use ChangeMode",
			g.cfg.Scope, ErrWrongMode, noted, mode)
	}
	return nil
}

// ChangeMode turns the scope to this guard's mode, in Redis where there is one and then in the log. All processes of the scope are stopped: two
// modes in one scope do not see each other's claims. Between RedisOnly and the others nothing is taken along: a message that was applied
// in the old mode and comes again is applied again. ErrUnavailable while Redis is configured and away, with the log unchanged: the mode noted there
// would be believed. After any error it may be called again.
func (g *Guard) ChangeMode(ctx context.Context, a Audit) error {
	if err := g.changeMode(ctx, a); err != nil {
		return fmt.Errorf("dedupe: change mode of scope %q: %w", g.cfg.Scope, err)
	}
	return nil
}

func (g *Guard) changeMode(ctx context.Context, a Audit) error {
	if redis, ok := g.cfg.Store.(Memory); ok {
		err := redis.ChangeMode(ctx, g.cfg.Scope, g.cfg.Mode, a)
		if IsOutage(err) {
			err = fmt.Errorf("%w: redis does not answer, and the mode noted there would be believed: %w", ErrUnavailable, err)
		}
		if err != nil {
			return err
		}
	}
	if !g.cfg.Mode.hasLog() {
		return nil
	}
	_, err := g.cfg.Log.Enter(ctx, ScopeRow{Scope: g.cfg.Scope, Mode: g.cfg.Mode, Retention: g.cfg.Retention}) // RedisOnly left it without a row
	if errors.Is(err, ErrWrongMode) {
		err = g.cfg.Log.ChangeMode(ctx, g.cfg.Scope, g.cfg.Mode, a)
	}
	return err
}
