package dedupe

import (
	"context"
	"time"
)

// Owner names one delivery attempt. Random, so that a reply which was lost can be asked for again, and nobody else can act on
// the claim; never used again once a release or a Dead was sent with it.
type Owner string

// Incarnation names one life of a log: it changes when the data went back (restore, promoted standby). A Done in Redis that
// carries another incarnation is not believed. RedisOnly has none: the empty Incarnation.
type Incarnation string

// Record is what a store knows about a key.
type Record struct {
	Key         Key
	Original    string // the id before hashing, cut at MaxOriginalBytes; empty when ID is not hashed
	State       State
	Owner       Owner         // of the claim; of a free, dead or done key: the last owner
	Fence       int64         // milliseconds; grows with each claim
	LeaseLeft   time.Duration // of a claimed key, by the store's clock when it answered; zero or less: expired
	Failures    int           // releases after the handler's own failure
	Deaths      int           // takeovers of an expired claim
	AloneDeaths int           // those of claims that ran alone in their process
	Alone       bool          // this claim runs alone in its process
	Generation  int           // how often a dead key was taken up again
	Incarnation Incarnation   // of the statement that wrote the record; in every answer of a Log about a done key: the log's present one, read in the same statement
	Fingerprint Fingerprint
	Result      []byte // of a done key
	Reason      string // of a dead key
	CreatedAt   time.Time
	UpdatedAt   time.Time
	ExpiresAt   time.Time // of a done key, by the store's clock: when it may be forgotten
}

// Grip proves a claim to a store. Every write compares Key and Owner; a Log compares Incarnation too, with the claim's row and
// with the log's present one, so that a claim made before a restore is not completed after it. (Not in Unclaimed requests: there is no claim
// whose life could have ended.)
type Grip struct {
	Key         Key
	Owner       Owner
	Incarnation Incarnation
}

// ClaimRequest asks for the right to work on Key.
type ClaimRequest struct {
	Key         Key
	Original    string
	Owner       Owner
	Fingerprint Fingerprint
	Lease       time.Duration // how long the claim lasts unless renewed; at least 1 ms
	Retention   time.Duration // how long a store that forgets by itself keeps the key after its last write
	Redriven    bool          // a marked copy of a dead letter: for it, Dead is free
	Alone       bool          // nothing else runs in this process

	// Incarnation of the log as the caller knows it. For Redis: a done or dead key of another incarnation counts as absent. A Log
	// ignores it and takes its own.
	Incarnation Incarnation
}

// Reply answers one request. Err nil: what Verdict says. Otherwise Err is ErrStale (not written: the claim is not ours; Verdict and
// Record say whose), ErrUnavailable (surely not done), ErrOutcomeUnknown (perhaps done: ask again with the same owner),
// ErrMemoryLost, or an error that repeating cannot mend.
//
// To Claim, Verdict is Claimed (also when the same owner asks again), Busy, Done or Dead. A store never says Conflict: the guard
// compares fingerprints. To Renew, Complete, Release and Bury, Claimed means that the write is in place, by this call or by an
// earlier one of the same owner; with ErrStale it is Busy, Done, Dead, or zero for a key that is free or absent.
// Record is the state after the call, complete as far as the store keeps it.
type Reply struct {
	Verdict Verdict
	Record  Record
	Taken   bool // Claim: from an expired owner
	Err     error
}

// RenewRequest makes a held claim last for Lease from now.
type RenewRequest struct {
	Grip
	Lease time.Duration
}

// CompleteRequest turns a held claim into done.
type CompleteRequest struct {
	Grip
	Fingerprint Fingerprint
	Original    string
	Result      []byte
	Retention   time.Duration

	// Unclaimed: the key was never claimed in this store (Transactional mode, claim.NoEffect). Absent, free and expired keys become done
	// too, and dead ones when Redriven.
	Unclaimed bool
	Redriven  bool
}

// ReleaseRequest frees a held claim.
type ReleaseRequest struct {
	Grip
	// Failed counts one failure; false is a hand-back, which counts nothing.
	Failed bool
	// Failures is the number that the log returned, for a store that only answers earlier what the log knows; 0: the store counts by itself.
	Failures int

	// Unclaimed: the key was never claimed in this store (Transactional mode): absent, free and expired keys become free with the
	// failure counted, once for each owner: as long as the row remembers it, which is until the next one writes.
	// Fingerprint and Original are stored with a new row.
	Unclaimed   bool
	Fingerprint Fingerprint
	Original    string
	Redriven    bool // Unclaimed: a dead key may be freed, its counts starting again from this failure, in the next generation
	// Retention as in ClaimRequest; zero, or less than the claim's, keeps the claim's.
	Retention time.Duration
}

// BuryRequest turns a held claim into dead. The dead letter is stored before.
type BuryRequest struct {
	Grip
	Reason    string
	Retention time.Duration // as in ReleaseRequest

	// Unclaimed: the key was never claimed in this store (Transactional mode): absent, free, expired and dead keys become dead. Where another
	// transaction holds the row for too long, the reply is ErrStale with Busy.
	Unclaimed   bool
	Fingerprint Fingerprint
	Original    string
}

// Store keeps claims. Implementations pass storetest.Run.
//
// Reply i answers request i and every request is answered; one bad request never fails its neighbours; the same key twice in a
// call is decided in order. Methods may be called concurrently, keep none of their arguments, use the store's own clock, and
// return when ctx ends. The same owner asking again gets the same answer: a repeated Claim is Claimed with the same fence, its
// lease renewed and nothing counted; a repeated Complete, Release or Bury counts once. Nothing is retried inside unless it surely
// was not sent.
type Store interface {
	// Claim takes absent, free and expired keys (a takeover: Deaths + 1, and AloneDeaths + 1 if the expired claim was Alone), dead
	// keys of another incarnation, and, for a Redriven request, dead keys: Failures, Deaths and AloneDeaths become 0, Generation
	// goes up by one, and the old fingerprint is replaced. A takeover tests the end of the lease inside the statement.
	Claim(ctx context.Context, reqs []ClaimRequest) []Reply
	// Renew works on an expired claim too, as long as nobody took it.
	Renew(ctx context.Context, reqs []RenewRequest) []Reply
	// Complete works on an expired claim too, as long as nobody took it. Done keeps its owner.
	Complete(ctx context.Context, reqs []CompleteRequest) []Reply
	// Release keeps the counts and the last owner. Record.Failures is the number after it.
	Release(ctx context.Context, reqs []ReleaseRequest) []Reply
	// Bury never writes over done, nor over a claim of another.
	Bury(ctx context.Context, reqs []BuryRequest) []Reply
	// Learn tells a store that only answers earlier what the log knows: Done, Dead, Free or Claimed by another. Where what is there
	// is of the record's incarnation, Done is never overwritten, and a higher generation by Done only. Retention says how long to keep it. A Log answers
	// errors.ErrUnsupported.
	Learn(ctx context.Context, recs []Record, retention time.Duration) []error
	// Inspect reads without changing anything; an unknown key is StateAbsent.
	Inspect(ctx context.Context, keys []Key) ([]Record, error)
	// Reopen turns dead into free: Generation + 1, counts 0, fingerprint cleared, the incarnation as it was. ErrNotDead, with the record as it is, otherwise.
	Reopen(ctx context.Context, k Key, a Audit) (Record, error)
	// Forget removes a key: its next delivery is new and will take effect again. ErrBusy while a live claim is held. A Log may
	// keep the Audit with the scope's row; a store without one drops it.
	Forget(ctx context.Context, k Key, a Audit) error
	// Check finds settings that break the contract (eviction, folding collation, missing key). An error means that the store could
	// not be asked: ErrUnavailable when it is away, any other when it refuses us (wrong password, no permission).
	Check(ctx context.Context, env CheckEnv) ([]Finding, error)
}

// Log is a Store that survives: rows of idempotent_log.
type Log interface {
	Store
	// Enter writes the scope's row if there is none and returns it. The larger retention is kept. A scope that runs in another mode is
	// ErrWrongMode.
	Enter(ctx context.Context, s ScopeRow) (ScopeRow, error)
	// ChangeMode sets the scope's mode; a scope that nobody has entered is an error. All of its processes are stopped: two modes in one scope
	// do not see each other's claims.
	ChangeMode(ctx context.Context, scope string, m Mode, a Audit) error
	// Incarnation reads the present one on a connection that has been open since, or reads it again: the heartbeat. No answer means that
	// Done in Redis is not believed.
	Incarnation(ctx context.Context) (Incarnation, error)
	// Restored gives the log a new incarnation. It belongs to the procedure of every restore.
	Restored(ctx context.Context, a Audit) (Incarnation, error)
	// Purge deletes at most limit rows of scope: done ones by ExpiresAt, free ones and expired claims not updated for staleAfter. Never a live
	// claim, never dead. It returns how many it deleted; fewer than limit means that nothing is left to delete.
	Purge(ctx context.Context, scope string, staleAfter time.Duration, limit int) (int, error)
	// Identity is equal for two Logs that write the same tables through the same pool. Wrappers pass it through.
	Identity() any
}

// ScopeRow is what the log knows about a scope.
type ScopeRow struct {
	Scope       string
	Mode        Mode
	Retention   time.Duration
	Incarnation Incarnation // returned, not written
}

// Audit says who did something by hand, and why. It is stored with the row as its reason, "by: reason"; of Forget with the scope's row.
type Audit struct{ By, Reason string }

// CheckEnv is what a store compares its settings with.
type CheckEnv struct {
	Scope       string
	Mode        Mode
	Lease       time.Duration
	Retention   time.Duration
	Concurrency int // messages in work in this process; 0: unknown
}

// Memory is a Store that can be the authority of a scope (RedisOnly), that notices when it lost what it knew, and in which RedisOnly and the
// modes with a log find each other.
type Memory interface {
	Store
	// Remember writes the marks by which a loss is noticed, and accepts the memory as it is now. lost says that marks were there
	// and that the memory is not the one that wrote them. After it, Claim answers ErrMemoryLost for scope once the marks are gone or the
	// server is another one.
	Remember(ctx context.Context, scope string) (lost bool, err error)
	// NoteMode notes that scope runs in m, unless a mode is noted already, and returns the one that is noted now. The note lasts as long as
	// the memory: after a loss nothing is noted. Any error may be answered by asking again.
	NoteMode(ctx context.Context, scope string, m Mode) (noted Mode, err error)
	// ChangeMode notes m whatever is noted. All processes of the scope are stopped.
	ChangeMode(ctx context.Context, scope string, m Mode, a Audit) error
}

// Finding of a check. Code is stable and from a closed set ("redis-evicts", "id-column-folds", "retention-below-horizon").
type Finding struct {
	Refuse bool // false: warn
	Code   string
	What   string
	Remedy string
}

// Error makes a refused Finding an error: "code: what; remedy".
func (f Finding) Error() string { return f.Code + ": " + f.What + "; " + f.Remedy }
