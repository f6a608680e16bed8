package consumer

import (
	"context"
	"fmt"
	"iter"

	"github.com/idemq/idemq/dedupe"
)

// DeadLetterQueue is what an operator works with. Adapters implement it.
type DeadLetterQueue interface {
	DeadLetters
	// List yields what is stored now and ends. Nothing is removed. A letter that cannot be read is yielded with an error, and the list goes on;
	// when the queue itself fails, the error is the last item.
	List(ctx context.Context) iter.Seq2[DeadLetter, error]
	// Resend sends the message to its original topic with ResendHeaders and returns when the broker has acknowledged it.
	Resend(ctx context.Context, d DeadLetter) error
}

// RedriveOptions say what is sent again, and who does it.
type RedriveOptions struct {
	// Select picks; nil takes all that the guard still holds Dead, and those without an id.
	Select func(DeadLetter) bool
	// Audit travels with the copies (HeaderRedrivenBy).
	Audit dedupe.Audit
	// DryRun counts and sends nothing.
	DryRun bool
}

// RedriveReport counts letters. Seen is all that were listed; those that Select did not take are in no other number.
type RedriveReport struct {
	Seen, Redriven, Skipped int
	Failed                  []error
}

// Redrive sends each selected letter again, marked. Killed in between, it can be run again: a copy too many meets Done. A letter whose
// key is done or held is skipped, and so are a second letter of a key, letters of another scope, which would not honour the mark, and
// conflict letters, which are not the message that holds their key; one without an id is only sent. The error says that it could not look at all letters; letters that failed one by one are in the report.
func Redrive(ctx context.Context, g *dedupe.Guard, q DeadLetterQueue, opt RedriveOptions) (RedriveReport, error) {
	var rep RedriveReport
	sent := map[dedupe.Key]bool{}
	for d, err := range q.List(ctx) {
		if ctx.Err() != nil {
			return rep, fmt.Errorf("consumer: redrive: %w", context.Cause(ctx))
		}
		if err != nil {
			rep.Failed = append(rep.Failed, err)
			continue
		}
		rep.Seen++
		if opt.Select != nil && !opt.Select(d) {
			continue
		}
		k, send, err := redrivable(ctx, g, d, opt.Select == nil)
		switch {
		case err != nil:
			rep.Failed = append(rep.Failed, err)
			continue
		case !send || sent[k]:
			rep.Skipped++
			continue
		}
		if !opt.DryRun {
			d.RedrivenBy = opt.Audit.By + ": " + opt.Audit.Reason
			if err := q.Resend(ctx, d); err != nil {
				rep.Failed = append(rep.Failed, fmt.Errorf("consumer: send dead letter of %v again: %w", d.Message.Origin, err))
				continue
			}
		}
		rep.Redriven++
		if !k.IsZero() {
			sent[k] = true
		}
	}
	if ctx.Err() != nil {
		return rep, fmt.Errorf("consumer: redrive: %w", context.Cause(ctx))
	}
	return rep, nil
}

// redrivable asks the guard about d. The zero Key: d has no id.
func redrivable(ctx context.Context, g *dedupe.Guard, d DeadLetter, deadOnly bool) (k dedupe.Key, send bool, err error) {
	if d.Scope != g.Scope() {
		return dedupe.Key{}, false, nil
	}
	if d.Reason == ReasonConflict { // another message than the one that holds its key
		return dedupe.Key{}, false, nil
	}
	if d.ID == "" {
		return dedupe.Key{}, true, nil
	}
	if k, err = g.Key(d.Namespace, d.ID); err != nil {
		return k, false, err
	}
	rec, err := g.Inspect(ctx, k)
	if err != nil {
		return k, false, err
	}
	switch rec.State {
	case dedupe.StateDone:
		return k, false, nil
	case dedupe.StateClaimed:
		return k, rec.LeaseLeft <= 0 && !deadOnly, nil
	case dedupe.StateDead:
		return k, true, nil
	}
	return k, !deadOnly, nil
}
