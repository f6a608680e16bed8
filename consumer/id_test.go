package consumer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
)

func withHeader(name, value string) *consumer.Message {
	return &consumer.Message{Headers: consumer.Headers{{Name: name, Value: []byte(value)}}}
}

func TestIDFromHeader_TakesTheLastValue(t *testing.T) {
	m := withHeader("msg_id", "old")
	m.Headers = append(m.Headers, consumer.Header{Name: "msg_id", Value: []byte("new")}, consumer.Header{Name: "Msg_id", Value: []byte("other")})
	id, err := consumer.IDFromHeader("msg_id")(m)
	require.NoError(t, err)
	require.Equal(t, "new", id)
	_, err = consumer.IDFromHeader("absent")(m)
	require.ErrorContains(t, err, "absent")
}

func TestIDFromJSON(t *testing.T) {
	for _, c := range []struct{ name, body, path, id, wrong string }{
		{"string", `{"order":{"id":"a-1"}}`, "order.id", "a-1", ""},
		{"integer over 2^53 is exact", `{"id":9007199254740993}`, "id", "9007199254740993", ""},
		{"integer over 2^64 is exact", `{"id":123456789012345678901234567890}`, "id", "123456789012345678901234567890", ""},
		{"negative", `{"id":-7}`, "id", "-7", ""},
		{"index", `{"items":[{"id":"x"},{"id":"y"}]}`, "items.1.id", "y", ""},
		{"escapes", `{"id":"\u00e9\n"}`, "id", "é\n", ""},
		{"white space", " {\"id\" :\t\"a\" } ", "id", "a", ""},
		{"twice: the last, as a decoder takes it", `{"id":"a","id":"b"}`, "id", "b", ""},
		{"names are exact", `{"ID":"a"}`, "id", "", "not there"},
		{"missing", `{"order":{}}`, "order.id", "", "not there"},
		{"through a string", `{"order":"x"}`, "order.id", "", "not there"},
		{"index too large", `[1]`, "1", "", "not there"},
		{"no index", `[1]`, "a", "", "not there"},
		{"fraction", `{"id":1.5}`, "id", "", "no integer"},
		{"exponent", `{"id":1e3}`, "id", "", "no integer"},
		{"null", `{"id":null}`, "id", "", "neither"},
		{"bool", `{"id":true}`, "id", "", "neither"},
		{"object", `{"id":{}}`, "id", "", "neither"},
		{"empty body", ``, "id", "", "not JSON"},
		{"trailing garbage", `{"id":"a"}x`, "id", "", "not JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			id, err := consumer.IDFromJSON(c.path)(&consumer.Message{Value: []byte(c.body)})
			require.Equal(t, c.id, id)
			if c.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.wrong)
		})
	}
}

// STORES, key parts joined ambiguously (Jaskey): tag "" + "a:b" = tag "a" + "b".
func TestIDFromParts_DifferentPartsNeverMeet(t *testing.T) {
	part := func(s string) consumer.IDFunc { return func(*consumer.Message) (string, error) { return s, nil } }
	seen := map[string][]string{}
	for _, ps := range [][]string{{"a", "bc"}, {"ab", "c"}, {"a:b", "c"}, {"a", "b:c"}, {"1:a", "b"}, {"abc"}, {"a", "b", "c"}, {"3:abc"}, {"1:a2:bc"}} {
		for _, ns := range []string{"n", "n1", "1:n"} {
			var fs []consumer.IDFunc
			for _, p := range ps {
				fs = append(fs, part(p))
			}
			id, err := consumer.IDFromParts(ns, fs...)(&consumer.Message{})
			require.NoError(t, err)
			require.Nil(t, seen[id], "%q and %q share the id %q", seen[id], append([]string{ns}, ps...), id)
			seen[id] = append([]string{ns}, ps...)
		}
	}
	_, err := consumer.IDFromParts("n", part("a"), part(""))(&consumer.Message{})
	require.ErrorContains(t, err, "part 2")
}

// PROTOCOL 7: position as id is that of the first delivery.
func TestIDFromPosition_IsThatOfTheFirstDelivery(t *testing.T) {
	m := &consumer.Message{Position: consumer.Position{Topic: "g.retry.5s", Partition: 1, Offset: 2}}
	id, err := consumer.IDFromPosition()(m)
	require.NoError(t, err)
	require.Equal(t, "g.retry.5s/1@2", id)
	m.Origin = consumer.Position{Topic: "orders", Partition: 3, Offset: 4}
	id, _ = consumer.IDFromPosition()(m)
	require.Equal(t, "orders/3@4", id)
	m.BrokerID = "7F0001"
	id, _ = consumer.IDFromPosition()(m)
	require.Equal(t, "7F0001", id)
	_, err = consumer.IDFromPosition()(&consumer.Message{})
	require.Error(t, err)
}

func TestFirstOf_TakesTheFirstThatYieldsAnID(t *testing.T) {
	f := consumer.FirstOf(consumer.IDFromHeader("msg_id"), consumer.IDFromKey(), consumer.IDFromJSON("id"))
	id, err := f(&consumer.Message{Value: []byte(`{"id":"body"}`)})
	require.NoError(t, err)
	require.Equal(t, "body", id)
	id, _ = f(&consumer.Message{Key: []byte("key"), Value: []byte(`{"id":"body"}`)})
	require.Equal(t, "key", id)
	id, err = f(withHeader("msg_id", ""))
	require.Empty(t, id)
	require.Error(t, err)
}

func TestParsePosition_ReadsWhatStringWrites(t *testing.T) {
	for _, p := range []consumer.Position{{"orders", 0, 0}, {"a/b@c", 7, 1 << 40}, {"%RETRY%g", 2147483647, 5}} {
		got, err := consumer.ParsePosition(p.String())
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
	for _, s := range []string{"", "orders", "orders/1", "orders@1/2", "/1@2", "orders/x@1", "orders/1@", "orders/99999999999@1"} {
		_, err := consumer.ParsePosition(s)
		require.Error(t, err, s)
	}
}

func TestFingerprintJSON_ComparesTheNamedFieldsOnly(t *testing.T) {
	f := consumer.FingerprintJSON("order", "quantity")
	of := func(body string) [20]byte {
		fp, err := f(&consumer.Message{Value: []byte(body)})
		require.NoError(t, err)
		return fp
	}
	one := of(`{"order":{"id":1,"sku":"a"},"quantity":2,"sent_at":"10:00"}`)
	require.Equal(t, one, of(`{"sent_at":"11:00", "quantity" : 2, "order":{"sku":"a","id":1}}`), "stamps, order of fields and spaces do not count")
	require.NotEqual(t, one, of(`{"order":{"id":1,"sku":"a"},"quantity":3}`))
	require.NotEqual(t, of(`{"order":1}`), of(`{"order":1,"quantity":null}`), "not there is not null")
	require.NotEqual(t, of(`{"order":9007199254740993}`), of(`{"order":9007199254740992}`), "large integers are exact")
	_, err := f(&consumer.Message{Value: []byte(`{"order":`)})
	require.ErrorContains(t, err, "not JSON")
	other, err := consumer.FingerprintJSON("order.quantity")(&consumer.Message{Value: []byte(`{}`)})
	require.NoError(t, err)
	same, err := consumer.FingerprintJSON("order", "quantity")(&consumer.Message{Value: []byte(`{}`)})
	require.NoError(t, err)
	require.False(t, other.Differs(same), "fingerprints of other fields are not compared")
}

func TestPermanentAndRetryAfter_KeepTheirCause(t *testing.T) {
	cause := errors.New("no such sku")
	require.NoError(t, consumer.Permanent(nil))
	require.NoError(t, consumer.RetryAfter(1, nil))
	require.ErrorIs(t, consumer.Permanent(cause), cause)
	require.True(t, consumer.IsPermanent(errors.Join(errors.New("x"), consumer.Permanent(cause))))
	require.False(t, consumer.IsPermanent(consumer.RetryAfter(1, cause)))
	require.EqualError(t, consumer.RetryAfter(1, consumer.Permanent(cause)), "no such sku")
}

func FuzzIDFromJSON_NeverPanicsAndIsNeverEmptyWithoutAnError(f *testing.F) {
	f.Add(`{"a":{"b":[1,"x"]}}`, "a.b.1")
	f.Add(`"a"`, "")
	f.Add(`[[]]`, "0.0")
	f.Fuzz(func(t *testing.T, body, path string) {
		id, err := consumer.IDFromJSON(path)(&consumer.Message{Value: []byte(body)})
		if err != nil {
			require.Empty(t, id)
			return
		}
		if id == "" {
			require.Contains(t, body, `""`)
		}
		_, err = consumer.FingerprintJSON(path)(&consumer.Message{Value: []byte(body)})
		require.NoError(t, err)
	})
}

func FuzzPosition_RoundTrips(f *testing.F) {
	f.Add("orders", int32(1), int64(2))
	f.Fuzz(func(t *testing.T, topic string, partition int32, offset int64) {
		if topic == "" || strings.ContainsAny(topic, "\x00") {
			return
		}
		p := consumer.Position{Topic: topic, Partition: partition, Offset: offset}
		got, err := consumer.ParsePosition(p.String())
		require.NoError(t, err)
		require.Equal(t, p, got)
	})
}
