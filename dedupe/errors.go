package dedupe

import (
	"errors"
	"fmt"
	"time"
)

// What a caller may conclude is in each comment. Test with errors.Is.
var (
	// ErrBusy: another owner holds a live claim. Nothing ran. Do not acknowledge; try again (BusyError says in how long).
	ErrBusy = errors.New("another owner holds the claim")
	// ErrConflict: the id is known with another fingerprint. Nothing ran. Dead-letter it.
	ErrConflict = errors.New("same id, other payload")
	// ErrInvalidID: empty id, bad scope or missing fingerprint. Nothing ran and nothing was asked.
	ErrInvalidID = errors.New("invalid id")
	// ErrStale: the claim is no longer held: it was taken over or settled. The write did not happen.
	ErrStale = errors.New("claim is no longer held")
	// ErrLeaseLost is the cause of a handler's cancelled context.
	ErrLeaseLost = errors.New("lease lost")
	// ErrUnavailable: the store surely did not do it (refused connection, breaker open, not sent). Safe to repeat.
	ErrUnavailable = errors.New("store unavailable")
	// ErrOutcomeUnknown: the store may have done it. Ask again with the same owner; never guess. Do not acknowledge.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrMemoryLost: RedisOnly, and Redis no longer knows what it knew: duplicates of earlier messages would apply. Nothing ran.
	ErrMemoryLost = errors.New("redis lost its memory of this scope")
	// ErrDuplicate comes from Record and InTx: the row exists and is not ours. Roll back and return it (wrapped or not): the guard
	// reads the row outside of the transaction and answers Done, Dead, Conflict or Busy.
	ErrDuplicate = errors.New("message is recorded already")
	// ErrNoClaim: Record or InTx found no claim: wrong context, or called after the handler returned. Nothing was written.
	ErrNoClaim = errors.New("no claim in context")
	// ErrNotRecorded: Transactional, and the handler returned nil without a row. The work may be committed without its row, so
	// it is not run again: the pipeline dead-letters the message and halts. Copies of it that were in work at the same time may have taken effect
	// too: nothing but the row keeps them apart.
	ErrNotRecorded = errors.New("handler returned nil without recording: wrap it in sqlstore.Transactional, or call Log.Record in its transaction")
	// ErrRecorded: a second InTx or Record on a claim whose commit is known: a programming error. Do not acknowledge; halt.
	ErrRecorded = errors.New("claim is recorded already")
	// ErrNotApplied: Transactional, and the handler returned nil although the transaction with its row was not committed.
	// Nothing took effect; it is run again.
	ErrNotApplied = errors.New("row is not there: the transaction was not committed")
	// ErrNotDead: Reopen of a key that is not dead, for instance because it was reopened already.
	ErrNotDead = errors.New("key is not dead")
	// ErrNested: Do for a key inside a handler that holds the same key. Nothing ran: it would wait for itself.
	ErrNested = errors.New("nested Do with the same key")
	// ErrWrongMode: the scope runs in another mode, or Record and InTx are used outside Transactional. Nothing was written. Halt.
	ErrWrongMode = errors.New("wrong mode")
	// ErrResultTooLarge: SetResult over Config.MaxResultBytes. The result is not kept, and nothing is cut.
	ErrResultTooLarge = errors.New("result too large")
	// ErrClosed: the guard is closed.
	ErrClosed = errors.New("guard is closed")
)

// errOtherLog is ErrNotRecorded of a Log that is not the guard's.
type errOtherLog struct{}

func (errOtherLog) Error() string {
	return "this is not the log of the guard: use the same sqlstore.Log for both"
}

func (errOtherLog) Unwrap() error { return ErrNotRecorded }

// BusyError is ErrBusy with how long the lease lasts unless renewed: a duration, because the lease is judged by the store's clock.
type BusyError struct {
	Key     Key
	RetryIn time.Duration
}

// Error names the key by its hash.
func (e *BusyError) Error() string {
	return fmt.Sprintf("dedupe: claim %v: %v, for %v unless renewed", e.Key, ErrBusy, e.RetryIn.Round(time.Millisecond))
}

// Is makes errors.Is(err, ErrBusy) true.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// opError is the one shape of our errors: package, operation, key, cause.
func opError(op string, k Key, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("dedupe: %s %v: %w", op, k, err)
}

// opErrorNoKey is opError where there is no key yet.
func opErrorNoKey(op string, err error) error { return fmt.Errorf("dedupe: %s: %w", op, err) }

// IsOutage reports whether err says that a store could not answer: unavailable or outcome unknown. Such an error never counts as
// an attempt and never leads to a dead letter.
func IsOutage(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown)
}
