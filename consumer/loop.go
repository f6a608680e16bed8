package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/idemq/idemq/internal/hook"
)

// Settle is Process for a loop without redelivery of its own: it waits and tries again in place until the message is settled.
// nil means: acknowledge. Otherwise the context ended (its cause is returned), a drain began (ErrDraining), or the pipeline halted; nothing
// may be acknowledged then.
func (p *Pipeline) Settle(ctx context.Context, m *Message, dl DeadLetters) error {
	for outages := 0; ; {
		d := p.Process(ctx, m, dl)
		switch d.Action {
		case Ack:
			return nil
		case Halt:
			return fmt.Errorf("consumer: settle %v: %w", m.Position, d.Err)
		}
		wait := d.After
		if outages++; d.Why != Outage {
			outages = 0
		} else {
			if outages == 1 {
				p.cfg.Logger.WarnContext(ctx, "outage; trying again until it ends", "topic", m.Topic, "partition", m.Partition, "err", errorText(d.Err))
			}
			wait = max(wait, p.cfg.Policy.Retry.Backoff.Delay(outages))
		}
		if err := sleep(ctx, max(wait, time.Millisecond)); err != nil {
			return fmt.Errorf("consumer: settle %v: %w", m.Position, errors.Join(err, d.Err))
		}
	}
}

// settled tells hooks and log of the end of a delivery. An outage is told once by who waits for its end, the adapter or Settle, and not with
// each message that it sends back.
func (p *Pipeline) settled(ctx context.Context, m *Message, d Disposition, took time.Duration) {
	level := slog.LevelDebug
	switch {
	case d.Action == Halt:
		level = slog.LevelError
	case d.Why == Failed:
		level = slog.LevelInfo
	}
	if log := p.cfg.Logger; log.Enabled(ctx, level) {
		attrs := append(p.whichMessage(m),
			slog.String("outcome", d.Action.String()), slog.String("verdict", d.Verdict.String()), slog.Duration("took", took))
		if d.Action == Again {
			attrs = append(attrs, slog.String("why", d.Why.String()), slog.Duration("after", d.After))
		}
		if d.Failures > 0 {
			attrs = append(attrs, slog.Int("failures", d.Failures))
		}
		if d.Err != nil {
			attrs = append(attrs, slog.String("err", errorText(d.Err)))
		}
		log.LogAttrs(ctx, level, "settled", attrs...)
	}
	hook.Each(ctx, p.cfg.Logger, p.cfg.Hooks, func(h HookSettled) { h.OnSettled(ctx, m, d, took) })
}

// whichMessage names m in the log: where it was read and, if it has an id, the hash of its key.
func (p *Pipeline) whichMessage(m *Message) []slog.Attr {
	attrs := []slog.Attr{slog.String("topic", m.Topic), slog.Int("partition", int(m.Partition)), slog.Int64("offset", m.Offset)}
	if k, err := p.cfg.Guard.Key(m.namespace, m.id); err == nil {
		attrs = append(attrs, slog.Any("key", k))
	}
	return attrs
}
