package dedupe

import "fmt"

// Mode says what a scope promises, and therefore what each message costs. There is no default: New refuses the zero Mode.
type Mode uint8

const (
	_ Mode = iota
	// Transactional: the log row commits with the business rows. Effects in that database happen once, whatever happens to
	// Redis, broker and process. Needs Log; Store, asked first where there is one, spares the database duplicates and work
	// that is under way.
	Transactional
	// Logged: claim and completion are rows of the log, around an effect elsewhere. The effect repeats only if the process
	// dies between effect and completion, or freezes or is cut off from the log while it works (between claim and
	// completion), or if its handler ignores a cancelled context. Needs Log; Store is asked first, as above.
	Logged
	// RedisOnly: as far as Redis remembers, and no further. Needs Store and refuses Log.
	RedisOnly
)

var modeNames = [...]string{Transactional: "transactional", Logged: "logged", RedisOnly: "redis-only"}

// ParseMode reads "transactional", "logged" or "redis-only".
func ParseMode(s string) (Mode, error) {
	for m, name := range modeNames {
		if name == s && name != "" {
			return Mode(m), nil
		}
	}
	return 0, fmt.Errorf("dedupe: mode %q: want transactional, logged or redis-only", s)
}

// String is the name that ParseMode reads, or "mode(n)".
func (m Mode) String() string {
	if m.valid() {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

func (m Mode) valid() bool { return m >= Transactional && m <= RedisOnly }

// hasLog says whether the log decides in this mode.
func (m Mode) hasLog() bool { return m == Transactional || m == Logged }

// UnmarshalText makes Mode a flag, an environment variable, a YAML value.
func (m *Mode) UnmarshalText(b []byte) (err error) {
	*m, err = ParseMode(string(b))
	return err
}

// MarshalText writes what UnmarshalText reads; an invalid Mode is an error.
func (m Mode) MarshalText() ([]byte, error) {
	if !m.valid() {
		return nil, fmt.Errorf("dedupe: invalid %v", m)
	}
	return []byte(m.String()), nil
}

// Verdict is what is known about a delivery. The zero Verdict means "not known" and is never returned without an error.
type Verdict uint8

const (
	_ Verdict = iota
	// Claimed: this delivery holds the claim. From Do: the handler ran and its work is completed.
	Claimed
	// Busy: another owner works on it; Record.LeaseLeft says for how long. Never acknowledge.
	Busy
	// Done: already applied; Record.Result holds what the first run stored. Acknowledge.
	Done
	// Dead: parked as a dead letter, which is stored. Acknowledge.
	Dead
	// Conflict: the id is known with another fingerprint: a dead letter, never a duplicate.
	Conflict
)

var verdictNames = [...]string{"unknown", "claimed", "busy", "done", "dead", "conflict"}

// String is the name used in logs and metrics, from a closed set.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// State of a key in a store. States go up only; the one way down is a marked copy of a dead letter, which may claim a dead key.
type State uint8

const (
	// StateAbsent: the store knows nothing about the key.
	StateAbsent State = iota
	// StateFree: known, and nobody works on it: released or reopened. Its counts are kept.
	StateFree
	// StateClaimed: an owner works on it until its lease ends.
	StateClaimed
	// StateDead: parked as a dead letter.
	StateDead
	// StateDone: applied. Never overwritten.
	StateDone
)

var stateNames = [...]string{"absent", "free", "claimed", "dead", "done"}

// String is the name used in logs, Lua and SQL comments.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}
