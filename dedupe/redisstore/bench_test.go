package redisstore_test

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/internal/testenv"
)

// Each operation is one message. The server is on the same machine.

func benchKeys(b *testing.B, n int) []dedupe.ClaimRequest {
	sc := "b." + rand.Text()
	reqs := make([]dedupe.ClaimRequest, n)
	for i := range reqs {
		reqs[i] = claimOf(key(b, sc, fmt.Sprint(i)), dedupe.Owner(rand.Text()))
	}
	return reqs
}

func completion(r dedupe.ClaimRequest) dedupe.CompleteRequest {
	return dedupe.CompleteRequest{Grip: grip(r.Key, r.Owner), Fingerprint: r.Fingerprint, Retention: retention}
}

func ok(b *testing.B, replies []dedupe.Reply) {
	for _, r := range replies {
		if r.Err != nil || r.Verdict != dedupe.Claimed {
			b.Errorf("%v %v", r.Verdict, r.Err)
		}
	}
}

func BenchmarkClaim(b *testing.B) {
	for _, settle := range []bool{false, true} {
		name := map[bool]string{false: "claim", true: "claim and complete"}[settle]
		b.Run(name+"/single", func(b *testing.B) {
			s, _ := newStore(b, testenv.Redis(b))
			reqs := benchKeys(b, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			for _, r := range reqs {
				ok(b, s.Claim(b.Context(), []dedupe.ClaimRequest{r}))
				if settle {
					ok(b, s.Complete(b.Context(), []dedupe.CompleteRequest{completion(r)}))
				}
			}
		})
		b.Run(name+"/parallel 32", func(b *testing.B) {
			s, _ := newStore(b, testenv.Redis(b))
			next := make(chan dedupe.ClaimRequest, b.N)
			for _, r := range benchKeys(b, b.N) {
				next <- r
			}
			close(next)
			b.ReportAllocs()
			b.SetParallelism(16)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r := <-next
					ok(b, s.Claim(b.Context(), []dedupe.ClaimRequest{r}))
					if settle {
						ok(b, s.Complete(b.Context(), []dedupe.CompleteRequest{completion(r)}))
					}
				}
			})
		})
		b.Run(name+"/batch 100", func(b *testing.B) {
			s, _ := newStore(b, testenv.Redis(b))
			reqs := benchKeys(b, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			for len(reqs) > 0 {
				batch := reqs[:min(100, len(reqs))]
				reqs = reqs[len(batch):]
				ok(b, s.Claim(b.Context(), batch))
				if !settle {
					continue
				}
				done := make([]dedupe.CompleteRequest, len(batch))
				for i, r := range batch {
					done[i] = completion(r)
				}
				ok(b, s.Complete(b.Context(), done))
			}
		})
	}
	b.Run("duplicate/single", func(b *testing.B) {
		s, _ := newStore(b, testenv.Redis(b))
		k := key(b, scope(), "1")
		done(b, s, k, "me")
		b.ReportAllocs()
		for b.Loop() {
			require.Equal(b, dedupe.Done, claim(b, s, k, "other").Verdict)
		}
	})
}
