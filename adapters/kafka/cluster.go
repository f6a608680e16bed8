package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

const (
	dialTimeout    = 5 * time.Second
	requestTimeout = 10 * time.Second
	// metadataTTL is how long a Transport may believe an old leader. It asks at random moments within this time.
	metadataTTL = 2 * time.Second
)

// cluster is the way to the brokers. Every connection made through it, by kafka-go's group or by a Transport, has the same TLS, SASL
// and time limits, and is closed by close, whatever kafka-go still keeps open.
type cluster struct {
	addr  net.Addr
	dials dials

	brokers []string
	dialer  *kafkago.Dialer
	build   func(topics []string) *kafkago.Transport

	mu         sync.Mutex
	transports []*kafkago.Transport
}

func newCluster(cfg Config) *cluster {
	c := &cluster{addr: kafkago.TCP(cfg.Brokers...), brokers: cfg.Brokers}
	c.dialer = &kafkago.Dialer{
		ClientID:      cfg.ClientID,
		DialFunc:      c.dials.dial,
		Timeout:       dialTimeout,
		TLS:           cfg.TLS,
		SASLMechanism: cfg.SASL,
	}
	c.build = func(topics []string) *kafkago.Transport {
		return &kafkago.Transport{
			Dial:           c.dials.dial,
			DialTimeout:    dialTimeout,
			MetadataTTL:    metadataTTL,
			MetadataTopics: topics,
			ClientID:       cfg.ClientID,
			TLS:            cfg.TLS,
			SASL:           cfg.SASL,
		}
	}
	return c
}

// transport knows the given topics only: without names it would load the metadata of every topic of the cluster again and again.
func (c *cluster) transport(topics ...string) *kafkago.Transport {
	if len(topics) == 0 {
		topics = []string{} // none, which is something else than nil: all
	}
	t := c.build(topics)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.transports = append(c.transports, t)
	return t
}

// drop closes a transport that is not needed any more.
func (c *cluster) drop(t *kafkago.Transport) {
	c.mu.Lock()
	c.transports = slices.DeleteFunc(c.transports, func(x *kafkago.Transport) bool { return x == t })
	c.mu.Unlock()
	t.CloseIdleConnections()
}

// client asks through a Transport that knows the given topics.
func (c *cluster) client(topics ...string) *kafkago.Client {
	return &kafkago.Client{Addr: c.addr, Timeout: requestTimeout, Transport: c.transport(topics...)}
}

// close ends every connection; goroutines of kafka-go that wait on one end with it.
func (c *cluster) close() {
	c.mu.Lock()
	transports := c.transports
	c.transports = nil
	c.mu.Unlock()
	for _, t := range transports {
		t.CloseIdleConnections()
	}
	c.dials.close()
}

// dials remembers open connections: a Transport has no way to close one that is waiting for a reply.
type dials struct {
	mu     sync.Mutex
	open   map[*dialed]struct{}
	closed bool
}

type dialed struct {
	net.Conn
	dials *dials
	once  sync.Once
	err   error
}

func (d *dials) dial(ctx context.Context, network, address string) (net.Conn, error) {
	nc, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &dialed{Conn: nc, dials: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.Join(net.ErrClosed, nc.Close())
	}
	if d.open == nil {
		d.open = map[*dialed]struct{}{}
	}
	d.open[c] = struct{}{}
	return c, nil
}

// Close may be called by kafka-go and by us.
func (c *dialed) Close() error {
	c.once.Do(func() {
		c.dials.mu.Lock()
		delete(c.dials.open, c)
		c.dials.mu.Unlock()
		c.err = c.Conn.Close()
	})
	return c.err
}

func (d *dials) close() {
	d.mu.Lock()
	d.closed = true
	open := make([]*dialed, 0, len(d.open))
	for c := range d.open {
		open = append(open, c)
	}
	d.mu.Unlock()
	for _, c := range open {
		c.Close() //nolint:errcheck // nobody waits for what it still carried
	}
}

// metadata asks the brokers, not a cache, and never creates a topic: by kafka-go's own Conn, subscribing to or asking for a topic makes
// one where the broker allows it.
func (c *cluster) metadata(ctx context.Context, topics ...string) (*kafkago.MetadataResponse, error) {
	t := c.build(topics) // nil: all
	defer t.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := (&kafkago.Client{Addr: c.addr, Transport: t}).Metadata(ctx, &kafkago.MetadataRequest{Topics: topics})
	if err != nil {
		return nil, fmt.Errorf("ask for metadata: %w", err)
	}
	return res, nil
}
