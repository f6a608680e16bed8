package storetest

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/idemq/idemq/dedupe"
)

func containsFold(s, sub string) bool {
	return strings.Contains(strings.ToLower(s), strings.ToLower(sub))
}

// hostile ids: each is another message than all others.
func hostile() []string {
	ids := []string{
		"order-a", "order-A", "ordér-a", "orde\u0301r-a", "order-a ", " order-a", "order-a\t", "order-a\n", "order-a\x00", "order-a\x00\x00", "order_a", "order%a",
		"straße", "strasse", "ﬁ", "fi", "\u03a9", "\u2126", "İ", "i", "I", "ı", "𐐷", "日本", "日本\u200b",
		"\x00", "\x01", "\xff", "\xff\xfe", "\xc3\x28", "\xed\xa0\x80",
		"'", "''", `"`, `\`, `\\`, "`", "'; DROP TABLE idempotent_log; --", "$1", "?", "@x", ":id", "%s", "%", "_",
		":", "::", "a:b", "a:", ":a", "{a}", "{", "}", "{}", "{}{a}", "[a]", "*", "a/b", "a|b", "a,b",
		"1", "01", "1.0", "1e0", "0x1", "true", "null", "NULL", "nil", "0", "-1", "1234567890123456", "12345678901234567",
		strings.Repeat("x", dedupe.MaxIDBytes-1), strings.Repeat("x", dedupe.MaxIDBytes), strings.Repeat("x", dedupe.MaxIDBytes+1),
		strings.Repeat("x", 1025), strings.Repeat("x", 1026), strings.Repeat("é", 600), strings.Repeat("\x00", 1100),
		"sha256:", "sha256:" + strings.Repeat("0", 64),
	}
	for b := range 256 {
		ids = append(ids, "byte "+string([]byte{byte(b)}))
	}
	return ids
}

var keysAndValues = []behaviour{
	{every, "hostile ids (over 1024 characters, NUL, not UTF-8, quotes, case, accents, trailing spaces) are each a message of their own", func(t *testing.T, s *subject) {
		allDiffer(t, s, func(id string) dedupe.Key { return s.key(t, id) }, hostile())
	}},
	{every, "hostile namespaces are each a namespace of their own", func(t *testing.T, s *subject) {
		allDiffer(t, s, func(ns string) dedupe.Key { return s.keyIn(t, ns, "id") }, append(hostile(), ""))
	}},
	{every, "the same id in another scope is another message", func(t *testing.T, s *subject) {
		s.done(t, s.key(t, "1"))
		other := *s
		other.scope += ".x"
		upper := *s
		upper.scope = "T" + strings.TrimPrefix(s.scope, "t")
		isClaimed(t, other.claim(t, other.claimRequest(other.key(t, "1"), newOwner())))
		isClaimed(t, upper.claim(t, upper.claimRequest(upper.key(t, "1"), newOwner())))
	}},
	{every, "a result of any bytes and sizes comes back as it was", func(t *testing.T, s *subject) {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		for i, result := range [][]byte{nil, {}, {0}, all, []byte("\xff\xfe\x00'\"\\"), []byte(`{"a":null}`), []byte("1234567890123456789"), bytes.Repeat(all, 64), bytes.Repeat([]byte{0}, 4096)} {
			g := s.claimed(t, s.key(t, fmt.Sprint(i)))
			r := completeRequest(g)
			r.Result = result
			reply := s.complete(t, r)
			isClaimed(t, reply)
			duplicate := s.claim(t, s.claimRequest(g.Key, newOwner()))
			isVerdict(t, duplicate, dedupe.Done)
			for _, got := range [][]byte{reply.Record.Result, duplicate.Record.Result, s.inspect(t, g.Key).Result} {
				if !bytes.Equal(got, result) {
					t.Fatalf("result %d comes back as %d bytes %.40q, want %d bytes %.40q", i, len(got), got, len(result), result)
				}
			}
		}
	}},
	{every, "fingerprints of any bytes come back as they were", func(t *testing.T, s *subject) {
		for i, f := range []dedupe.Fingerprint{{}, dedupe.NoFingerprint, fingerprint("body"), {19: 1}, {0: 0xff, 19: 0xff}, {0: '\'', 1: '\\', 2: '"', 3: ':', 4: '|'}} {
			r := s.claimRequest(s.key(t, fmt.Sprint(i)), newOwner())
			r.Fingerprint = f
			reply := s.claim(t, r)
			isClaimed(t, reply)
			equal(t, "fingerprint", reply.Record.Fingerprint, f)
			c := completeRequest(s.grip(r.Key, r.Owner))
			c.Fingerprint = f
			equal(t, "fingerprint", s.complete(t, c).Record.Fingerprint, f)
			equal(t, "fingerprint", s.inspect(t, r.Key).Fingerprint, f)
		}
	}},
	{every, "a reason in any language comes back as it was", func(t *testing.T, s *subject) {
		for i, reason := range []string{"", "stock: 'apple' has -1 left: \"no\\", "库存不足 — ação ☠ 𐐷", "a|b:c,{d}\n\te", strings.Repeat("very ", 40)} {
			g := s.claimed(t, s.key(t, fmt.Sprint(i)))
			r := buryRequest(g)
			r.Reason = reason
			isClaimed(t, s.bury(t, r))
			equal(t, "reason", s.inspect(t, g.Key).Reason, reason)
		}
	}},
	{log, "the original of a hashed id comes back as it was, up to 1024 bytes of any kind", func(t *testing.T, s *subject) {
		for i, original := range []string{strings.Repeat("order ", 60), strings.Repeat("é", 512), "\xff\x00'\\" + strings.Repeat("x", dedupe.MaxOriginalBytes-4)} {
			r := s.claimRequest(s.key(t, fmt.Sprint(i)), newOwner())
			r.Original = original
			isClaimed(t, s.claim(t, r))
			equal(t, "original", s.inspect(t, r.Key).Original, original)
		}
	}},
	{every, "long owners are owners, to the last character", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		owner := newOwner() + newOwner()
		r := s.claimRequest(k, owner)
		isClaimed(t, s.claim(t, r))
		isVerdict(t, s.claim(t, s.claimRequest(k, owner[:len(owner)-1]+"-")), dedupe.Busy)
		isStale(t, s.complete(t, completeRequest(s.grip(k, owner[:len(owner)-1]))), dedupe.Busy)
		isClaimed(t, s.complete(t, completeRequest(s.grip(k, owner))))
	}},
	{told, "large numbers are not mangled", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		rec := dedupe.Record{
			Key: k, State: dedupe.StateFree, Owner: newOwner(), Incarnation: s.incarnation,
			Fence: 1<<52 + 1, Failures: math.MaxInt32, Deaths: 1_000_000_007, AloneDeaths: 999_999_937, Generation: 100_000_003,
		}
		s.learn(t, rec)
		got := s.inspect(t, k)
		equal(t, "fence", got.Fence, rec.Fence)
		equal(t, "failures, deaths, deaths alone, generation", counts(got), counts(rec))
		reply := s.claim(t, s.claimRequest(k, newOwner()))
		isClaimed(t, reply)
		equal(t, "fence of the next claim", reply.Record.Fence, rec.Fence+1)
		equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), counts(rec))
	}},
	{every, "leases and retentions of years are kept", func(t *testing.T, s *subject) {
		const year = 365 * 24 * time.Hour
		r := s.claimRequest(s.key(t, "1"), newOwner())
		r.Lease, r.Retention = 10*year, 20*year
		reply := s.claim(t, r)
		isClaimed(t, reply)
		if left := reply.Record.LeaseLeft; left > 10*year || left < 10*year-time.Hour {
			t.Fatalf("lease left is %v, want nearly %v", left, 10*year)
		}
		c := completeRequest(s.grip(r.Key, r.Owner))
		c.Retention = 20 * year
		rec := s.complete(t, c).Record
		isKeptFor(t, rec, 20*year)
	}},
	{log, "a record says when it was made, and when it changed", func(t *testing.T, s *subject) {
		g := s.claimed(t, s.key(t, "1"))
		made := s.inspect(t, g.Key)
		if made.CreatedAt.IsZero() || made.UpdatedAt.Before(made.CreatedAt) {
			t.Fatalf("made at %v, changed at %v", made.CreatedAt, made.UpdatedAt)
		}
		s.h.Advance(t, past)
		isClaimed(t, s.complete(t, completeRequest(g)))
		done := s.inspect(t, g.Key)
		if !done.CreatedAt.Equal(made.CreatedAt) {
			t.Errorf("made at %v, and after its completion at %v", made.CreatedAt, done.CreatedAt)
		}
		if d := done.UpdatedAt.Sub(made.UpdatedAt); d < past {
			t.Errorf("changed %v after it was made, want at least %v", d, past)
		}
	}},
}

// allDiffer completes each key and sees that it met none before it, and that each finds its own result.
func allDiffer(t *testing.T, s *subject, key func(string) dedupe.Key, texts []string) {
	t.Helper()
	var claims []dedupe.ClaimRequest
	var completes []dedupe.CompleteRequest
	for _, text := range texts {
		k := key(text)
		claims = append(claims, s.claimRequest(k, newOwner()))
		c := completeRequest(s.grip(k, claims[len(claims)-1].Owner))
		c.Result = []byte(text)
		completes = append(completes, c)
	}
	for i, reply := range s.Claim(t.Context(), claims) {
		if reply.Err != nil || reply.Verdict != dedupe.Claimed {
			t.Errorf("%.80q is taken for another or refused: %v", texts[i], say(reply))
		}
	}
	for i, reply := range s.Complete(t.Context(), completes) {
		if reply.Err != nil {
			t.Errorf("%.80q cannot be completed: %v", texts[i], say(reply))
		}
	}
	for i := range claims {
		claims[i].Owner = newOwner()
	}
	for i, reply := range s.Claim(t.Context(), claims) {
		if reply.Verdict != dedupe.Done || string(reply.Record.Result) != texts[i] {
			t.Errorf("%.80q is answered %v with the result of %.80q", texts[i], say(reply), reply.Record.Result)
		}
	}
}
