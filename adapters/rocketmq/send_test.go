package rocketmq

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/remoting"
)

// fakeServer is a name server and a broker that answers writes with one code after the other, the last for ever.
type fakeServer struct {
	addr string

	mu      sync.Mutex
	answers []int
	sent    []map[string]string
}

func newFakeServer(t *testing.T, answers ...int) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &fakeServer{addr: l.Addr().String(), answers: answers}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); conns.Wait() })
	return s
}

type frame struct {
	Code      int               `json:"code"`
	Opaque    int32             `json:"opaque"`
	Flag      int               `json:"flag"`
	Remark    string            `json:"remark"`
	ExtFields map[string]string `json:"extFields"`
}

func (s *fakeServer) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var size [8]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		rest := make([]byte, binary.BigEndian.Uint32(size[:4])-4)
		if _, err := io.ReadFull(conn, rest); err != nil {
			return
		}
		var in frame
		if json.Unmarshal(rest[:binary.BigEndian.Uint32(size[4:])], &in) != nil {
			return
		}
		out, body := frame{Opaque: in.Opaque, Flag: 1}, ""
		switch in.Code {
		case remoting.RouteOfTopic:
			body = `{"brokerDatas":[{"brokerAddrs":{"0":"` + s.addr + `"},"brokerName":"b0"}],"queueDatas":[{"brokerName":"b0","perm":6,"readQueueNums":1,"writeQueueNums":1}]}`
		case remoting.SendMessage:
			out.Code, out.Remark = s.write(in.ExtFields), "as told"
		}
		head, err := json.Marshal(out)
		if err != nil {
			return
		}
		answer := binary.BigEndian.AppendUint32(nil, uint32(4+len(head)+len(body)))
		answer = binary.BigEndian.AppendUint32(answer, uint32(len(head)))
		if _, err := conn.Write(append(append(answer, head...), body...)); err != nil {
			return
		}
	}
}

func (s *fakeServer) write(fields map[string]string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	code := s.answers[min(len(s.sent), len(s.answers)-1)]
	s.sent = append(s.sent, fields)
	return code
}

func (s *fakeServer) writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent)
}

func (s *fakeServer) publish(t *testing.T, d consumer.DeadLetter) error {
	t.Helper()
	q, err := OpenDeadLetters(Config{NameServers: []string{s.addr}, Logger: slog.New(slog.DiscardHandler)}, "%DLQ%g")
	require.NoError(t, err)
	defer q.Close()
	return q.Publish(context.Background(), d)
}

func letter() consumer.DeadLetter {
	at := consumer.Position{Topic: "orders"}
	return consumer.DeadLetter{Message: &consumer.Message{Position: at, Origin: at, Value: []byte("v")}, ID: "id", Scope: "shop", Error: "why"}
}

// Trap 42: it is stored, though not yet on disk or on the replica. A sender that repeats it stores it again and again.
func TestTrap42_AMessageThatIsStoredIsNotSentAgain(t *testing.T) {
	for _, code := range []int{0, flushDiskTimeout, flushSlaveTimeout, slaveNotAvailable} {
		s := newFakeServer(t, code)
		require.NoError(t, s.publish(t, letter()))
		require.Equal(t, 1, s.writes())
	}
}

func TestPublish_ABrokerThatIsBusyIsAskedAgain(t *testing.T) {
	const busy = 2
	s := newFakeServer(t, busy, 0)
	require.NoError(t, s.publish(t, letter()))
	require.Equal(t, 2, s.writes())
	s = newFakeServer(t, busy)
	err := s.publish(t, letter())
	require.ErrorContains(t, err, `rocketmq: write to "%DLQ%g": code 2: as told`)
	require.NotErrorIs(t, err, consumer.ErrLetterRefused)
	require.Equal(t, sendTries, s.writes())
}

func TestPublish_WhatTheBrokerRefusesForGoodIsSaidSo(t *testing.T) {
	s := newFakeServer(t, remoting.MessageIllegal)
	require.ErrorIs(t, s.publish(t, letter()), consumer.ErrLetterRefused)
	require.Equal(t, 2, s.writes()) // the second without the error's text
	require.Contains(t, s.sent[0]["properties"], consumer.HeaderError)
	require.NotContains(t, s.sent[1]["properties"], consumer.HeaderError)
	s = newFakeServer(t, remoting.NoPermission)
	require.ErrorIs(t, s.publish(t, letter()), consumer.ErrLetterRefused)
	require.Equal(t, 1, s.writes())
}

func TestRequest_CompressesAsClientsDo(t *testing.T) {
	fields, body, err := request("t", map[string]string{"b": "2", "a": "1"}, []byte(strings.Repeat("x", 100_000)))
	require.NoError(t, err)
	require.Equal(t, "1", fields["sysFlag"])
	require.Less(t, len(body), 1000)
	require.Equal(t, "a\x011\x02b\x012\x02", fields["properties"])
	fields, body, err = request("t", nil, []byte("small"))
	require.NoError(t, err)
	require.Equal(t, "0", fields["sysFlag"])
	require.Equal(t, "small", string(body))
}
