package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

// newGuard is a guard on stores in memory; a service takes redisstore.New(client, ...) and sqlstore.New(db, ...) instead.
func newGuard(mode dedupe.Mode, hooks ...dedupe.Hook) *dedupe.Guard {
	cfg := dedupe.Config{Scope: "inventory", Mode: mode, Store: memstore.New(), Hooks: hooks}
	if mode != dedupe.RedisOnly {
		cfg.Log = memstore.NewLog()
	}
	g, err := dedupe.New(cfg)
	if err != nil {
		panic(err)
	}
	return g
}

func order(id, body string) dedupe.Delivery {
	return dedupe.Delivery{ID: id, Namespace: "orders", Fingerprint: dedupe.FingerprintOf([]byte(body))}
}

// A nil error means: acknowledge. The verdict tells why.
func ExampleGuard_Do() {
	guard := newGuard(dedupe.Logged)
	for range 2 {
		out, err := guard.Do(context.Background(), order("order-1", "2 x bolt"), func(context.Context, *dedupe.Claim) error {
			fmt.Println("mail sent")
			return nil
		})
		fmt.Println(out.Verdict, err)
	}
	// Output:
	// mail sent
	// claimed <nil>
	// done <nil>
}

// In Transactional mode the message's row commits with the business rows.
func ExampleGuard_Do_transactional() {
	db := memstore.NewLog()
	guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Transactional, Log: db})
	if err != nil {
		panic(err)
	}
	for range 2 {
		out, err := guard.Do(context.Background(), order("order-1", "2 x bolt"), func(ctx context.Context, _ *dedupe.Claim) error {
			return db.InTx(ctx, func(tx *memstore.Tx) error {
				sold, _ := tx.Get("sold").(int)
				tx.Set("sold", sold+2)
				return nil
			})
		})
		fmt.Println(out.Verdict, err, db.Value("sold"))
	}
	// Output:
	// claimed <nil> 2
	// done <nil> 2
}

// What Do returned says whether to acknowledge, to try again later, or to dead-letter.
func ExampleOutcome() {
	guard := newGuard(dedupe.Logged)
	out, err := guard.Do(context.Background(), order("order-1", "2 x bolt"), func(context.Context, *dedupe.Claim) error { return nil })
	fmt.Println(out.Verdict, err)

	_, err = guard.Do(context.Background(), order("order-1", "200 x bolt"), func(context.Context, *dedupe.Claim) error { return nil })
	fmt.Println(errors.Is(err, dedupe.ErrConflict), errors.Is(err, dedupe.ErrBusy), dedupe.IsOutage(err))
	// Output:
	// claimed <nil>
	// true false false
}

// A duplicate gets the value of the first run.
func ExampleCall() {
	guard := newGuard(dedupe.Logged)
	charge := func(context.Context, *dedupe.Claim) (string, error) {
		fmt.Println("charged")
		return "receipt 7", nil
	}
	for range 2 {
		receipt, out, err := dedupe.Call(context.Background(), guard, order("order-1", "2 x bolt"), charge)
		fmt.Println(receipt, out.Verdict, err)
	}
	// Output:
	// charged
	// receipt 7 claimed <nil>
	// receipt 7 done <nil>
}

// The handler stores the dead letter itself, and then says so.
func ExampleBury() {
	guard := newGuard(dedupe.Logged)
	handler := func(_ context.Context, c *dedupe.Claim) error {
		if c.Attempt() < 3 {
			return errors.New("no such article")
		}
		fmt.Println("letter stored")
		return dedupe.Bury("no such article, 3 attempts")
	}
	for range 4 {
		out, err := guard.Do(context.Background(), order("order-1", "2 x bolt"), handler)
		fmt.Println(out.Verdict, err)
	}
	// Output:
	// claimed no such article
	// claimed no such article
	// letter stored
	// dead <nil>
	// dead <nil>
}

// Every problem is listed at once, with its remedy.
func ExampleConfig() {
	_, err := dedupe.New(dedupe.Config{Scope: "inventory service", Lease: 10 * time.Millisecond})
	fmt.Println(err)
	// Output:
	// dedupe: Config.Scope: invalid id: scope "inventory service": byte ' ' is not allowed; use letters, digits, dot, underscore and hyphen
	// dedupe: Config.Mode: mode(0): choose Transactional, Logged or RedisOnly; there is no default
	// dedupe: Config.Lease: 10ms: at least 100ms
}

func ExampleMode() {
	var m dedupe.Mode
	fmt.Println(m.UnmarshalText([]byte("transactional")), m)
	fmt.Println(m.UnmarshalText([]byte("exactly-once")))
	// Output:
	// <nil> transactional
	// dedupe: mode "exactly-once": want transactional, logged or redis-only
}

func ExampleMemoryLoss() {
	redis := memstore.New()
	guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.RedisOnly, Store: redis, OnMemoryLoss: dedupe.HaltOnMemoryLoss})
	if err != nil {
		panic(err)
	}
	handler := func(context.Context, *dedupe.Claim) error { return nil }
	_, err = guard.Do(context.Background(), order("order-1", "2 x bolt"), handler)
	fmt.Println(err)
	redis.Flush()
	_, err = guard.Do(context.Background(), order("order-1", "2 x bolt"), handler)
	fmt.Println(errors.Is(err, dedupe.ErrMemoryLost))
	// Output:
	// <nil>
	// true
}

// A key prints its scope and a hash, never the id.
func ExampleKey() {
	k, err := dedupe.NewKey("inventory", "orders", "order-1")
	fmt.Println(k, err)
	fmt.Println(k.Scope(), k.Namespace(), k.ID())
	// Output:
	// inventory/7c14a9d768ea <nil>
	// inventory orders order-1
}

// Only fingerprints of the same name are compared.
func ExampleFingerprint() {
	body := dedupe.FingerprintOf([]byte(`{"order":1,"sent":"10:00"}`))
	fmt.Println(body.Differs(dedupe.FingerprintOf([]byte(`{"order":1,"sent":"10:05"}`))))
	order := dedupe.NamedFingerprint("json:order", []byte("1"))
	fmt.Println(order.Differs(dedupe.NamedFingerprint("json:order", []byte("1"))), order.Differs(body))
	// Output:
	// true
	// false false
}

// The steps of Do, as a runtime makes them.
func ExampleClaim() {
	guard, ctx := newGuard(dedupe.Logged), context.Background()
	out, err := guard.Claim(ctx, order("order-1", "2 x bolt"))
	if err != nil || out.Verdict != dedupe.Claimed {
		return
	}
	hctx, stop := guard.Hold(ctx, out.Claim)
	defer stop() //nolint:errcheck // a lost lease shows in the answer to Complete
	c, ok := dedupe.ClaimFrom(hctx)
	fmt.Println(ok, c.Attempt(), c.SetResult([]byte("receipt 7")))

	outs, errs := guard.Complete(ctx, out.Claim)
	fmt.Println(outs[0].Verdict, errs[0])
	// Output:
	// true 1 <nil>
	// claimed <nil>
}

// Verdicts of the steps are values: another owner works on it.
func ExampleVerdict() {
	guard, ctx := newGuard(dedupe.Logged), context.Background()
	for range 2 {
		out, err := guard.Claim(ctx, order("order-1", "2 x bolt"))
		fmt.Println(out.Verdict, err)
	}
	// Output:
	// claimed <nil>
	// busy <nil>
}

// A dead letter that is sent again carries a mark; for it, and only for it, Dead is free.
func ExampleDelivery() {
	guard, ctx := newGuard(dedupe.Logged), context.Background()
	d := order("order-1", "2 x bolt")
	_, _ = guard.Do(ctx, d, func(context.Context, *dedupe.Claim) error { return dedupe.Bury("no such article") })
	for _, redriven := range []bool{false, true} {
		d.Redriven = redriven
		out, err := guard.Do(ctx, d, func(context.Context, *dedupe.Claim) error { return nil })
		fmt.Println(out.Verdict, err)
	}
	// Output:
	// dead <nil>
	// claimed <nil>
}

// Busy says in how long to ask again.
func ExampleBusyError() {
	guard, ctx := newGuard(dedupe.RedisOnly), context.Background()
	_, _ = guard.Claim(ctx, order("order-1", "2 x bolt"))
	_, err := guard.Do(ctx, order("order-1", "2 x bolt"), func(context.Context, *dedupe.Claim) error { return nil })
	var busy *dedupe.BusyError
	fmt.Println(errors.As(err, &busy), errors.Is(err, dedupe.ErrBusy), busy.RetryIn.Round(time.Second))
	// Output: true true 12s
}

// Fail tells a handler's own failure from what is not its fault; the caller releases by it.
func ExampleReleaseReason() {
	guard, ctx := newGuard(dedupe.Logged), context.Background()
	for _, cause := range []error{dedupe.ErrUnavailable, errors.New("no such article"), errors.New("no such article")} {
		out, err := guard.Claim(ctx, order("order-1", "2 x bolt"))
		if err != nil {
			panic(err)
		}
		_, _, err = guard.Fail(ctx, out.Claim, cause)
		failures, errs := guard.Release(ctx, dedupe.ReleaseReason{Cause: cause, HandBack: err != nil}, out.Claim)
		fmt.Println(failures, errs)
	}
	// Output:
	// [0] [<nil>]
	// [1] [<nil>]
	// [2] [<nil>]
}

// counter is a hook: one method, one event.
type counter map[dedupe.Verdict]int

func (c counter) OnVerdict(_ context.Context, e dedupe.VerdictEvent) { c[e.Verdict]++ }

func ExampleHook() {
	count := counter{}
	guard := newGuard(dedupe.Logged, count)
	for range 3 {
		_, _ = guard.Do(context.Background(), order("order-1", "2 x bolt"), func(context.Context, *dedupe.Claim) error { return nil })
	}
	fmt.Println(count[dedupe.Claimed], count[dedupe.Done])
	// Output: 1 2
}

// anomalies prints what should not happen.
type anomalies struct{}

func (anomalies) OnAnomaly(_ context.Context, code string, _ dedupe.Key, err error) {
	fmt.Println(code+":", err)
}

func ExampleHookAnomaly() {
	db := memstore.NewLog()
	guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Transactional, Log: db, Hooks: []dedupe.Hook{anomalies{}}})
	if err != nil {
		panic(err)
	}
	out, err := guard.Do(context.Background(), order("order-1", "2 x bolt"), func(ctx context.Context, _ *dedupe.Claim) error {
		if err := db.InTx(ctx, func(*memstore.Tx) error { return nil }); err != nil {
			return err
		}
		return errors.New("cannot print the label") // too late: it is committed
	})
	fmt.Println(out.Verdict, err)
	// Output:
	// error-after-commit: cannot print the label
	// done <nil>
}

// At start the promise is one line, and unsafe settings are refused by name.
func ExampleGuard_Check() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
	guard := newGuard(dedupe.Transactional)
	report, err := guard.Check(context.Background(), dedupe.Environment{RedeliveryHorizon: 30 * 24 * time.Hour})
	log.Info(report.Promise)
	fmt.Println(err)
	// Output:
	// msg="scope \"inventory\", transactional: effects in the log's database happen once, whatever happens to redis, broker and process; redis asked first; lease 12s, remembered for 360h0m0s"
	// retention-below-horizon: done keys are remembered for 360h0m0s, and the broker can deliver messages that are 720h0m0s old; raise dedupe.Config.Retention, or lower the topic's retention
}

// For operators: look, and let a message take effect again.
func ExampleGuard_Forget() {
	guard, ctx := newGuard(dedupe.Logged), context.Background()
	_, _ = guard.Do(ctx, order("order-1", "2 x bolt"), func(context.Context, *dedupe.Claim) error { return nil })
	key, _ := guard.Key("orders", "order-1")
	rec, err := guard.Inspect(ctx, key)
	fmt.Println(rec.State, err)
	fmt.Println(guard.Forget(ctx, key, dedupe.Audit{By: "ann", Reason: "parcel lost, send again"}))
	rec, err = guard.Inspect(ctx, key)
	fmt.Println(rec.State, err)
	// Output:
	// done <nil>
	// <nil>
	// absent <nil>
}
