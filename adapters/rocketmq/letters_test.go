package rocketmq_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/adapters/rocketmq"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
)

func (w world) letters(t testing.TB) *rocketmq.DeadLetterQueue {
	t.Helper()
	q, err := rocketmq.OpenDeadLetters(w.config(t), "%DLQ%"+w.group)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close()) })
	return q
}

func list(t testing.TB, q *rocketmq.DeadLetterQueue) (out []consumer.DeadLetter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for d, err := range q.List(ctx) {
		require.NoError(t, err)
		out = append(out, d)
	}
	return out
}

func TestDeadLetter_SaysWhy_AndARedriveIsAcceptedOnce(t *testing.T) {
	w := newWorld(t, 2)
	g := newGuard(t, "shop", nil)
	var e effects
	broken := true
	h := func(ctx context.Context, m *consumer.Message) error {
		if broken {
			return errTest
		}
		return e.apply(ctx, m)
	}
	policy := func(c *consumer.Config) {
		c.Policy.Retry = consumer.Retry{Attempts: 2, InPlace: 1, Backoff: consumer.Backoff{Initial: time.Millisecond}}
	}
	large := strings.Repeat("idemq ", 2000) // which clients compress
	m := message(w.topic, record{"k", "order/4711 ä", large})
	m.WithTag("paid").WithProperty("trace", "t-1")
	w.sendRaw(t, m)
	w.createTopic(t, "%DLQ%"+w.group, 1)
	q := w.letters(t)

	r := start(t, w.config(t), newPipe(t, g, h, policy))
	eventually(t, "the letter is there", func() bool { return len(list(t, q)) == 1 })
	require.NoError(t, r.stop())
	w.requireCommitted(t, 2, 1)
	d := list(t, q)[0]
	require.Equal(t, "order/4711 ä", d.ID)
	require.Equal(t, "shop", d.Scope)
	require.Equal(t, w.topic, d.Namespace)
	require.Equal(t, consumer.ReasonExhausted, d.Reason)
	require.Equal(t, errTest.Error(), d.Error)
	require.Equal(t, 2, d.Attempts)
	require.WithinDuration(t, time.Now(), d.DiedAt, patience)
	require.Equal(t, w.topic, d.Message.Origin.Topic)
	require.Equal(t, large, string(d.Message.Value))
	require.Equal(t, "k", string(d.Message.Key))
	for name, want := range map[string]string{"TAGS": "paid", "trace": "t-1", "msg_id": "order/4711 ä"} {
		got, _ := d.Message.Headers.Get(name)
		require.Equal(t, want, got, name)
	}

	broken = false
	audit := dedupe.Audit{By: "test", Reason: "mended"}
	report, err := consumer.Redrive(t.Context(), g, q, consumer.RedriveOptions{Audit: audit})
	require.NoError(t, err)
	require.Equal(t, consumer.RedriveReport{Seen: 1, Redriven: 1}, report)
	require.NoError(t, q.Resend(t.Context(), d)) // and a copy too many, as of a redrive that was killed
	r = start(t, w.config(t), newPipe(t, g, h, policy))
	eventually(t, "all are settled", func() bool { return w.committed(t, 2) == 3 })
	require.NoError(t, r.stop())
	require.Equal(t, 1, e.len())
	require.Equal(t, large, e.all()[0].value)
	require.Len(t, list(t, q), 1)
	report, err = consumer.Redrive(t.Context(), g, q, consumer.RedriveOptions{Audit: audit})
	require.NoError(t, err)
	require.Equal(t, consumer.RedriveReport{Seen: 1, Skipped: 1}, report)
}

// What the broker itself, or another client, wrote to the queue is told, and does not end the list.
func TestList_GoesOnAfterALetterThatIsNotOurs(t *testing.T) {
	w := newWorld(t, 1)
	w.createTopic(t, "%DLQ%"+w.group, 1)
	q := w.letters(t)
	w.sendRaw(t, message("%DLQ%"+w.group, record{"", "id-0", "x"}))
	ours := consumer.DeadLetter{Message: rocketmqMessage(w.topic), ID: "id-1", Scope: "shop", Namespace: w.topic, Reason: consumer.ReasonPermanent, DiedAt: time.Now()}
	require.NoError(t, q.Publish(t.Context(), ours))
	eventually(t, "both are there", func() bool {
		var bad, good int
		for d, err := range q.List(t.Context()) {
			if err != nil {
				require.ErrorContains(t, err, "rocketmq: letter at %DLQ%"+w.group+"/0@0 of b0: consumer: ")
				bad++
			} else {
				require.Equal(t, "id-1", d.ID)
				good++
			}
		}
		return bad == 1 && good == 1
	})
}

func rocketmqMessage(topic string) *consumer.Message {
	at := consumer.Position{Topic: topic, Offset: 7}
	return &consumer.Message{Position: at, Origin: at, Value: []byte("v")}
}

func TestTrap44_ALetterThatIsTooLargeLosesItsErrorFirst_AndIsThenRefused(t *testing.T) {
	w := newWorld(t, 1)
	w.createTopic(t, "%DLQ%"+w.group, 1)
	q := w.letters(t)
	letter := func(n int) consumer.DeadLetter {
		m := rocketmqMessage(w.topic)
		m.Headers = consumer.Headers{{Name: "big", Value: []byte(strings.Repeat("x", n))}, {Name: "a\x01", Value: []byte("b\x02c")}}
		return consumer.DeadLetter{Message: m, ID: "id\x01", Scope: "shop", Namespace: w.topic, Reason: consumer.ReasonPermanent, Error: strings.Repeat("e", 1000), DiedAt: time.Now()}
	}
	require.NoError(t, q.Publish(t.Context(), letter(31_000)))
	require.ErrorIs(t, q.Publish(t.Context(), letter(32_000)), consumer.ErrLetterRefused)
	eventually(t, "the letter is there", func() bool { return len(list(t, q)) == 1 })
	d := list(t, q)[0]
	require.Empty(t, d.Error)
	require.Equal(t, "id\x01", d.ID)
	got, _ := d.Message.Headers.Get("a%01")
	require.Equal(t, "b%02c", got)
}
