package redisstore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// errGivenUp is the outcome of a call whose caller gave up: it says nothing about the server.
var errGivenUp = errors.New("the caller gave up")

// unlessGivenUp is what a breaker is told about err: the client can tell a caller's deadline from ours only by the caller's context.
func unlessGivenUp(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	deadline, limited := ctx.Deadline()
	if ctx.Err() != nil || limited && !time.Now().Before(deadline) {
		return errGivenUp
	}
	return err
}

// breaker refuses calls to a server that does not answer. gobreaker is the state machine; what is added is that half-open belongs to a
// PING of our own, in a goroutine that lives as long as the PING. No message is spent on probing, and without messages nothing runs.
type breaker struct {
	circuit *gobreaker.TwoStepCircuitBreaker[struct{}]
	addr    string // for the log
	ping    func(context.Context) error
	cfg     Config
	probing atomic.Bool

	// What has changed and was not logged yet. The circuit tells it under its lock, and a Logger may take its time.
	opened, closed atomic.Bool
}

func newBreaker(cfg Config, addr string, ping func(context.Context) error) *breaker {
	b := &breaker{addr: addr, ping: ping, cfg: cfg}
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     cfg.Breaker.Probe,
		ReadyToTrip: func(c gobreaker.Counts) bool { return int(c.ConsecutiveFailures) >= cfg.Breaker.Failures },
		IsExcluded:  func(err error) bool { return errors.Is(err, errGivenUp) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch { // an outage is told once, whatever its probes say
			case from == gobreaker.StateClosed:
				b.opened.Store(true)
			case to == gobreaker.StateClosed:
				b.closed.Store(true)
			}
		},
	})
	return b
}

// allow says whether a call may be made. The caller of an allowed one reports with done: nil if the server answered, errGivenUp, or any
// other error if it did not.
func (b *breaker) allow() (done func(error), ok bool) {
	switch b.circuit.State() {
	case gobreaker.StateClosed:
		if done, err := b.circuit.Allow(); err == nil {
			return func(err error) { b.report(done, err) }, true
		}
	case gobreaker.StateHalfOpen:
		if b.probing.CompareAndSwap(false, true) {
			go b.probe()
		}
	}
	return nil, false
}

func (b *breaker) probe() {
	defer b.probing.Store(false)
	done, err := b.circuit.Allow()
	if err != nil { // the last probe has just opened it again
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.cfg.Timeout)
	defer cancel()
	b.report(done, b.ping(ctx))
}

// report tells the circuit what became of a call, and the log what that changed.
func (b *breaker) report(done func(error), err error) {
	done(err)
	if err != nil && !errors.Is(err, errGivenUp) && b.opened.CompareAndSwap(true, false) {
		b.cfg.Logger.Warn("redis does not answer", "addr", b.addr, "failures", b.cfg.Breaker.Failures, "err", err)
	}
	if b.closed.CompareAndSwap(true, false) {
		b.cfg.Logger.Info("redis answers again", "addr", b.addr)
	}
}
