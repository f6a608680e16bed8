package rocketmq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	rmqclient "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idemq/idemq/adapters/rocketmq"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/internal/remoting"
	"github.com/idemq/idemq/internal/testenv"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, leaks()...)
}

// leaks are what is not ours: the shared servers, which live as long as the test process, and what the client leaves behind (trap 37), by name. The
// goroutines in which it calls us are not among them.
func leaks() []goleak.Option {
	const client = "github.com/apache/rocketmq-client-go/v2/"
	options := []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/idemq/idemq/internal/testenv.(*Server).Start.func1"),
		goleak.IgnoreAnyFunction("github.com/patrickmn/go-cache.(*janitor).Run"),
	}
	for _, f := range []string{
		"consumer.(*pushConsumer).Start.func1.1", "consumer.(*pushConsumer).Start.func1.1.1", "consumer.(*pushConsumer).Start.func1.2",
		"consumer.(*pushConsumer).Start.func1.3", "consumer.(*pushConsumer).pullMessage.func1", "consumer.(*statsItemSet).init.func1",
		"consumer.(*statsItemSet).init.func2", "consumer.(*statsItemSet).init.func3", "consumer.(*statsItemSet).init.func4",
		"consumer.(*statsItemSet).init.func5", "consumer.(*statsItemSet).init.func6", "internal.(*rmqClient).Start.func1.1",
		"internal.(*rmqClient).Start.func1.2", "internal.(*rmqClient).Start.func1.3", "internal.(*rmqClient).Start.func1.4",
		"internal.(*rmqClient).Start.func1.5", "internal/remote.(*remotingClient).receiveResponse", "internal/remote.(*remotingClient).connect.func1",
	} {
		options = append(options, goleak.IgnoreAnyFunction(client+f))
	}
	return options
}

const (
	patience = 60 * time.Second
	tick     = 20 * time.Millisecond
)

// world is a topic and a group of a test's own.
type world struct {
	names string // address of the name server
	topic string
	group string
}

func newWorld(t testing.TB, queues int) world {
	t.Helper()
	return worldAt(t, testenv.RocketMQ(t), queues)
}

func worldAt(t testing.TB, names string, queues int) world {
	t.Helper()
	name := strings.ReplaceAll(testenv.Name(t), ".", "-")
	w := world{names: names, topic: name, group: "g-" + name}
	w.createTopic(t, w.topic, queues)
	return w
}

// broker is the address of the one broker.
func (w world) broker(t testing.TB) string {
	t.Helper()
	r, err := w.call(w.names, remoting.RouteOfTopic, map[string]string{"topic": "TBW102"}, "")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(r.Body), `127.0.0.1:`)
	require.True(t, found, string(r.Body))
	return "127.0.0.1:" + rest[:strings.Index(rest, `"`)]
}

func (w world) call(addr string, code int, fields map[string]string, body string) (remoting.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := remoting.Dial(ctx, addr, remoting.Options{})
	if err != nil {
		return remoting.Response{}, err
	}
	defer conn.Close()
	return conn.Call(ctx, code, fields, []byte(body))
}

func (w world) createTopic(t testing.TB, name string, queues int) {
	t.Helper()
	_, err := w.call(w.broker(t), remoting.UpdateTopic, map[string]string{
		"topic": name, "defaultTopic": "TBW102", "readQueueNums": strconv.Itoa(queues), "writeQueueNums": strconv.Itoa(queues), "perm": "6",
		"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
	}, "")
	require.NoError(t, err)
	eventually(t, "the topic is known", func() bool {
		_, err := w.call(w.names, remoting.RouteOfTopic, map[string]string{"topic": name}, "")
		return err == nil
	})
}

func (w world) config(t testing.TB) rocketmq.Config {
	return rocketmq.Config{NameServers: []string{w.names}, Group: w.group, Topics: []string{w.topic}, Logger: logger(t)}
}

// committed is the sum of the group's offsets in the topic.
func (w world) committed(t testing.TB, queues int) (sum int64) {
	t.Helper()
	for id := range queues {
		r, err := w.call(w.broker(t), remoting.QueryConsumerOffset, map[string]string{"consumerGroup": w.group, "topic": w.topic, "queueId": strconv.Itoa(id)}, "")
		if remoting.IsCode(err, remoting.QueryNotFound) {
			continue
		}
		require.NoError(t, err)
		n, err := strconv.ParseInt(r.Fields["offset"], 10, 64)
		require.NoError(t, err)
		sum += n
	}
	return sum
}

// requireCommitted waits: the client tells the broker its last offsets without waiting for an answer.
func (w world) requireCommitted(t testing.TB, queues, want int) {
	t.Helper()
	eventually(t, fmt.Sprint(want, " are committed"), func() bool { return w.committed(t, queues) == int64(want) })
}

// record is what a test sends.
type record struct{ key, id, value string }

func numbered(n, keys int) []record {
	out := make([]record, n)
	for i := range out {
		out[i] = record{key: fmt.Sprint("k", i%keys), id: fmt.Sprint("id-", i), value: fmt.Sprint(i)}
	}
	return out
}

func message(topic string, r record) *primitive.Message {
	m := primitive.NewMessage(topic, []byte(r.value))
	if r.id != "" {
		rocketmq.WithID(m, r.id)
	}
	if r.key != "" {
		m.WithShardingKey(r.key)
	}
	return m
}

var producers sync.Map // by name server

// send returns when the broker has all. Messages of a key go to one queue, in order.
func (w world) send(t testing.TB, recs ...record) {
	t.Helper()
	for _, r := range recs {
		w.sendRaw(t, message(w.topic, r))
	}
}

func (w world) sendRaw(t testing.TB, m *primitive.Message) {
	t.Helper()
	require.NoError(t, w.trySend(t, m))
}

func (w world) trySend(t testing.TB, m *primitive.Message) error {
	t.Helper()
	p, ok := producers.Load(w.names)
	if !ok {
		made, err := rmqclient.NewProducer(
			producer.WithNameServer(primitive.NamesrvAddr{"http://" + w.names}), producer.WithGroupName("tests"),
			producer.WithInstanceName("tests-"+w.names), producer.WithQueueSelector(producer.NewHashQueueSelector()))
		require.NoError(t, err)
		require.NoError(t, made.Start())
		p, _ = producers.LoadOrStore(w.names, made)
	}
	res, err := p.(rmqclient.Producer).SendSync(context.Background(), m)
	if err == nil && res.Status != primitive.SendOK {
		err = fmt.Errorf("status %d", res.Status)
	}
	return err
}

// effects is what handlers did: a list, in which an effect that happened twice is there twice.
type effects struct {
	mu   sync.Mutex
	list []effect
}

type effect struct {
	record
	at time.Time
	m  *consumer.Message
}

func (e *effects) apply(_ context.Context, m *consumer.Message) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, effect{record{string(m.Key), m.ID(), string(m.Value)}, time.Now(), m})
	return nil
}

func (e *effects) all() []effect {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

func (e *effects) len() int { return len(e.all()) }

func (e *effects) distinct() int {
	ids := map[string]bool{}
	for _, x := range e.all() {
		ids[x.id] = true
	}
	return len(ids)
}

func newGuard(t testing.TB, scope string, log dedupe.Log) *dedupe.Guard {
	t.Helper()
	if log == nil {
		log = memstore.NewLog()
	}
	g, err := dedupe.New(dedupe.Config{Scope: scope, Mode: dedupe.Logged, Log: log, Lease: 3 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, g.Close(ctx))
	})
	return g
}

func newPipe(t testing.TB, g *dedupe.Guard, h consumer.Handler, options ...func(*consumer.Config)) *consumer.Pipeline {
	t.Helper()
	cfg := consumer.Config{Guard: g, ID: consumer.IDFromHeader(rocketmq.HeaderMessageID), Handler: h, Logger: logger(t)}
	for _, o := range options {
		o(&cfg)
	}
	p, err := consumer.NewPipeline(cfg)
	require.NoError(t, err)
	return p
}

// running is a consumer under way.
type running struct {
	*rocketmq.Consumer
	t      testing.TB
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

func start(t testing.TB, cfg rocketmq.Config, p *consumer.Pipeline, more ...rocketmq.Route) *running {
	t.Helper()
	c, err := rocketmq.NewConsumer(cfg, p, more...)
	require.NoError(t, err)
	return startConsumer(t, c)
}

func startConsumer(t testing.TB, c *rocketmq.Consumer) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Consumer: c, t: t, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = c.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-r.ended })
	return r
}

// wait returns what Run returned.
func (r *running) wait() error {
	r.t.Helper()
	select {
	case <-r.ended:
		return r.err
	case <-time.After(patience):
		r.t.Fatal("Run does not return")
		return nil
	}
}

func (r *running) stop() error {
	r.t.Helper()
	r.cancel()
	return r.wait()
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(tick)
	}
}

// logger writes to the test's log, as long as the test lives.
func logger(t testing.TB) *slog.Logger {
	w := &testWriter{t: t}
	t.Cleanup(func() { w.mu.Lock(); defer w.mu.Unlock(); w.over = true })
	return slog.New(slog.NewTextHandler(w, nil))
}

type testWriter struct {
	t    testing.TB
	mu   sync.Mutex
	over bool
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

var errTest = errors.New("test")

// backs counts why messages went back.
type backs struct {
	mu sync.Mutex
	n  map[consumer.Why]int
}

func (b *backs) OnSettled(_ context.Context, _ *consumer.Message, d consumer.Disposition, _ time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n == nil {
		b.n = map[consumer.Why]int{}
	}
	b.n[d.Why]++
}

func (b *backs) count(w consumer.Why) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n[w]
}

func (b *backs) total() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.n {
		n += x
	}
	return n
}
