package sqlstore_test

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between a client and its database. It can lose an answer: cut the connection when the server has answered a
// statement, and before the client has seen that.
type proxy struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	cutOn []byte // the client's bytes that arm it; nil: nothing
	cuts  int
	onCut func() // called when an answer is about to be lost
	conns []net.Conn

	wait sync.WaitGroup
}

func newProxy(t testing.TB, server string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, server: server}
	p.wait.Go(p.accept)
	t.Cleanup(func() {
		p.stop()
		p.wait.Wait()
	})
	return p
}

// through is rawURL with the proxy's address in it.
func (p *proxy) through(t testing.TB, rawURL string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	u.Host = p.listener.Addr().String()
	return u.String()
}

func hostOf(t testing.TB, rawURL string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	return u.Host
}

// loseAnswerTo arms the proxy: the answer to the next statement that contains text is lost, and so is its connection.
func (p *proxy) loseAnswerTo(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutOn, p.cuts = []byte(text), 0
}

func (p *proxy) lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		armed := make(chan struct{}, 1)
		p.wait.Go(func() { p.up(client, server, armed) })
		p.wait.Go(func() { p.down(client, server, armed) })
	}
}

// up carries the client's bytes, and arms the way down. A statement arrives in one read: it is far smaller than the buffer.
func (p *proxy) up(client, server net.Conn, armed chan<- struct{}) {
	defer server.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if n > 0 {
			p.mu.Lock()
			if p.cutOn != nil && bytes.Contains(bytes.ToUpper(buf[:n]), bytes.ToUpper(p.cutOn)) {
				p.cutOn = nil
				p.cuts++
				armed <- struct{}{}
				if p.onCut != nil {
					p.onCut()
				}
			}
			p.mu.Unlock()
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// down carries the server's bytes, until the answer that is to be lost: it has come, so the statement is done.
func (p *proxy) down(client, server net.Conn, armed <-chan struct{}) {
	defer client.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		select {
		case <-armed:
			return
		default:
		}
		if n > 0 {
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil && err != io.EOF || n == 0 {
			return
		}
	}
}

// stop cuts every connection and takes no more.
func (p *proxy) stop() {
	p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
}
