// Package consumer runs a handler for each message that a broker delivers, and settles the delivery.
//
// A Pipeline stands between an adapter, which reads and acknowledges, and a dedupe.Guard, which knows what was applied. It finds the
// message's id, asks the guard for a claim, runs the handler under it, tries again what failed, and writes the dead letter of what
// cannot be applied. The adapter only obeys its Disposition.
//
//	pipe, err := consumer.NewPipeline(consumer.Config{
//		Guard:   guard,
//		ID:      consumer.IDFromHeader("msg_id"),
//		Handler: consumer.JSON(func(ctx context.Context, m consumer.Decoded[Order]) error { return ship(ctx, m.Body) }),
//	})
//	err = kafka.Run(ctx, kafka.Config{Brokers: brokers, Topics: []string{"orders"}}, pipe)
//
// # What a handler does
//
// It returns nil when the message is applied, and only then. An error counts as a failure and the message is tried again as Policy says, so
// what a handler did before it failed must be undone or harmless to repeat: in Transactional mode the transaction sees to that. Permanent
// says that trying again cannot help; RetryAfter, that it cannot help sooner. A panic is a failure.
//
// It stops when its context ends: its time is up (ErrHandlerTimeout, which counts), or, and these do not count, its claim is
// lost (dedupe.ErrLeaseLost), the consumer stops (ErrDraining) or the partition went to another (ErrRevoked). Handlers run beside each
// other, up to Policy.Concurrency; with OrderKey those of one key run one after the other.
//
// # How a delivery ends
//
//   - Acknowledged as applied: the handler returned nil and the guard has recorded it.
//   - Acknowledged as a known duplicate: it was applied, or parked, before. The handler does not run.
//   - Acknowledged as a dead letter, with one of the Reasons: it failed too often or for good, has no id or another message's id, cannot be
//     decoded, or kills its process. The letter is stored before anything is acknowledged. Redrive sends letters again.
//   - Not acknowledged, and delivered again: it failed and its next try is later (Failed), another owner works on it (WhyBusy), a
//     store does not answer (Outage), or the consumer stops (Draining). Only Failed counts: no outage makes a dead letter. With
//     Policy.Retry.Tiers a copy waits on a retry topic instead, and the message is acknowledged once the copy is stored.
//   - Not acknowledged, and the consumer or its partition stops (Halt): going on could lose or repeat something, and a person has to look.
//
// # What is not promised
//
// That each delivery runs the handler, or that the handler runs once: its effect happens once, as far as the guard's Mode says. That the
// next message of a key waits for one that became a dead letter, unless Policy.AfterLetter is Block. That a letter is
// written once: after a crash there may be two. That ids are good: they are the caller's, and two messages with one id and different
// bodies are a conflict.
//
// A Pipeline has no goroutines of its own between calls, and is safe for concurrent use. Loops without an adapter call Settle.
package consumer
