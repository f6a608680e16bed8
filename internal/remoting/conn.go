// Package remoting speaks RocketMQ's remoting protocol: the few requests of administration that the Go client lacks.
package remoting

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the protocol's signature
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
)

// Requests, as RocketMQ numbers them.
const (
	SendMessage           = 10
	PullMessage           = 11
	QueryConsumerOffset   = 14
	UpdateConsumerOffset  = 15
	UpdateTopic           = 17
	UpdateBrokerConfig    = 25
	GetBrokerConfig       = 26
	GetMaxOffset          = 30
	GetMinOffset          = 31
	RouteOfTopic          = 105
	UpdateGroup           = 200
	GetAllGroups          = 201
	GetConsumerConnection = 203
)

// Answers other than success.
const (
	SystemError      = 1
	MessageIllegal   = 13
	NoPermission     = 16
	TopicNotExist    = 17
	PullNotFound     = 19
	PullRetry        = 20
	PullOffsetMoved  = 21
	QueryNotFound    = 22
	ConsumerNotThere = 206
)

// maxFrame bounds what is read: a pull of large messages is the most.
const maxFrame = 64 << 20

// Options of a connection.
type Options struct {
	TLS *tls.Config // nil: plain text
	// AccessKey and SecretKey sign each request; both empty: no signature.
	AccessKey, SecretKey, SecurityToken string
}

// Error is an answer that is no success.
type Error struct {
	Code   int
	Remark string
}

// Error has the code and the first line of what the server says about it.
func (e *Error) Error() string {
	remark := e.Remark
	for i, r := range remark {
		if r == '\n' || i > 300 {
			remark = remark[:i]
			break
		}
	}
	return fmt.Sprintf("code %d: %s", e.Code, remark)
}

// IsCode says whether err is an answer with one of the codes.
func IsCode(err error, codes ...int) bool {
	var e *Error
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}

// Response is an answer of success.
type Response struct {
	Fields map[string]string
	Body   []byte
}

// Conn is a connection to a name server or a broker. One request is under way at a time; it may be used by many goroutines. After
// an error that is no *Error it is of no use any more.
type Conn struct {
	options Options

	mu     sync.Mutex
	conn   net.Conn
	in     *bufio.Reader
	opaque int32
}

// Dial connects to addr, host:port.
func Dial(ctx context.Context, addr string, options Options) (*Conn, error) {
	var conn net.Conn
	var err error
	if options.TLS != nil {
		conn, err = (&tls.Dialer{Config: options.TLS}).DialContext(ctx, "tcp", addr)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, err
	}
	return &Conn{options: options, conn: conn, in: bufio.NewReader(conn)}, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// header is the protocol's, in its JSON form.
type header struct {
	Code      int               `json:"code"`
	Language  string            `json:"language"`
	Version   int               `json:"version"`
	Opaque    int32             `json:"opaque"`
	Flag      int               `json:"flag"`
	Remark    string            `json:"remark"`
	ExtFields map[string]string `json:"extFields"`
}

// version is that of a client of RocketMQ 4.7, from which brokers believe all fields that are used here.
const version = 317

// Call sends one request and waits for its answer, until ctx ends.
func (c *Conn) Call(ctx context.Context, code int, fields map[string]string, body []byte) (Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opaque++
	h := header{Code: code, Language: "GO", Version: version, Opaque: c.opaque, ExtFields: c.signed(fields, body)}
	frame, err := encode(h, body)
	if err != nil {
		return Response{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() }) // the read below then fails
	defer stop()
	if _, err := c.conn.Write(frame); err != nil {
		return Response{}, c.failure(ctx, err)
	}
	for {
		answer, body, err := decode(c.in)
		switch {
		case err != nil:
			return Response{}, c.failure(ctx, err)
		case answer.Flag&1 == 0 || answer.Opaque != h.Opaque:
			continue // a request of the server's, such as that a group has changed
		case answer.Code != 0:
			return Response{}, &Error{Code: answer.Code, Remark: answer.Remark}
		}
		return Response{Fields: answer.ExtFields, Body: body}, nil
	}
}

func (c *Conn) failure(ctx context.Context, err error) error {
	_ = c.conn.Close() // what is left of the answer would be taken for the next one
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// signed are the fields with the signature that a server with access control asks for.
func (c *Conn) signed(fields map[string]string, body []byte) map[string]string {
	if c.options.AccessKey == "" {
		return fields
	}
	all := maps.Clone(fields)
	if all == nil {
		all = map[string]string{}
	}
	all["AccessKey"] = c.options.AccessKey
	if c.options.SecurityToken != "" {
		all["SecurityToken"] = c.options.SecurityToken
	}
	mac := hmac.New(sha1.New, []byte(c.options.SecretKey))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		mac.Write([]byte(all[name]))
	}
	mac.Write(body)
	all["Signature"] = base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return all
}

// encode makes a frame: its length without these four bytes, the header's length, the header, the body.
func encode(h header, body []byte) ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, 0, 8+len(text)+len(body))
	frame = binary.BigEndian.AppendUint32(frame, uint32(4+len(text)+len(body)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(text))) // the top byte, 0, says JSON
	frame = append(frame, text...)
	return append(frame, body...), nil
}

func decode(in io.Reader) (header, []byte, error) {
	var size [8]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return header{}, nil, err
	}
	total, head := binary.BigEndian.Uint32(size[:4]), binary.BigEndian.Uint32(size[4:])
	kind, head := head>>24, head&0xffffff
	if total < 4 || total > maxFrame || head > total-4 {
		return header{}, nil, fmt.Errorf("remoting: a frame of %d bytes with a header of %d", total, head)
	}
	if kind != 0 {
		return header{}, nil, fmt.Errorf("remoting: header of kind %d, want JSON", kind)
	}
	frame := make([]byte, total-4)
	if _, err := io.ReadFull(in, frame); err != nil {
		return header{}, nil, err
	}
	var h header
	if err := json.Unmarshal(frame[:head], &h); err != nil {
		return header{}, nil, fmt.Errorf("remoting: header: %w", err)
	}
	return h, frame[head:], nil
}
