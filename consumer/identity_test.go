package consumer_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
)

// The four cases: hostile keys.
func TestProcess_HostileIDs_AreAppliedOnceEachAndNeverMeet(t *testing.T) {
	long := strings.Repeat("x", 1025)
	ids := []string{long, long + "y", "sha256:" + strings.Repeat("0", 64), " ", "a ", "A", "a", "á", "a\x00", "\xff", "{inventory:1}", "'; DROP TABLE--", "a:b", "%41"}
	inModes(t, modes, func(t *testing.T, w *world) {
		p := w.pipeline(fine)
		for range 2 {
			for _, id := range ids {
				require.Equal(t, consumer.Ack, p.Process(t.Context(), order(id), &w.letters).Action)
			}
		}
		for _, id := range ids {
			require.Equal(t, 1, w.applied(id), "%q", id)
		}
		d := p.Process(t.Context(), order(""), &w.letters)
		require.Equal(t, consumer.Ack, d.Action, "the empty id")
		require.True(t, d.Letter)
		require.Equal(t, []string{consumer.ReasonMissingID}, w.letters.reasons())
	})
}

// PROTOCOL 7: the namespace defaults to the origin topic; sharing is an explicit choice.
func TestProcess_SameIDOnAnotherTopic_IsAnotherMessageUnlessShared(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint(shared), func(t *testing.T) {
			w := newWorld(t, dedupe.Logged)
			p := w.pipeline(fine, func(c *consumer.Config) { c.SharedIDs = shared })
			m := order("a")
			other := order("a")
			other.Topic = "returns"
			p.Process(t.Context(), m, &w.letters)
			p.Process(t.Context(), other, &w.letters)
			require.Equal(t, map[bool]int{false: 2, true: 1}[shared], w.applied("a"))
		})
	}
}

// DECISIONS 6: idemq-* headers are honoured on our own retry topics and on copies marked for our scope, ignored elsewhere.
func TestProcess_IdentityHeaders_AreBelievedOnOwnCopiesOnly(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		fail := true
		p := w.pipeline(func(context.Context, *consumer.Message) error {
			if fail {
				return errNoStock
			}
			return nil
		}, func(c *consumer.Config) {
			c.Policy = consumer.Policy{Order: consumer.OrderNone, Retry: consumer.Retry{InPlace: 1, Tiers: []time.Duration{time.Second}}}
		})
		m := order("a")
		d := p.Process(t.Context(), m, &w.letters)
		require.Equal(t, 0, d.Tier)
		retry := &consumer.Message{
			Position: consumer.Position{Topic: "inventory.retry.1s", Offset: 1}, Value: m.Value,
			Headers: consumer.RetryHeaders(m, d), OwnRetry: true,
		}
		fail = false
		require.Equal(t, dedupe.Claimed, p.Process(t.Context(), retry, &w.letters).Verdict)
		require.Equal(t, m.Position, retry.Origin)
		require.Equal(t, "orders", retry.Namespace())
		require.Equal(t, 1, w.applied("a"))
		require.Equal(t, dedupe.Done, p.Process(t.Context(), m, &w.letters).Verdict, "the copy and its source are one message")

		forwarded := order("b")
		forwarded.Headers = append(append(append(consumer.Headers{}, retry.Headers...), consumer.Header{Name: "msg_id", Value: []byte("b")}), consumer.Header{Name: consumer.HeaderRedrive, Value: []byte("another-scope")})
		require.Equal(t, dedupe.Claimed, p.Process(t.Context(), forwarded, &w.letters).Verdict)
		require.Equal(t, "b", forwarded.ID(), "a service that forwards all headers does not change identity")
		require.Equal(t, "orders", forwarded.Origin.Topic)

		w.pipeline(func(context.Context, *consumer.Message) error { return consumer.Permanent(errNoStock) }).Process(t.Context(), order("c"), &w.letters)
		carried := resent(w.letters.got[0])
		carried.Topic = "returns"
		carried.Headers = append(carried.Headers, consumer.Header{Name: "msg_id", Value: []byte("d")})
		require.Equal(t, dedupe.Claimed, p.Process(t.Context(), carried, &w.letters).Verdict)
		require.Equal(t, "d", carried.ID(), "nor does a mark that was carried on to another topic")
		require.Equal(t, "returns", carried.Namespace())

		broken := resent(w.letters.got[0])
		broken.Headers = append(broken.Headers, consumer.Header{Name: consumer.HeaderID, Value: []byte("%zz")})
		d = p.Process(t.Context(), broken, &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.True(t, d.Letter, "an unreadable identity is a missing id")
		require.Equal(t, dedupe.StateDead, w.state("c").State)
	})
}

// A service that reads a topic and writes to it as well, with all headers of a redriven copy and an id of its own.
func TestProcess_MarkForwardedOnItsOwnTopic_DoesNotChangeIdentity(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		die := func(context.Context, *consumer.Message) error { return consumer.Permanent(errNoStock) }
		trusting := func(c *consumer.Config) {
			c.Fingerprint = func(*consumer.Message) (dedupe.Fingerprint, error) { return dedupe.NoFingerprint, nil }
		}
		w.pipeline(die, trusting).Process(t.Context(), order("a"), &w.letters)
		p := w.pipeline(fine, trusting)
		again := resent(w.letters.got[0])
		require.Equal(t, dedupe.Claimed, p.Process(t.Context(), again, &w.letters).Verdict)
		require.Equal(t, 1, w.applied("a"))

		next := order("b")
		next.Headers = append(again.Headers, next.Headers...)
		require.Equal(t, dedupe.Claimed, p.Process(t.Context(), next, &w.letters).Verdict)
		require.Equal(t, "b", next.ID())
		require.Equal(t, next.Position, next.Origin)
		require.Equal(t, 1, w.applied("b"))
	})
}

// The copy lies elsewhere, so its position is another one, and it is the same message all the same.
func TestRedrive_OfAMessageWhoseIDIsItsPosition_TakesEffect(t *testing.T) {
	for name, brokerID := range map[string]string{"position": "", "broker's id": "7F0000010001"} {
		t.Run(name, func(t *testing.T) {
			inModes(t, modes, func(t *testing.T, w *world) {
				position := func(c *consumer.Config) { c.ID = consumer.IDFromPosition() }
				m := order("a")
				m.BrokerID = brokerID
				w.pipeline(func(context.Context, *consumer.Message) error { return consumer.Permanent(errNoStock) }, position).Process(t.Context(), m, &w.letters)
				copied := resent(w.letters.got[0])
				if brokerID != "" {
					copied.BrokerID = "7F0000010002"
				}
				d := w.pipeline(fine, position).Process(t.Context(), copied, &w.letters)
				require.Equal(t, dedupe.Claimed, d.Verdict, "%v", d.Err)
				require.Equal(t, m.ID(), copied.ID())
				require.Equal(t, 1, w.applied(m.ID()))
			})
		})
	}
}

// Ids travel in headers of copies, percent-encoded. A huge one could make a copy that no broker takes.
func TestProcess_HugeID_TravelsWithoutAHeaderAndStaysTheSame(t *testing.T) {
	huge := strings.Repeat("é", 64<<10)
	inModes(t, modes, func(t *testing.T, w *world) {
		fail := true
		p := w.pipeline(func(context.Context, *consumer.Message) error {
			if fail {
				return errNoStock
			}
			return nil
		}, func(c *consumer.Config) {
			c.Policy = consumer.Policy{Order: consumer.OrderNone, Retry: consumer.Retry{Attempts: 2, InPlace: 1, Tiers: []time.Duration{time.Second}}}
		})
		m := order(huge)
		d := p.Process(t.Context(), m, &w.letters)
		retry := &consumer.Message{
			Position: consumer.Position{Topic: "inventory.retry.1s", Offset: 1}, Value: m.Value,
			Headers: consumer.RetryHeaders(m, d), OwnRetry: true,
		}
		require.Less(t, size(retry.Headers), size(m.Headers)+1024)
		d = p.Process(t.Context(), retry, &w.letters)
		require.Equal(t, dedupe.Dead, d.Verdict, "the second failure of the same message")
		require.Equal(t, 2, d.Failures)

		died := w.letters.got[0]
		stored := *died.Message
		stored.Headers = consumer.LetterHeaders(died, true)
		require.Less(t, size(stored.Headers), size(m.Headers)+1024)
		letter, err := consumer.ParseLetter(&stored)
		require.NoError(t, err)
		w.letters.got[0] = letter
		rep, err := consumer.Redrive(t.Context(), w.guard(), &w.letters, consumer.RedriveOptions{})
		require.NoError(t, err)
		require.Equal(t, 1, rep.Redriven)
		fail = false
		d = p.Process(t.Context(), resent(w.letters.sent[0]), &w.letters)
		require.Equal(t, dedupe.Claimed, d.Verdict, "%v", d.Err)
		require.Equal(t, 1, w.applied(huge))
		require.Equal(t, dedupe.Done, p.Process(t.Context(), m, &w.letters).Verdict)
	})
}

func size(hs consumer.Headers) (n int) {
	for _, h := range hs {
		n += len(h.Name) + len(h.Value)
	}
	return n
}
