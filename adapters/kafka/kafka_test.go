package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/internal/testenv"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // what a nil Logger means
	// the broker that all tests share lives as long as the test process
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/idemq/idemq/internal/testenv.(*Server).Start.func1"))
}

const patience = 30 * time.Second

// fake is a broker in this process, with one topic "orders" of 3 partitions unless opts say otherwise.
func fake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100 * time.Millisecond), kfake.SeedTopics(3, "orders")}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// newTopic makes a topic on a real broker.
func newTopic(t testing.TB, brokers []string, name string, partitions int, settings ...kafkago.ConfigEntry) string {
	t.Helper()
	cl, closeIt := client(brokers, name)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := cl.CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{{Topic: name, NumPartitions: partitions, ReplicationFactor: -1, ConfigEntries: settings}}})
	require.NoError(t, err)
	require.NoError(t, res.Errors[name])
	return name
}

func client(brokers []string, topics ...string) (*kafkago.Client, func()) {
	transport := &kafkago.Transport{MetadataTopics: topics, MetadataTTL: 500 * time.Millisecond}
	return &kafkago.Client{Addr: kafkago.TCP(brokers...), Transport: transport, Timeout: 10 * time.Second}, transport.CloseIdleConnections
}

// record is what a test produces.
type record struct {
	key, id, value string
}

// produce writes records to topic and returns when the broker has them.
func produce(t testing.TB, brokers []string, topic string, recs ...record) {
	t.Helper()
	w := writer(t, brokers, topic)
	ms := make([]kafkago.Message, len(recs))
	for i, r := range recs {
		ms[i] = message(r)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, w.WriteMessages(ctx, ms...))
}

func message(r record) kafkago.Message {
	m := kafkago.Message{Value: []byte(r.value)}
	if r.key != "" {
		m.Key = []byte(r.key)
	}
	return *kafka.WithID(&m, r.id)
}

func writer(t testing.TB, brokers []string, topic string) *kafkago.Writer {
	t.Helper()
	transport := &kafkago.Transport{MetadataTopics: []string{topic}, MetadataTTL: 500 * time.Millisecond}
	w := &kafkago.Writer{Addr: kafkago.TCP(brokers...), Topic: topic, Balancer: &kafkago.Hash{}, RequiredAcks: kafkago.RequireAll, BatchTimeout: 2 * time.Millisecond, Transport: transport}
	t.Cleanup(func() {
		require.NoError(t, w.Close())
		transport.CloseIdleConnections()
	})
	return w
}

// numbered makes records of n ids with keys k0 to k<keys-1>; the values of a key count up.
func numbered(n, keys int) []record {
	out := make([]record, n)
	for i := range out {
		out[i] = record{key: fmt.Sprint("k", i%keys), id: fmt.Sprint("id-", i), value: fmt.Sprint(i)}
	}
	return out
}

// effects is what handlers did: a list, in which an effect that happened twice is there twice.
type effects struct {
	mu   sync.Mutex
	list []effect
}

type effect struct {
	key, id, value string
	at             consumer.Position
	time           time.Time
}

func (e *effects) add(m *consumer.Message) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, effect{string(m.Key), m.ID(), string(m.Value), m.Position, time.Now()})
}

func (e *effects) apply(_ context.Context, m *consumer.Message) error {
	e.add(m)
	return nil
}

func (e *effects) all() []effect {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

func (e *effects) len() int { return len(e.all()) }

func (e *effects) ids() []string {
	var out []string
	for _, x := range e.all() {
		out = append(out, x.id)
	}
	return out
}

// once asserts that each of recs took effect exactly once, and those of a key in their order.
func (e *effects) once(t testing.TB, recs []record) {
	t.Helper()
	times := map[string]int{}
	order := map[string][]string{}
	for _, x := range e.all() {
		times[x.id]++
		order[x.key] = append(order[x.key], x.id)
	}
	want := map[string][]string{}
	for _, r := range recs {
		require.Equal(t, 1, times[r.id], "effects of %s", r.id)
		want[r.key] = append(want[r.key], r.id)
	}
	require.Len(t, times, len(recs))
	for key, ids := range want {
		if key != "" {
			require.Equal(t, ids, order[key], "order of %s", key)
		}
	}
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			require.Fail(t, "not within "+patience.String()+": "+what)
		}
	}
}

// newGuard remembers in log; nil: a log of its own.
func newGuard(t testing.TB, scope string, log dedupe.Log) *dedupe.Guard {
	t.Helper()
	if log == nil {
		log = memstore.NewLog()
	}
	g, err := dedupe.New(dedupe.Config{Scope: scope, Mode: dedupe.Logged, Log: log, Lease: 3 * time.Second, Logger: logger(t)})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, g.Close(ctx))
	})
	return g
}

func newPipe(t testing.TB, g *dedupe.Guard, h consumer.Handler, change ...func(*consumer.Config)) *consumer.Pipeline {
	t.Helper()
	cfg := consumer.Config{Guard: g, Handler: h, ID: consumer.IDFromHeader(kafka.HeaderMessageID), Logger: logger(t)}
	cfg.Policy.DrainTimeout = 5 * time.Second
	cfg.Policy.Retry.Backoff.Initial = 10 * time.Millisecond
	for _, f := range change {
		f(&cfg)
	}
	p, err := consumer.NewPipeline(cfg)
	require.NoError(t, err)
	return p
}

// config is for quick tests: short session, quick watching.
func config(t testing.TB, brokers []string, topics ...string) kafka.Config {
	return kafka.Config{Brokers: brokers, Topics: topics, Session: time.Second, Rebalance: 15 * time.Second, WatchPartitions: 200 * time.Millisecond, Logger: logger(t)}
}

// running is a consumer whose Run is under way.
type running struct {
	*kafka.Consumer
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func start(t testing.TB, cfg kafka.Config, p *consumer.Pipeline, more ...kafka.Route) *running {
	t.Helper()
	c, err := kafka.NewConsumer(cfg, p, more...)
	require.NoError(t, err)
	return startThis(t, c)
}

func startThis(t testing.TB, c *kafka.Consumer) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Consumer: c, t: t, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	return r
}

// stop ends Run and returns its error.
func (r *running) stop() error {
	r.t.Helper()
	r.cancel()
	return r.wait()
}

// wait returns what Run returned by itself.
func (r *running) wait() error {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(2 * patience):
		require.Fail(r.t, "Run does not return")
	}
	return r.err
}

// assigned waits until the consumer has n partitions.
func (r *running) assigned(n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d partitions", n), func() bool { return len(r.State().Assigned) == n })
}

// committed is what the group has committed, by partition; -1 where nothing.
func committed(t testing.TB, brokers []string, group, topic string, partitions int) []int64 {
	t.Helper()
	cl, closeIt := client(brokers, topic)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ps := make([]int, partitions)
	for i := range ps {
		ps[i] = i
	}
	res, err := cl.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: ps}})
	require.NoError(t, err)
	out := make([]int64, partitions)
	for i := range out {
		out[i] = -1
	}
	for _, notYet := range []error{kafkago.GroupIdNotFound, kafkago.GroupCoordinatorNotAvailable, kafkago.NotCoordinatorForGroup, kafkago.GroupLoadInProgress} {
		if errors.Is(res.Error, notYet) {
			return out
		}
	}
	require.NoError(t, res.Error)
	for _, p := range res.Topics[topic] {
		require.NoError(t, p.Error)
		out[p.Partition] = p.CommittedOffset
	}
	return out
}

func sum(ns []int64) (n int64) {
	for _, x := range ns {
		n += max(x, 0)
	}
	return n
}

// logger writes to the test's log, which is shown when the test fails.
func logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func realBrokers(t testing.TB) []string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real Kafka; not with -short")
	}
	return testenv.Kafka(t)
}
