package redisstore

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

// hostile parts of keys: separators of ours, braces of hash tags, bytes that are no text.
var hostile = []string{
	"", ":", "::", "a:b", "6:a", "1:", "{", "}", "{}", "{a}", "}{", "\x00", "\xff\xfe", "a\x00b", "a\r\nb", " ", "a ", "A", "a",
	"Ünï", "e\u0301", "é", "*", "?", "[a]", "\\", "idemq1 done", strings.Repeat("x", 255), strings.Repeat("{", 255), strings.Repeat("y", 2000),
}

// Key parts joined ambiguously (Jaskey: tag "" + "a:b" = tag "a" + "b").
func TestKeys_HostileParts_NeverMeetAndStayInTheSlotOfTheirShard(t *testing.T) {
	s := New(nil, Config{})
	seen := map[string]dedupe.Key{}
	for _, namespace := range hostile {
		for _, id := range hostile {
			if id == "" {
				continue
			}
			k, err := dedupe.NewKey("my-scope", namespace, id)
			require.NoError(t, err)
			shard := s.shardOf(k)
			name := s.redisKey(k, shard)
			if other, taken := seen[name]; taken {
				require.Equal(t, other, k, "two keys meet at %q", name)
			}
			seen[name] = k
			_, tail, _ := strings.Cut(name, "{")
			tag, _, closed := strings.Cut(tail, "}")
			require.True(t, closed)
			require.Contains(t, s.markKey("my-scope", shard), "{"+tag+"}", "the slot of its mark")
			require.NotEqual(t, s.markKey("my-scope", shard), name)
		}
	}
	require.Greater(t, len(seen), 700)
}

// The layout is a promise to every other version and language: a change makes every key be forgotten.
func TestKeys_LayoutNeverChanges(t *testing.T) {
	s := New(nil, Config{})
	k, err := dedupe.NewKey("inventory", "orders", "order-42")
	require.NoError(t, err)
	require.Equal(t, "idemq:{inventory:5}:6:orders:order-42", s.redisKey(k, s.shardOf(k)))
	require.Equal(t, "idemq:{inventory:5}", s.markKey("inventory", 5))
}

func TestShards_AreUsedEvenly(t *testing.T) {
	s := New(nil, Config{})
	counts := make([]int, s.cfg.Shards)
	for i := range 16_000 {
		k, err := dedupe.NewKey("x", "orders", strings.Repeat("0", i%7)+string(rune('a'+i%26))+strings.Repeat("z", i/26%300))
		require.NoError(t, err)
		counts[s.shardOf(k)]++
	}
	for _, n := range counts {
		require.InDelta(t, 1000, n, 500)
	}
}

func FuzzDecode_AnyBytes_NoPanicAndNoGuess(f *testing.F) {
	f.Add("")
	f.Add("idemq1 done 1 2 3 4 5 6 7 8 9 10 11 1 0 0 0 0 0\nx")
	f.Add("idemq1 done 1 2 3 4 5 6 7 8 9 10 11 9223372036854775807 0 0 0 0 0\nx")
	f.Fuzz(func(t *testing.T, value string) {
		k, err := dedupe.NewKey("x", "", "1")
		require.NoError(t, err)
		rec, err := decode(k, value, 0)
		if err == nil && value != "" {
			require.NotEqual(t, dedupe.StateAbsent, rec.State)
		}
	})
}
