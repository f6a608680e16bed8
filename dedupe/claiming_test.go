package dedupe_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

// The reply to a claim was lost and given up; then two deliveries of the message are in one process at once. Only one may ask with the
// old owner: to a store, whoever asks with it holds the claim [M: oldrunning].
func TestProtocol2_OldOwner_IsTakenUpByOneDeliveryOnly(t *testing.T) {
	inEachMode(t, []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly}, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			if mode == dedupe.Logged {
				w.Guard = w.process(withoutRedis)
			}
			authority := w.authorityWire()
			authority.fails(lostReply, "claim")
			_, err := w.deliver("A")
			require.ErrorIs(t, err, dedupe.ErrOutcomeUnknown)

			authority.fails(fine)
			gate := make(chan struct{}) // both have chosen their owner before the first is answered
			authority.pauses(func(string) { <-gate })
			verdicts := make(chan dedupe.Verdict, 2)
			for range 2 {
				go func() {
					out, err := w.Claim(context.Background(), delivery("A"))
					assert.NoError(t, err)
					verdicts <- out.Verdict
				}()
			}
			synctest.Wait()
			close(gate)
			require.ElementsMatch(t, []dedupe.Verdict{dedupe.Claimed, dedupe.Busy}, []dedupe.Verdict{<-verdicts, <-verdicts})
		})
	})
}
