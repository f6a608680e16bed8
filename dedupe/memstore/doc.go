// Package memstore keeps claims in memory: a map, a mutex and a clock. It is for tests, yours and ours, and for reading: rules.go
// is what the comments of dedupe.Store mean, as code.
//
// A Store stands in for Redis. It is a dedupe.Memory: it forgets by itself, can be asked earlier than a log (Learn), and can be the
// authority of a scope. A Log stands in for idempotent_log in a database. It is a dedupe.Log: it has an incarnation and rows that only
// Purge and Forget remove, and its transactions (Transactional, Begin) commit a message's row and its effect together.
//
// What a real store loses can be lost here too: Store.Flush, and Snapshot with RestoreFrom for both.
//
// # Where the comments leave room
//
// This is how memstore reads them; storetest expects the same of every store, except where it says "not expected".
//
//   - A Log's done row is done whatever its incarnation, since the effect was restored with it; its Record carries the incarnation that
//     the log has now. To a Store, done and dead keys of another incarnation than the request's are absent, in every operation.
//   - A dead key of another incarnation is taken up like one that is redriven: next generation, counts 0. In a Log that holds for
//     unclaimed writes too.
//   - An unclaimed write compares no incarnation: it has no claim, and its row is written where its effect is.
//   - A claim of another whose lease has ended is Busy to everything but Claim and unclaimed writes.
//   - Only Claim counts deaths: an unclaimed write over an expired claim counts none.
//   - An owner that repeats its unclaimed release after another one failed is counted again (not expected): one too many, never one too few.
//   - A lease under a millisecond, a completion's retention under a millisecond, an empty owner and the zero key are refused. Other
//     retentions never make a Store forget earlier than an earlier write said, nor before the lease ends.
//   - Learn keeps the larger of each count within one generation and incarnation, and the larger fence always. It refuses StateAbsent.
//   - An owner that released a key may claim it again (not expected): no caller does, but a statement executed late may. It costs a lease.
//   - Claim writes the request's fingerprint whatever it takes (not expected, except for absent and dead keys).
//   - Purge with a limit or an age of zero or less is refused (age zero: not expected).
//   - Forget of an absent key is no error.
//   - A call whose context has ended does nothing: ErrUnavailable.
package memstore
