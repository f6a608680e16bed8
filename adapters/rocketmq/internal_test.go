package rocketmq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	rmq "github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
)

func TestParseLevels_AndTheLevelForADelay(t *testing.T) {
	levels, err := ParseLevels(usualLevels)
	require.NoError(t, err)
	require.Len(t, levels, 18)
	require.Equal(t, 2*time.Hour, levels[17])
	for delay, want := range map[time.Duration]int{
		-1: 1, 0: 1, time.Millisecond: 1, time.Second: 1, time.Second + 1: 2, 5 * time.Second: 2, 90 * time.Second: 6, 2 * time.Hour: 18, math.MaxInt64: 18,
	} {
		require.Equal(t, want, levelFor(levels, delay), delay)
	}
	repeated, err := ParseLevels("1s 1s 2s 1d")
	require.NoError(t, err)
	require.Equal(t, 1, levelFor(repeated, time.Second))
	require.Equal(t, 4, levelFor(repeated, time.Minute))
	for _, bad := range []string{"", "5", "s", "0s", "-1s", "1.5s", "1w", "2s 1s"} {
		_, err := ParseLevels(bad)
		require.ErrorContains(t, err, "rocketmq: delay level", bad)
	}
}

// Traps 24, 25 and 28: what the client is told is chosen, in each case.
func TestTell_ChoosesEveryResult(t *testing.T) {
	levels := []time.Duration{time.Second, 5 * time.Second}
	concurrent := func(a answer) (rmq.ConsumeResult, int) {
		c := primitive.NewConsumeConcurrentlyContext()
		r := &run{cfg: Config{Levels: levels}}
		return r.tell(primitive.WithConcurrentlyCtx(context.Background(), c), a), c.DelayLevelWhenNextConsume
	}
	result, _ := concurrent(acked)
	require.Equal(t, rmq.ConsumeSuccess, result)
	for after, want := range map[time.Duration]int{0: 1, 2 * time.Second: 2, time.Hour: 2} { // never 0 or -1, which mean other things
		result, level := concurrent(answer{after: after})
		require.Equal(t, rmq.ConsumeRetryLater, result)
		require.Equal(t, want, level)
	}
	orderly := func(a answer) (rmq.ConsumeResult, int) {
		c := primitive.NewConsumeOrderlyContext()
		r := &run{cfg: Config{Levels: levels, Orderly: true}}
		return r.tell(primitive.WithOrderlyCtx(context.Background(), c), a), c.SuspendCurrentQueueTimeMillis
	}
	result, _ = orderly(acked)
	require.Equal(t, rmq.ConsumeSuccess, result)
	for after, want := range map[time.Duration]int{0: 10, 1500 * time.Millisecond: 1500} {
		result, ms := orderly(answer{after: after})
		require.Equal(t, rmq.SuspendCurrentQueueAMoment, result)
		require.Equal(t, want, ms)
	}
	r := &run{cfg: Config{Levels: levels, Orderly: true}} // the console's way of sending a message again has no such context
	require.Equal(t, rmq.SuspendCurrentQueueAMoment, r.tell(context.Background(), answer{}))
}

func TestFromRocketMQ_KeepsWhatIsTheUsers_AndTheFirstTopic(t *testing.T) {
	raw := &primitive.MessageExt{QueueOffset: 42, ReconsumeTimes: 3, StoreTimestamp: 1_700_000_000_000, OffsetMsgId: "at"}
	raw.Topic, raw.Body = "orders", []byte("v")
	raw.Queue = &primitive.MessageQueue{Topic: "orders", BrokerName: "b0", QueueId: 5}
	raw.WithProperties(map[string]string{
		"KEYS": "order-1", "TAGS": "paid", "trace": "t", "SHARDING_KEY": "sku", "UNIQ_KEY": "u", "MAX_OFFSET": "9", "DELAY": "3", "WAIT": "true",
	})
	m := FromRocketMQ(raw)
	require.Equal(t, consumer.Position{Topic: "orders", Partition: 5, Offset: 42}, m.Position)
	require.Equal(t, m.Position, m.Origin)
	require.Equal(t, consumer.Headers{{Name: "KEYS", Value: []byte("order-1")}, {Name: "TAGS", Value: []byte("paid")}, {Name: "trace", Value: []byte("t")}}, m.Headers)
	require.Equal(t, "sku", string(m.Key))
	require.Equal(t, "u", m.BrokerID)
	require.Equal(t, 3, m.Redeliveries)
	require.Equal(t, time.UnixMilli(1_700_000_000_000), m.SentAt)
	require.False(t, m.OwnRetry)

	raw.WithProperty("RETRY_TOPIC", "orders")
	raw.WithProperty("ORIGIN_MESSAGE_ID", "first")
	raw.RemoveProperty("UNIQ_KEY")
	raw.RemoveProperty("SHARDING_KEY")
	m = FromRocketMQ(raw)
	require.Equal(t, consumer.Position{Topic: "orders", Partition: -1, Offset: 42}, m.Position)
	require.Equal(t, "first", m.BrokerID)
	require.Nil(t, m.Key)
	back, err := consumer.ParsePosition(m.Origin.String())
	require.NoError(t, err)
	require.Equal(t, m.Origin, back)

	raw.RemoveProperty("ORIGIN_MESSAGE_ID")
	require.Equal(t, "at", FromRocketMQ(raw).BrokerID)
	require.NotPanics(t, func() { FromRocketMQ(&primitive.MessageExt{}) })
}

// A service that forwards all headers must not change identity: on a retry as little as on the first delivery.
func TestFromRocketMQ_HeadersOfOthersCopiesAreNoMoreBelievedOnARetry(t *testing.T) {
	raw := &primitive.MessageExt{}
	raw.Topic = "orders"
	raw.WithProperties(map[string]string{consumer.HeaderID: "another", consumer.HeaderScope: "shop"})
	for range 2 {
		require.False(t, FromRocketMQ(raw).OwnRetry)
		require.Equal(t, "orders", FromRocketMQ(raw).Topic)
		raw.WithProperty("RETRY_TOPIC", "orders")
	}
}

func TestWithID_IsAKeyToo_UnlessThatWouldBeTwo(t *testing.T) {
	require.Equal(t, "a", WithID(primitive.NewMessage("t", nil), "a").GetKeys())
	require.Empty(t, WithID(primitive.NewMessage("t", nil), "a b").GetKeys())
	m := primitive.NewMessage("t", nil).WithKeys([]string{"k"})
	WithID(m, "a")
	require.Equal(t, "k", m.GetKeys())
	require.Equal(t, "a", m.GetProperty(HeaderMessageID))
}

// Traps 29 and 45: the client's log has its level, no payload, and does not end the process.
func TestTrap45_TheClientsLogHasNoPayloads(t *testing.T) {
	var out bytes.Buffer
	old := clientLogger.Swap(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})))
	defer clientLogger.Store(old)
	m := &primitive.MessageExt{}
	m.Body = []byte("payload")
	clientLog{}.Warning("consumeMessageCurrently error", map[string]interface{}{
		"messages": []*primitive.MessageExt{m}, "message": m, "err": errors.New("why"), "n": 3, "MessageQueue": &primitive.MessageQueue{Topic: "orders"},
	})
	require.Contains(t, out.String(), "level=WARN")
	require.Contains(t, out.String(), "err=why")
	require.Contains(t, out.String(), "n=3")
	require.Contains(t, out.String(), "orders")
	require.NotContains(t, out.String(), "payload")
	out.Reset()
	clientLog{}.Info("routine", nil)
	clientLog{}.Debug("routine", nil)
	clientLog{}.Warning("consumeMessage Orderly return not OK", nil)
	require.Empty(t, out.String())
	clientLog{}.Fatal("the end", nil)
	clientLog{}.Error("an error", nil)
	require.Equal(t, 2, strings.Count(out.String(), "level=ERROR"))
	require.NoError(t, clientLog{}.OutputPath("x"))
}

func TestCredentials_AreNotPrinted(t *testing.T) {
	c := Credentials{AccessKey: "ak", SecretKey: "secret", SecurityToken: "token"}
	for _, text := range []string{fmt.Sprint(c), fmt.Sprintf("%+v %#v", c, c), fmt.Sprintf("%+v", Config{Credentials: c}), c.LogValue().String()} {
		require.NotContains(t, text, "secret")
		require.NotContains(t, text, "token")
	}
}

func TestTrap39_TLSIsOffUnlessItIsAskedForByAName(t *testing.T) {
	require.Nil(t, (&Config{}).remoting().TLS)
	require.True(t, (&Config{UnverifiedTLS: true}).remoting().TLS.InsecureSkipVerify)
}

func TestParseRoute_ReadsWhatOldAndNewNameServersWrite(t *testing.T) {
	for _, key := range []string{`0`, `"0"`} {
		r, err := parseRoute("orders", []byte(`{"brokerDatas":[{"brokerAddrs":{`+key+`:"127.0.0.1:10911",`+strings.Replace(key, "0", "1", 1)+`:"127.0.0.1:10921"},"brokerName":"b0","cluster":"c"},
			{"brokerAddrs":{`+strings.Replace(key, "0", "1", 1)+`:"x"},"brokerName":"b1"}],
			"queueDatas":[{"brokerName":"b0","perm":6,"readQueueNums":2,"writeQueueNums":1},{"brokerName":"b1","perm":4,"readQueueNums":1,"writeQueueNums":1}]}`))
		require.NoError(t, err)
		require.Equal(t, []string{"127.0.0.1:10911"}, r.masters())
		require.Equal(t, []Queue{{"orders", "b0", 0}, {"orders", "b0", 1}, {"orders", "b1", 0}}, r.read)
		require.Equal(t, []Queue{{"orders", "b0", 0}}, r.write)
	}
	_, err := parseRoute("orders", []byte(`{`))
	require.ErrorContains(t, err, `rocketmq: where is "orders"`)
}

func TestSubscriptions_OfAGroupWithoutMembersAreNone(t *testing.T) {
	body := func(members int) []byte {
		b, err := json.Marshal(map[string]any{"connectionSet": make([]int, members), "subscriptionTable": map[string]any{"b": 1, "a": 1, "%RETRY%g": 1}})
		require.NoError(t, err)
		return b
	}
	got, err := subscriptions(body(1), retryPrefix)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, got)
	got, err = subscriptions(body(0), retryPrefix)
	require.NoError(t, err)
	require.Empty(t, got)
}
