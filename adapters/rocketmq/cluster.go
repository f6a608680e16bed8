package rocketmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/idemq/idemq/internal/remoting"
)

// callTimeout is for one request.
const callTimeout = 5 * time.Second

// Queue of a topic.
type Queue struct {
	Topic  string
	Broker string
	ID     int
}

// String is "topic/broker/id".
func (q Queue) String() string { return fmt.Sprintf("%s/%s/%d", q.Topic, q.Broker, q.ID) }

// cluster asks name servers and brokers. It keeps a connection to each. Safe for concurrent use.
type cluster struct {
	cfg Config

	mu     sync.Mutex
	conns  map[string]*remoting.Conn
	closed bool
}

func newCluster(cfg Config) *cluster { return &cluster{cfg: cfg, conns: map[string]*remoting.Conn{}} }

var errClosed = errors.New("closed")

// call asks one server.
func (c *cluster) call(ctx context.Context, addr string, code int, fields map[string]string, body []byte) (remoting.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := c.conn(ctx, addr)
	if err != nil {
		return remoting.Response{}, err
	}
	r, err := conn.Call(ctx, code, fields, body)
	var refused *remoting.Error
	if err != nil && !errors.As(err, &refused) {
		c.drop(addr, conn)
	}
	return r, err
}

func (c *cluster) conn(ctx context.Context, addr string) (*remoting.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if conn := c.conns[addr]; conn != nil {
		return conn, nil
	}
	conn, err := remoting.Dial(ctx, addr, c.cfg.remoting())
	if err == nil {
		c.conns[addr] = conn
	}
	return conn, err
}

func (c *cluster) drop(addr string, conn *remoting.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = conn.Close() // it has failed already
	if c.conns[addr] == conn {
		delete(c.conns, addr)
	}
}

// close ends all connections; what is under way fails.
func (c *cluster) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for addr, conn := range c.conns {
		_ = conn.Close() // nothing is lost with it
		delete(c.conns, addr)
	}
}

// nameServer asks one name server after the other until one answers.
func (c *cluster) nameServer(ctx context.Context, code int, fields map[string]string) (remoting.Response, error) {
	var errs []error
	for _, addr := range c.cfg.NameServers {
		r, err := c.call(ctx, addr, code, fields, nil)
		var refused *remoting.Error
		if err == nil || errors.As(err, &refused) || ctx.Err() != nil {
			return r, err
		}
		errs = append(errs, fmt.Errorf("%s: %w", addr, err))
	}
	return remoting.Response{}, fmt.Errorf("rocketmq: no name server answers: %w", errors.Join(errs...))
}

// route is where a topic is.
type topicRoute struct {
	brokers map[string]string // addresses of masters, by broker name
	read    []Queue           // with the resource's name
	write   []Queue
}

var errNoTopic = errors.New("topic does not exist")

// route finds a topic by its name in the cluster.
func (c *cluster) route(ctx context.Context, resource string) (topicRoute, error) {
	r, err := c.nameServer(ctx, remoting.RouteOfTopic, map[string]string{"topic": resource, "acceptStandardJsonOnly": "true"})
	if remoting.IsCode(err, remoting.TopicNotExist) {
		return topicRoute{}, fmt.Errorf("rocketmq: %q: %w", resource, errNoTopic)
	}
	if err != nil {
		return topicRoute{}, fmt.Errorf("rocketmq: where is %q: %w", resource, err)
	}
	return parseRoute(resource, r.Body)
}

// unquoted keys are what older name servers write: {0:"127.0.0.1:10911"}.
var unquoted = regexp.MustCompile(`([{,])(\d+):`)

const (
	permRead  = 4
	permWrite = 2
)

func parseRoute(resource string, body []byte) (topicRoute, error) {
	var answer struct {
		BrokerDatas []struct {
			BrokerName  string
			BrokerAddrs map[string]string
		}
		QueueDatas []struct {
			BrokerName                          string
			Perm, ReadQueueNums, WriteQueueNums int
		}
	}
	if err := json.Unmarshal(unquoted.ReplaceAll(body, []byte(`$1"$2":`)), &answer); err != nil {
		return topicRoute{}, fmt.Errorf("rocketmq: where is %q: %w", resource, err)
	}
	out := topicRoute{brokers: map[string]string{}}
	for _, b := range answer.BrokerDatas {
		if master := b.BrokerAddrs["0"]; master != "" {
			out.brokers[b.BrokerName] = master
		}
	}
	for _, q := range answer.QueueDatas {
		for id := range q.ReadQueueNums {
			if q.Perm&permRead != 0 {
				out.read = append(out.read, Queue{resource, q.BrokerName, id})
			}
		}
		for id := range q.WriteQueueNums {
			if q.Perm&permWrite != 0 && out.brokers[q.BrokerName] != "" {
				out.write = append(out.write, Queue{resource, q.BrokerName, id})
			}
		}
	}
	return out, nil
}

// masters are the addresses in a fixed order.
func (r topicRoute) masters() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r.brokers)) {
		out = append(out, r.brokers[name])
	}
	return out
}

// createTopic makes a topic on each of the brokers, or changes it, and waits until the name server knows it. Brokers say yes to what they refuse, so
// the route is the proof.
func (c *cluster) createTopic(ctx context.Context, resource string, brokers []string) error {
	for _, addr := range brokers {
		_, err := c.call(ctx, addr, remoting.UpdateTopic, map[string]string{
			"topic": resource, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": strconv.Itoa(permRead | permWrite),
			"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
		}, nil)
		if err != nil {
			return fmt.Errorf("rocketmq: create topic %q: %w", resource, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		_, err := c.route(ctx, resource)
		if err == nil || !errors.Is(err, errNoTopic) {
			return err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("rocketmq: create topic %q: the broker agreed, and the name server does not know it", resource)
		}
	}
}

// group is what a broker has about a consumer group.
type group struct {
	ConsumeEnable  bool `json:"consumeEnable"`
	RetryQueueNums int  `json:"retryQueueNums"`
}

func (c *cluster) group(ctx context.Context, addr, resource string) (g group, found bool, err error) {
	r, err := c.call(ctx, addr, remoting.GetAllGroups, nil, nil)
	if err != nil {
		return g, false, err
	}
	var all struct {
		SubscriptionGroupTable map[string]group `json:"subscriptionGroupTable"`
	}
	if err := json.Unmarshal(r.Body, &all); err != nil {
		return g, false, err
	}
	g, found = all.SubscriptionGroupTable[resource]
	return g, found, nil
}

func (c *cluster) createGroup(ctx context.Context, addr, resource string) error {
	body, err := json.Marshal(map[string]any{
		"groupName": resource, "consumeEnable": true, "consumeFromMinEnable": true, "consumeBroadcastEnable": false,
		"retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1, "notifyConsumerIdsChangedEnable": true,
	})
	if err != nil {
		return err
	}
	_, err = c.call(ctx, addr, remoting.UpdateGroup, nil, body)
	return err
}

// brokerConfig is nil where we may not ask.
func (c *cluster) brokerConfig(ctx context.Context, addr string) (map[string]string, error) {
	r, err := c.call(ctx, addr, remoting.GetBrokerConfig, nil, nil)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, line := range regexp.MustCompile(`\r?\n`).Split(string(r.Body), -1) {
		if name, value, ok := cutLine(line); ok {
			out[name] = value
		}
	}
	return out, nil
}

// offset asks a broker for the first (GetMinOffset) or next (GetMaxOffset) offset of a queue.
func (c *cluster) offset(ctx context.Context, addr string, code int, q Queue) (int64, error) {
	r, err := c.call(ctx, addr, code, map[string]string{"topic": q.Topic, "queueId": strconv.Itoa(q.ID)}, nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(r.Fields["offset"], 10, 64)
}
