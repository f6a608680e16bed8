package dedupe_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

func TestNewKey_BadScopeOrID_IsInvalid(t *testing.T) {
	for _, s := range []string{"", "a b", "a/b", "a:b", "a{b}", "é", "a\x00", strings.Repeat("s", dedupe.MaxScopeBytes+1)} {
		_, err := dedupe.NewKey(s, "", "1")
		require.ErrorIs(t, err, dedupe.ErrInvalidID, s)
	}
	_, err := dedupe.NewKey(scope, topic, "")
	require.ErrorIs(t, err, dedupe.ErrInvalidID)
	_, err = dedupe.NewKey(strings.Repeat("s", dedupe.MaxScopeBytes), "", "1")
	require.NoError(t, err)
}

// Hostile ids: bytes that databases fold, trim, cut or reject elsewhere.
func TestNewKey_IDsThatDifferInAnyByte_AreDifferentKeys(t *testing.T) {
	ids := []string{
		"Order-a", "order-A", "Ord\u00e9r-a", "Orde\u0301r-a", "order-a", "order-a ", " order-a", "order-a\n", "order-a\x00", "\x00order-a", "\xff\xfe", "'; --", "a:b", "a", ":b",
		"sha256:", "sha256:e3b0", strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 257),
	}
	seen := map[dedupe.Key]string{}
	for _, id := range ids {
		k, err := dedupe.NewKey(scope, topic, id)
		require.NoError(t, err)
		require.NotContains(t, seen, k, "%q meets %q", id, seen[k])
		seen[k] = id
		require.LessOrEqual(t, len(k.ID()), dedupe.MaxIDBytes)
	}
}

// The hash of one id, given as an id itself, is another message.
func TestNewKey_HashGivenAsAnID_IsAnotherKey(t *testing.T) {
	long, err := dedupe.NewKey(scope, topic, strings.Repeat("x", 300))
	require.NoError(t, err)
	require.True(t, long.Hashed())
	forged, err := dedupe.NewKey(scope, topic, long.ID())
	require.NoError(t, err)
	require.NotEqual(t, long, forged)
}

func TestKey_PrintsNoID(t *testing.T) {
	k, err := dedupe.NewKey(scope, "people", "ann@example.org")
	require.NoError(t, err)
	require.Regexp(t, `^inventory/[0-9a-f]{12}$`, k.String())
	require.Equal(t, slog.StringValue(k.String()), k.LogValue())
	require.Equal(t, "people", k.Namespace())
	require.Equal(t, scope, k.Scope())
	require.False(t, k.IsZero())
	require.True(t, dedupe.Key{}.IsZero())
}

func TestFingerprint_ComparesWhatHasTheSameName(t *testing.T) {
	a, b := dedupe.FingerprintOf([]byte("a")), dedupe.FingerprintOf([]byte("b"))
	require.True(t, a.Differs(b))
	require.False(t, a.Differs(a))
	require.False(t, a.Differs(dedupe.Fingerprint{}))
	require.False(t, dedupe.Fingerprint{}.Differs(a))
	require.False(t, a.Differs(dedupe.NoFingerprint))
	require.False(t, a.Differs(dedupe.NamedFingerprint("json:id", []byte("b"))))
	require.NotEqual(t, dedupe.FingerprintOf([]byte("a"), []byte("bc")), dedupe.FingerprintOf([]byte("ab"), []byte("c")), "parts are not joined ambiguously")
	require.NotEqual(t, dedupe.FingerprintOf(), dedupe.FingerprintOf(nil))
	require.True(t, dedupe.Fingerprint{}.IsZero())
	require.False(t, dedupe.NoFingerprint.IsZero())
}

// No two messages meet in a key: neither by a separator, nor by a hash, nor by a part that is empty.
func FuzzNewKey(f *testing.F) {
	f.Add("orders", "1", "orders", "2")
	f.Add("a", "b:c", "a:b", "c")
	f.Add("", "ab", "a", "b")
	f.Add("n", "sha256:00", "sha256:00", "n")
	f.Add(strings.Repeat("n", 300), "1", strings.Repeat("n", 301), "1")
	f.Fuzz(func(t *testing.T, n1, id1, n2, id2 string) {
		k1, err1 := dedupe.NewKey(scope, n1, id1)
		k2, err2 := dedupe.NewKey(scope, n2, id2)
		require.Equal(t, id1 == "", err1 != nil)
		require.Equal(t, id2 == "", err2 != nil)
		if err1 != nil || err2 != nil {
			return
		}
		same := n1 == n2 && id1 == id2
		require.Equal(t, same, k1 == k2)
		require.Equal(t, same, k1.String() == k2.String())
		require.LessOrEqual(t, len(k1.Namespace()), dedupe.MaxIDBytes)
		require.LessOrEqual(t, len(k1.ID()), dedupe.MaxIDBytes)
	})
}

// A fingerprint of parts is a fingerprint of this list of parts.
func FuzzFingerprintOf(f *testing.F) {
	f.Add([]byte("a"), []byte("bc"), []byte("ab"), []byte("c"))
	f.Add([]byte(""), []byte("x"), []byte("x"), []byte(""))
	f.Fuzz(func(t *testing.T, a, b, c, d []byte) {
		same := string(a) == string(c) && string(b) == string(d)
		require.Equal(t, !same, dedupe.FingerprintOf(a, b).Differs(dedupe.FingerprintOf(c, d)))
		require.False(t, dedupe.FingerprintOf(a, b).IsZero())
	})
}
