// Package dedupe decides whether a delivery of a message may take effect.
//
// # What is promised
//
// Brokers deliver at least once. A Guard lets each message of a scope take effect once, whatever comes twice: a rebalance, a lost
// ack, a crashed consumer, a producer's retry, an operator's replay. How far that goes is the Mode's promise, in its comment. Wrap
// the work in Guard.Do: a nil error means acknowledge.
//
// What is not promised: that a message is delivered at all (that is the broker's), that two messages with different ids are not
// the same to the business (the id is the caller's), and, outside of Transactional, that an effect is undone when its process dies
// right after it.
//
// # Who decides
//
// There may be two stores: Redis (Store), asked first, and the table idempotent_log (Log). The log decides every effect. Redis
// answers earlier what the log knows already, and only two of its answers end a question: Done, which was written after the log's
// done was committed and carries the log's incarnation, and Busy, for at most one lease. Anything else, and no answer, leads to
// the log. So Redis may be down, slow, flushed, evicted, rolled back or behind: that costs speed and nothing else. (In RedisOnly
// there is no log, and Redis decides as far as it remembers.)
//
// # The claim
//
//	            Claim                Complete
//	absent ──┬────────▶ claimed ───────────────▶ done
//	free  ───┘           │  ▲ │                    never overwritten
//	  ▲      Release     │  │ │ Bury
//	  └──────────────────┘  │ └────────────────▶ dead
//	                        └───────────────────── a marked copy (redrive) only
//	                           expired: takeover
//
// A claim is the right to work on a key now. It has an owner, random for each delivery attempt, a lease, and counts of failures and
// deaths. Every write names key and owner and changes nothing when the claim is another's. Leases are judged by the store's clock
// when others ask, and by our own monotonic clock, from the sending of the last statement that was answered, when we ask ourselves.
//
// # After a failure
//
//   - The process dies holding a claim: others see Busy until the lease ends, then one of them takes over, and the death is counted.
//   - A reply is lost: the same statement is sent again with the same owner, and gives the same answer. Nobody guesses.
//   - The handler outlives its lease: its context ends with ErrLeaseLost (not in Transactional). If it succeeds all the same, its claim is
//     completed if nobody took it; else ErrStale.
//   - The handler succeeded and the log is away: completion is asked for until it is known. Given up, it is remembered by the
//     process, and the next delivery completes instead of running again.
//   - The database went back in time (restore, promoted standby): its incarnation changes, and what Redis remembers is not believed.
//
// # Stores
//
// dedupe/redisstore and dedupe/sqlstore are the real ones, dedupe/memstore is for tests, and dedupe/storetest is the behaviour that
// each of them has, as tests.
package dedupe
