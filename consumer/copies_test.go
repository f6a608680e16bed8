package consumer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
)

func letterOf(m *consumer.Message, id string) consumer.DeadLetter {
	return consumer.DeadLetter{
		Message: m, ID: id, Scope: "inventory", Namespace: "orders", Reason: consumer.ReasonExhausted,
		Error: "no stock: ä\x01\x02%", Attempts: 10, DiedAt: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
	}
}

// The four cases: hostile keys. DECISIONS 6: values are percent-encoded.
func TestLetterHeaders_HostileIDsComeBackFromAnyBroker(t *testing.T) {
	for _, id := range []string{"a", "a/b@c%2F", "\x00\x01\x02\xff", "ключ\n", string(make([]byte, 2000))} {
		m := &consumer.Message{
			Position: consumer.Position{Topic: "orders", Partition: 2, Offset: 7}, Key: []byte("k"), Value: []byte("v"),
			Headers: consumer.Headers{{Name: "trace", Value: []byte("t")}, {Name: "idemq-id", Value: []byte("forwarded by a service")}},
		}
		d := letterOf(m, id)
		stored := &consumer.Message{Position: consumer.Position{Topic: "inventory.dlq", Offset: 99}, Key: m.Key, Value: m.Value, Headers: consumer.LetterHeaders(d, true)}
		for _, h := range stored.Headers {
			if h.Name != "trace" {
				require.Regexp(t, `^[!-~]*$`, string(h.Value), "printable ASCII only")
			}
		}
		got, err := consumer.ParseLetter(stored)
		require.NoError(t, err)
		require.Equal(t, m.Position, got.Message.Origin)
		require.Equal(t, consumer.Headers{{Name: "trace", Value: []byte("t")}}, got.Message.Headers)
		got.Message, d.Message = nil, nil
		require.Equal(t, d, got)
	}
}

func TestLetterHeaders_WithoutTheErrorForALetterThatIsTooLarge(t *testing.T) {
	d := letterOf(&consumer.Message{Position: consumer.Position{Topic: "orders"}}, "a")
	_, ok := consumer.LetterHeaders(d, false).Get(consumer.HeaderError)
	require.False(t, ok)
}

func TestParseLetter_BrokenHeaders_AreNamedAndTheRestIsRead(t *testing.T) {
	m := &consumer.Message{Headers: consumer.LetterHeaders(letterOf(&consumer.Message{Position: consumer.Position{Topic: "orders"}}, "a"), true)}
	m.Headers = append(m.Headers, consumer.Header{Name: consumer.HeaderNamespace, Value: []byte("%zz")}, consumer.Header{Name: consumer.HeaderAttempts, Value: []byte("many")})
	d, err := consumer.ParseLetter(m)
	require.ErrorContains(t, err, consumer.HeaderNamespace)
	require.ErrorContains(t, err, consumer.HeaderAttempts)
	require.Equal(t, "a", d.ID)
	_, err = consumer.ParseLetter(&consumer.Message{})
	require.Error(t, err, "a message that is no letter")
}

func TestResendHeaders_MarkTheCopyForTheScopeThatBuriedIt(t *testing.T) {
	d := letterOf(&consumer.Message{Position: consumer.Position{Topic: "orders"}}, "a")
	d.RedrivenBy = "ops: stock corrected"
	h := consumer.ResendHeaders(d)
	mark, ok := h.Get(consumer.HeaderRedrive)
	require.True(t, ok)
	require.Equal(t, "inventory", mark)
	by, _ := h.Get(consumer.HeaderRedrivenBy)
	require.Equal(t, "ops:%20stock%20corrected", by)
	_, ok = h.Get(consumer.HeaderReason)
	require.False(t, ok)
}
