package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/sqlstore"
)

type demoCmd struct {
	Orders     int     `default:"2000" env:"-" help:"How many orders are placed."`
	Duplicates float64 `default:"0.3" env:"-" help:"Share of them that the producer sends twice, 0 to 1."`
	Seed       uint64  `default:"1" env:"-" help:"Another seed gives other orders."`
	JSON       bool    `name:"json" env:"-" help:"Print one JSON object; progress goes to stderr."`
	Keep       bool    `env:"-" help:"Keep the folder with databases and logs, and say where it is."`
}

// Settings of the demo: small, so that it shows in half a minute what takes minutes in production.
const (
	demoSKUs       = 20
	demoPartitions = 6
	demoWorkers    = 4 // messages in work at a time, in each process
	demoSession    = time.Second
	demoLease      = 3 * time.Second
	demoBurst      = 0.3              // share of the messages that comes at once, so that workers have a backlog when one is killed
	demoTraffic    = 8 * time.Second  // over which the others come
	demoStuck      = 45 * time.Second // without the next step: give up
	demoNaiveIdle  = 3 * time.Second  // after which the naive consumer is waited for no longer
)

// Run tells the story; what it shows is in the steps of show.
func (c *demoCmd) Run(ctx context.Context, t terminal) (err error) {
	orders := traffic{Orders: c.Orders, Duplicates: c.Duplicates, SKUs: demoSKUs, Seed: c.Seed}
	if err := problems(orders.validate()); err != nil {
		return err
	}
	progress := t.out
	if c.JSON {
		progress = t.err
	}
	d, err := newDemo(ctx, orders, progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(c.Keep)) }()
	if err := d.show(ctx); err != nil {
		if ctx.Err() != nil {
			return errors.New("demo: interrupted")
		}
		return err
	}
	r, naive, err := d.judge(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		err = r.writeJSON(t.out)
	} else {
		err = d.writeSummary(t.out, r, naive)
	}
	return errors.Join(err, r.verdict(dedupe.Transactional))
}

// demo is a running demonstration. The worker processes beside it are real; so is what happens to them.
type demo struct {
	dir      string
	start    time.Time
	progress io.Writer

	ours, naively services // the same broker and topic; a database each
	msgs          []kafka.Message

	embedded *embedded
	broker   *broker
	fleet    *fleet
	count    counters // ours
	naive    counters

	produced        chan struct{} // closed when the producer has ended
	produceErr      error         // to be read after that
	stopProducing   context.CancelFunc
	naiveBeforehand int // doubles of the naive consumer before everything was delivered again
}

func newDemo(ctx context.Context, orders traffic, progress io.Writer) (_ *demo, err error) {
	d := &demo{start: time.Now(), progress: progress, msgs: orders.messages()}
	if d.dir, err = os.MkdirTemp("", "idemq-demo-"); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close(false))
		}
	}()
	if d.embedded, err = startEmbedded(demoSession); err != nil {
		return nil, err
	}
	if d.fleet, err = newFleet(d.dir); err != nil {
		return nil, err
	}
	d.ours = services{
		Broker: "kafka", Brokers: d.embedded.kafka.ListenAddrs(), Topic: "orders", Group: "inventory", Redis: d.embedded.redisURL(),
		DB: "sqlite:" + filepath.Join(d.dir, "inventory.db"), Mode: dedupe.Transactional, Workers: demoWorkers, Session: demoSession, Lease: demoLease,
	}
	d.naively = d.ours
	d.naively.DB = "sqlite:" + filepath.Join(d.dir, "naive.db")
	d.broker = openBroker(d.ours.Brokers)

	stock := int64(orders.Orders/demoSKUs) * 8 // an article has about 3 pieces ordered for each of its orders
	reset := &resetCmd{services: d.ours, SKUs: demoSKUs, Stock: max(20, stock), Partitions: demoPartitions, Replication: -1}
	if err := reset.Run(ctx, terminal{out: io.Discard, err: io.Discard}); err != nil {
		return nil, err
	}
	return d, d.fillNaive(ctx, reset.opening())
}

// fillNaive gives the naive consumer the same stock in a database of its own.
func (d *demo) fillNaive(ctx context.Context, opening map[string]int64) error {
	db, err := sqlstore.Open(d.naively.DB)
	if err != nil {
		return err
	}
	return errors.Join(refill(ctx, db, opening), db.Close())
}

// show is the story.
func (d *demo) show(ctx context.Context) error {
	d.say("Kafka, Redis and SQLite are embedded; each worker is a process of its own")
	d.say("beside each worker runs a naive one, without idemq: same messages, same accidents")
	if err := d.startWorkers("worker-1", "worker-2"); err != nil {
		return err
	}
	d.produce(ctx)
	d.say("%s orders are being placed, %s of them sent twice by the producer", grouped(int64(d.orders())), grouped(int64(len(d.msgs)-d.orders())))
	steps := []struct {
		at float64 // share of the messages that is settled by then
		do func() error
	}{
		{0.15, func() error {
			d.fleet.kill("worker-1", "naive-1")
			d.say("worker-1 is killed with SIGKILL in the middle of its work, and started again")
			return d.startWorkers("worker-1")
		}},
		{0.35, func() error {
			d.say("worker-3 joins: the partitions are shared anew while messages are in work")
			return d.startWorkers("worker-3")
		}},
		{0.50, func() error {
			d.fleet.stop("worker-3", "naive-3")
			d.say("worker-3 has left: its partitions go back to the others")
			return nil
		}},
		{0.60, func() error {
			d.embedded.redis.FlushAll()
			d.say("Redis is wiped: it knows nothing any more")
			return nil
		}},
		{0.75, func() error {
			d.embedded.redis.Close()
			d.say("Redis is dead: the database decides alone")
			return nil
		}},
	}
	for _, s := range steps {
		if err := d.await(ctx, fmt.Sprintf("%.0f %% to be settled", s.at*100), d.settledShare(s.at)); err != nil {
			return err
		}
		if err := s.do(); err != nil {
			return err
		}
	}
	if err := d.awaitAll(ctx, "the first delivery of everything"); err != nil {
		return err
	}
	if err := d.deliverAgain(ctx); err != nil {
		return err
	}
	if err := d.await(ctx, "half of the second delivery", d.settledShare(float64(d.count.settled.Load())/float64(len(d.msgs))+0.5)); err != nil {
		return err
	}
	if err := d.embedded.redis.Restart(); err != nil {
		return fmt.Errorf("demo: start redis again: %w", err)
	}
	d.say("Redis is back, on the same address")
	if err := d.awaitAll(ctx, "the second delivery of everything"); err != nil {
		return err
	}
	d.fleet.stop(d.fleet.names()...)
	d.say("all workers have drained and stopped")
	return nil
}

// deliverAgain sets both groups back to the first message, as an operator does after a mistake or a broker does that lost its offsets.
func (d *demo) deliverAgain(ctx context.Context) error {
	d.say("all settled; now everything once more, from the first message on, while Redis is dead")
	d.fleet.stop(d.fleet.names()...)
	b, err := d.naiveBooks(ctx)
	if err != nil {
		return err
	}
	d.naiveBeforehand = b.doubles()
	for _, group := range []string{d.ours.Group, d.ours.naiveGroup()} {
		if err := d.broker.rewind(ctx, d.ours.Topic, group); err != nil {
			return err
		}
	}
	return d.startWorkers("worker-1", "worker-2")
}

// startWorkers starts the named workers and a naive one beside each.
func (d *demo) startWorkers(names ...string) error {
	for _, name := range names {
		if err := d.fleet.start(name, &d.count, d.ours.flags()...); err != nil {
			return err
		}
		naive := strings.Replace(name, "worker", "naive", 1)
		if err := d.fleet.start(naive, &d.naive, append(d.naively.flags(), "--naive")...); err != nil {
			return err
		}
	}
	return nil
}

// flags are s as an ordinary command line.
func (s services) flags() []string {
	return []string{
		"--broker", s.Broker, "--brokers", strings.Join(s.Brokers, ","), "--topic", s.Topic, "--group", s.Group, "--redis", s.Redis, "--db", s.DB,
		"--mode", s.Mode.String(), "--workers", fmt.Sprint(s.Workers), "--session", s.Session.String(), "--lease", s.Lease.String(),
	}
}

// produce sends the messages in the background: some at once, the others over demoTraffic.
func (d *demo) produce(ctx context.Context) {
	ctx, d.stopProducing = context.WithCancel(ctx)
	d.produced = make(chan struct{})
	go func() {
		defer close(d.produced)
		burst := int(demoBurst * float64(len(d.msgs)))
		rest := d.msgs[burst:]
		_, d.produceErr = send(ctx, d.ours, d.msgs[:burst], 0)
		if d.produceErr == nil {
			_, d.produceErr = send(ctx, d.ours, rest, math.Ceil(float64(len(rest))/demoTraffic.Seconds()))
		}
	}()
}

// orders is how many of the messages are first copies.
func (d *demo) orders() int {
	ids := map[string]bool{}
	for _, m := range d.msgs {
		ids[orderID(m)] = true
	}
	return len(ids)
}

func (d *demo) settledShare(share float64) func() (bool, error) {
	return func() (bool, error) { return float64(d.count.settled.Load()) >= share*float64(len(d.msgs)), nil }
}

// settled says whether the producer has sent everything and group has acknowledged it.
func (d *demo) settled(ctx context.Context, group string) func() (bool, error) {
	return func() (bool, error) {
		select {
		case <-d.produced:
		default:
			return false, nil
		}
		if d.produceErr != nil {
			return false, d.produceErr
		}
		n, err := d.broker.pending(ctx, d.ours.Topic, group)
		return n == 0, err
	}
}

// awaitAll waits until everything is settled, by the naive consumer too.
func (d *demo) awaitAll(ctx context.Context, what string) error {
	if err := d.await(ctx, what, d.settled(ctx, d.ours.Group)); err != nil {
		return err
	}
	return d.await(ctx, what, d.naiveSettled(ctx))
}

// naiveSettled is settled for the naive consumer. It may never get there: the usual Reader commits what it read before a rebalance after
// it, so that an offset goes back with nobody to read on from there. It is waited for as long as it applies something.
func (d *demo) naiveSettled(ctx context.Context) func() (bool, error) {
	settled := d.settled(ctx, d.ours.naiveGroup())
	var seen int64
	var since time.Time
	return func() (bool, error) {
		if n := d.naive.settled.Load(); n != seen || since.IsZero() {
			seen, since = n, time.Now()
		}
		if time.Since(since) > demoNaiveIdle {
			return true, nil
		}
		return settled()
	}
}

// await waits for done, says every two seconds how far things are, and gives up when a worker died by itself or nothing comes of it.
func (d *demo) await(ctx context.Context, what string, done func() (bool, error)) error {
	start := time.Now()
	next := start.Add(2 * time.Second)
	return poll(ctx, func() (bool, error) {
		select {
		case err := <-d.fleet.died:
			return false, err
		default:
		}
		now := time.Now()
		if now.After(next) {
			next = next.Add(2 * time.Second)
			d.say("    %s deliveries settled, %s of them known duplicates", grouped(d.count.settled.Load()), grouped(d.count.duplicates.Load()))
		}
		if now.Sub(start) > demoStuck {
			return false, fmt.Errorf("demo: waited %v for %s\n%s", demoStuck, what, d.fleet.tails())
		}
		return done()
	})
}

// say writes one line of progress with the seconds since the start.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.progress, "%5.1fs  %s\n", time.Since(d.start).Seconds(), fmt.Sprintf(format, args...)) //nolint:errcheck // progress that cannot be shown
}

// close ends whatever runs and removes what is left.
func (d *demo) close(keep bool) error {
	if d.fleet != nil {
		d.fleet.stop(d.fleet.names()...)
	}
	if d.stopProducing != nil {
		d.stopProducing()
		<-d.produced
	}
	if d.broker != nil {
		d.broker.close()
	}
	if d.embedded != nil {
		d.embedded.close()
	}
	if keep {
		d.say("databases and logs are in %s", d.dir)
		return nil
	}
	return os.RemoveAll(d.dir)
}
