package dedupe

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
)

// Sizes of the parts of a Key, in bytes. They are the sizes of the columns of idempotent_log.
const (
	// MaxScopeBytes bounds a scope; longer ones are refused.
	MaxScopeBytes = 63
	// MaxIDBytes bounds a namespace and an id; longer ones are stored as "sha256:" and 64 hex digits.
	MaxIDBytes = 255
	// MaxOriginalBytes bounds what is kept of a hashed id for people to read; the rest is cut.
	MaxOriginalBytes = 1024
)

const hashMark = "sha256:"

// Key names one message for one consumer: scope, namespace and id, compared byte by byte. Stores see only Keys, so Redis and
// every SQL dialect agree about identity. Comparable, immutable; the zero Key is invalid.
type Key struct{ scope, namespace, id string }

// NewKey makes the key of a message. The scope is 1 to MaxScopeBytes of [A-Za-z0-9._-]; the id is not empty; namespace and id
// may hold any bytes. A namespace or id over MaxIDBytes is hashed, and so is one that itself begins with "sha256:", so that no
// two ids meet. The empty namespace is a namespace of its own. Errors match ErrInvalidID.
func NewKey(scope, namespace, id string) (Key, error) {
	if err := checkScope(scope); err != nil {
		return Key{}, err
	}
	if id == "" {
		return Key{}, fmt.Errorf("%w: id is empty; every message needs a business id that is the same on each redelivery", ErrInvalidID)
	}
	return Key{scope: scope, namespace: fit(namespace), id: fit(id)}, nil
}

func checkScope(scope string) error {
	if scope == "" {
		return fmt.Errorf("%w: scope is empty; name the application or consumer group, such as %q", ErrInvalidID, "inventory")
	}
	if len(scope) > MaxScopeBytes {
		return fmt.Errorf("%w: scope has %d bytes; use at most %d", ErrInvalidID, len(scope), MaxScopeBytes)
	}
	for _, c := range []byte(scope) {
		if !strings.ContainsRune("._-", rune(c)) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return fmt.Errorf("%w: scope %q: byte %q is not allowed; use letters, digits, dot, underscore and hyphen", ErrInvalidID, scope, c)
		}
	}
	return nil
}

// fit is the one rule for what does not fit a column.
func fit(s string) string {
	if len(s) <= MaxIDBytes && !strings.HasPrefix(s, hashMark) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hashMark + hex.EncodeToString(sum[:])
}

// Scope is who consumes.
func (k Key) Scope() string { return k.scope }

// Namespace keeps ids of different origins apart, usually by the origin topic; hashed as NewKey says.
func (k Key) Namespace() string { return k.namespace }

// ID is the message id; hashed as NewKey says.
func (k Key) ID() string { return k.id }

// Hashed says that ID is a hash of the original id.
func (k Key) Hashed() bool { return strings.HasPrefix(k.id, hashMark) }

// IsZero reports whether k is the invalid zero Key.
func (k Key) IsZero() bool { return k == Key{} }

// String is the scope and a short hash of namespace and id, never the id itself: ids may hold personal data, and this ends in
// errors and logs. The same key always gives the same text.
func (k Key) String() string { return k.scope + "/" + k.short() }

func (k Key) short() string {
	h := sha256.New()
	writeParts(h, []byte(k.namespace), []byte(k.id))
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// LogValue logs scope and hash, as String.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// writeParts writes parts so that no two lists of parts give the same bytes: each is preceded by its length.
func writeParts(w interface{ Write([]byte) (int, error) }, parts ...[]byte) {
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		w.Write(n[:]) //nolint:errcheck // a hash.Hash never returns an error
		w.Write(p)    //nolint:errcheck
	}
}

// Fingerprint is a digest of what must be equal when an id comes again: 4 bytes that name what was digested, 16 bytes of digest.
// Fingerprints of different names are not compared, so that a team may change what it compares. The zero Fingerprint is refused
// by Guard.Do: a forgotten fingerprint would let a second message with the same id vanish. Write NoFingerprint to mean it.
type Fingerprint [20]byte

// NoFingerprint trusts the id blindly: no payload is ever compared.
var NoFingerprint = Fingerprint{'n', 'o', 'n', 'e'}

// FingerprintOf digests the parts, usually the one body. Parts are joined without ambiguity.
func FingerprintOf(parts ...[]byte) Fingerprint { return NamedFingerprint("body", parts...) }

// NamedFingerprint is FingerprintOf for a digest of something else than the body; name says of what, such as
// "json:order,quantity". Only fingerprints of the same name are compared.
func NamedFingerprint(name string, parts ...[]byte) Fingerprint {
	var f Fingerprint
	n := sha256.Sum256([]byte("idemq fingerprint v1 " + name))
	copy(f[:4], n[:4])
	h := sha256.New()
	writeParts(h, parts...)
	copy(f[4:], h.Sum(nil))
	return f
}

// IsZero reports whether f was never set.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

// Differs reports whether f and g name the same thing and have other digests. A zero fingerprint differs from nothing.
func (f Fingerprint) Differs(g Fingerprint) bool {
	return !f.IsZero() && !g.IsZero() && [4]byte(f[:4]) == [4]byte(g[:4]) && f != g
}
