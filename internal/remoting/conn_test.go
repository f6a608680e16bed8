package remoting

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers each request by answer, on one connection.
func server(t *testing.T, answer func(h header, body []byte, to net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			h, body, err := decode(conn)
			if err != nil {
				return
			}
			answer(h, body, conn)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return l.Addr().String()
}

func send(t *testing.T, to net.Conn, h header, body []byte) {
	t.Helper()
	frame, err := encode(h, body)
	if err == nil {
		_, err = to.Write(frame)
	}
	if err != nil {
		t.Error(err)
	}
}

func dial(t *testing.T, addr string, options Options) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), addr, options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestCall_TakesItsOwnAnswer_AndPassesOverRequestsOfTheServer(t *testing.T) {
	addr := server(t, func(h header, body []byte, to net.Conn) {
		send(t, to, header{Code: 40, Opaque: h.Opaque}, nil)    // not an answer
		send(t, to, header{Opaque: h.Opaque + 7, Flag: 1}, nil) // another's
		send(t, to, header{Opaque: h.Opaque, Flag: 1, ExtFields: h.ExtFields}, bytes.ToUpper(body))
	})
	c := dial(t, addr, Options{})
	for _, text := range []string{"a", "b"} {
		r, err := c.Call(t.Context(), RouteOfTopic, map[string]string{"topic": text}, []byte(text))
		require.NoError(t, err)
		require.Equal(t, strings.ToUpper(text), string(r.Body))
		require.Equal(t, map[string]string{"topic": text}, r.Fields)
	}
}

func TestCall_AnAnswerThatIsNoSuccess_IsAnErrorWithItsCode(t *testing.T) {
	addr := server(t, func(h header, _ []byte, to net.Conn) {
		send(t, to, header{Code: TopicNotExist, Remark: "no route\nat Foo.java", Opaque: h.Opaque, Flag: 1}, nil)
	})
	_, err := dial(t, addr, Options{}).Call(t.Context(), RouteOfTopic, nil, nil)
	require.True(t, IsCode(err, TopicNotExist))
	require.False(t, IsCode(err, SystemError))
	require.EqualError(t, err, "code 17: no route")
}

func TestCall_EndsWithItsContext(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	addr := server(t, func(header, []byte, net.Conn) { cancel(cause) }) // and answers nothing
	_, err := dial(t, addr, Options{}).Call(ctx, RouteOfTopic, nil, nil)
	require.ErrorIs(t, err, cause)
}

// The signature of a known request, as RocketMQ's own client makes it: fields in the order of their names, then the body.
func TestCall_SignsWithTheSecretKey(t *testing.T) {
	var got map[string]string
	addr := server(t, func(h header, _ []byte, to net.Conn) {
		got = h.ExtFields
		send(t, to, header{Opaque: h.Opaque, Flag: 1}, nil)
	})
	c := dial(t, addr, Options{AccessKey: "Hello RocketMQ ", SecretKey: "adiaushdiaushd"})
	_, err := c.Call(t.Context(), RouteOfTopic, map[string]string{"b": "Client "}, []byte("ACL Feature"))
	require.NoError(t, err)
	require.Equal(t, "Hello RocketMQ ", got["AccessKey"])
	require.Equal(t, "tAb/54Rwwcq+pbH8Loi7FWX4QSQ=", got["Signature"])
	require.NotContains(t, got, "SecurityToken")
}

func TestDecode_RefusesFramesThatCannotBe(t *testing.T) {
	for name, frame := range map[string]string{
		"header longer than frame": "\x00\x00\x00\x08\x00\x00\x00\x09xxxxxxxx",
		"huge":                     "\x7f\x00\x00\x08\x00\x00\x00\x01x",
		"not JSON":                 "\x00\x00\x00\x05\x01\x00\x00\x01x",
		"broken JSON":              "\x00\x00\x00\x05\x00\x00\x00\x01x",
	} {
		_, _, err := decode(strings.NewReader(frame))
		require.ErrorContains(t, err, "remoting: ", name)
	}
	_, _, err := decode(strings.NewReader("\x00\x00\x00\x09\x00\x00\x00\x02{}"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
