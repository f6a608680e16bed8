package testenv_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/internal/remoting"
	"github.com/idemq/idemq/internal/testenv"
)

func TestRocketMQ_TakesMessages(t *testing.T) {
	names := testenv.RocketMQ(t)
	topic := strings.ReplaceAll(testenv.Name(t), ".", "-")
	broker := brokerOf(t, names)
	sendRocketMQ(t, broker, topic)
	require.Equal(t, "1", maxOffset(t, broker, topic))
}

func TestOwnRocketMQ_KeepsItsMessagesWhenKilled(t *testing.T) {
	s := testenv.OwnRocketMQ(t, testenv.RocketMQOptions{})
	require.Equal(t, s.NameServer.Addr, s.URL)
	sendRocketMQ(t, s.Addr, "orders")
	require.NoError(t, s.Kill())
	requireRefused(t, s.Addr)
	require.NoError(t, s.Start())
	require.Equal(t, s.Addr, brokerOf(t, s.URL))
	require.Equal(t, "1", maxOffset(t, s.Addr, "orders"))
}

// brokerOf is the address that the name server tells clients.
func brokerOf(t *testing.T, names string) string {
	t.Helper()
	r := callRocketMQ(t, names, remoting.RouteOfTopic, map[string]string{"topic": "TBW102"}, "")
	_, rest, found := strings.Cut(string(r.Body), `127.0.0.1:`)
	require.True(t, found, string(r.Body))
	return "127.0.0.1:" + rest[:strings.Index(rest, `"`)]
}

func sendRocketMQ(t *testing.T, broker, topic string) {
	t.Helper()
	callRocketMQ(t, broker, remoting.SendMessage, map[string]string{
		"producerGroup": "g", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "1", "queueId": "0",
		"sysFlag": "0", "bornTimestamp": "0", "flag": "0", "properties": "", "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
	}, "hello")
}

// maxOffset waits for the message: an acknowledged one is counted a moment later.
func maxOffset(t *testing.T, broker, topic string) (offset string) {
	t.Helper()
	require.Eventually(t, func() bool {
		r := callRocketMQ(t, broker, remoting.GetMaxOffset, map[string]string{"topic": topic, "queueId": "0"}, "")
		offset = r.Fields["offset"]
		n, err := strconv.Atoi(offset)
		return err == nil && n > 0
	}, 20*time.Second, 50*time.Millisecond)
	return offset
}

func callRocketMQ(t *testing.T, addr string, code int, fields map[string]string, body string) remoting.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := remoting.Dial(ctx, addr, remoting.Options{})
	require.NoError(t, err)
	defer conn.Close()
	r, err := conn.Call(ctx, code, fields, []byte(body))
	require.NoError(t, err)
	return r
}
