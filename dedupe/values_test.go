package dedupe_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

func TestNew_BadConfig_ListsEveryProblemAtOnce(t *testing.T) {
	_, err := dedupe.New(dedupe.Config{
		Scope: "stock & orders", Lease: time.Millisecond, Retention: time.Second, StopGrace: -1, MaxResultBytes: -1,
		OnMemoryLoss: 7, Hooks: []dedupe.Hook{"not a hook"},
	})
	for _, part := range []string{
		"Config.Scope: ", `byte ' '`, "Config.Mode: mode(0): choose", "Config.Lease: 1ms: at least 100ms", "Config.StopGrace: -1ns",
		"Config.MaxResultBytes: -1: from 1 to 1048576", "Config.OnMemoryLoss: 7", "Config.Hooks: [0]: string implements no Hook",
	} {
		require.ErrorContains(t, err, part)
	}
	require.ErrorIs(t, err, dedupe.ErrInvalidID)
}

func TestNew_StoresAndModesThatDoNotFit_AreRefused(t *testing.T) {
	for _, c := range []struct {
		cfg  dedupe.Config
		part string
	}{
		{dedupe.Config{Mode: dedupe.Transactional}, "Config.Log: nil"},
		{dedupe.Config{Mode: dedupe.Logged, Store: memstore.New()}, "Config.Log: nil"},
		{dedupe.Config{Mode: dedupe.RedisOnly}, "Config.Store: nil"},
		{dedupe.Config{Mode: dedupe.RedisOnly, Store: memstore.New(), Log: memstore.NewLog()}, "Config.Log: set"},
		{dedupe.Config{Mode: dedupe.RedisOnly, Store: struct{ dedupe.Store }{memstore.New()}}, "does not notice when it loses its memory"},
		{dedupe.Config{Mode: dedupe.Logged, Log: memstore.NewLog(), Lease: time.Hour, Retention: time.Minute}, "Config.Retention: 1m0s: at least 1h0m0s"},
		{dedupe.Config{Mode: dedupe.Logged, Log: invalidLog{memstore.NewLog()}}, "sqlstore: no dialect"},
	} {
		c.cfg.Scope = scope
		_, err := dedupe.New(c.cfg)
		require.ErrorContains(t, err, c.part)
	}
}

type invalidLog struct{ *memstore.Log }

func (invalidLog) Validate() error { return errors.New("sqlstore: no dialect") }

func TestNew_ZeroFields_TakeTheStatedDefaults(t *testing.T) {
	g, err := dedupe.New(dedupe.Config{Scope: scope, Mode: dedupe.Logged, Log: memstore.NewLog()})
	require.NoError(t, err)
	require.Equal(t, scope, g.Scope())
	require.Equal(t, dedupe.Logged, g.Mode())
	require.Equal(t, 12*time.Second, g.Lease())
	require.Equal(t, 15*24*time.Hour, g.Retention())
	require.Equal(t, 5*time.Second, g.StopGrace())
}

func TestDelivery_WithoutIDOrFingerprint_IsRefusedBeforeAnythingIsAsked(t *testing.T) {
	w := newWorld(t, dedupe.Logged)
	_, err := w.Claim(context.Background(), dedupe.Delivery{Namespace: topic, Fingerprint: dedupe.NoFingerprint})
	require.ErrorIs(t, err, dedupe.ErrInvalidID)
	_, err = w.Claim(context.Background(), dedupe.Delivery{ID: "A"})
	require.ErrorIs(t, err, dedupe.ErrInvalidID)
	require.ErrorContains(t, err, "NoFingerprint")
	require.Zero(t, w.redis.calls("claim")+w.log.calls("claim"))
}

func TestClaimBatch_TheSameIDTwice_SharesTheFirstOnesEnd(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		_, err := w.deliver("done")
		require.NoError(t, err)
		w.bury(w.Guard, delivery("dead"))
		ds := []dedupe.Delivery{delivery("new"), delivery("new"), delivery("done"), {}, delivery("done"), delivery("dead"), delivery("dead")}
		other := delivery("done")
		other.Fingerprint = dedupe.FingerprintOf([]byte("other"))
		outs, errs := w.ClaimBatch(context.Background(), append(ds, other, delivery("done")))
		var got []dedupe.Verdict
		for i, o := range outs {
			got = append(got, o.Verdict)
			require.Equal(t, i == 3, errs[i] != nil)
		}
		require.Equal(t, []dedupe.Verdict{
			dedupe.Claimed, dedupe.Busy, dedupe.Done, 0, dedupe.Done, dedupe.Dead, dedupe.Dead, dedupe.Conflict, dedupe.Done,
		}, got)

		w.authorityWire().fails(refused)
		w.redis.fails(refused)
		_, errs = w.ClaimBatch(context.Background(), []dedupe.Delivery{delivery("x"), delivery("x")})
		require.Equal(t, errs[0] == nil, mode == dedupe.Transactional)
		if mode != dedupe.Transactional {
			require.ErrorIs(t, errs[1], dedupe.ErrUnavailable)
		}
	})
}

func TestResult_IsReplayedToDuplicates(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode, func(c *dedupe.Config) { c.MaxResultBytes = 5 })
		_, err := w.Do(context.Background(), delivery("A"), func(ctx context.Context, c *dedupe.Claim) error {
			require.ErrorIs(t, c.SetResult([]byte("123456")), dedupe.ErrResultTooLarge)
			require.Empty(t, c.Result(), "nothing is cut")
			b := []byte("old")
			require.NoError(t, c.SetResult(b))
			b[0] = 'X'
			require.Equal(t, "old", string(c.Result()))
			require.NoError(t, c.SetResult([]byte("12345")))
			return w.apply(ctx, c)
		})
		require.NoError(t, err)
		for range 2 {
			out, err := w.deliver("A")
			require.NoError(t, err)
			require.Equal(t, dedupe.Done, out.Verdict)
			require.Equal(t, "12345", string(out.Record.Result))
			w.mem.RestoreFrom(w.mem.Snapshot()) // once from Redis, once from the log
			if mode != dedupe.RedisOnly {
				w.mem.Flush()
			} else {
				w.Guard = w.process()
			}
		}
	})
}

func TestCall_GivesDuplicatesTheValueOfTheFirstRun(t *testing.T) {
	w := newWorld(t, dedupe.Logged)
	runs := 0
	price := func(context.Context, *dedupe.Claim) (int, error) {
		runs++
		return 42, nil
	}
	for range 2 {
		v, _, err := dedupe.Call(context.Background(), w.Guard, delivery("A"), price)
		require.NoError(t, err)
		require.Equal(t, 42, v)
	}
	require.Equal(t, 1, runs)

	_, _, err := dedupe.Call(context.Background(), w.Guard, delivery("A"), func(context.Context, *dedupe.Claim) (struct{ N int }, error) {
		return struct{ N int }{}, nil
	})
	require.ErrorContains(t, err, "decode result of")
	_, _, err = dedupe.Call(context.Background(), w.Guard, delivery("B"), func(context.Context, *dedupe.Claim) (int, error) { return 0, errHandler })
	require.ErrorIs(t, err, errHandler)
	_, _, err = dedupe.Call(context.Background(), w.Guard, delivery("B"), func(context.Context, *dedupe.Claim) (func(), error) { return nil, nil })
	require.ErrorContains(t, err, "encode result of")
	_, _, err = dedupe.Call(context.Background(), w.Guard, delivery("C"), func(context.Context, *dedupe.Claim) (string, error) {
		return strings.Repeat("x", 5000), nil
	})
	require.ErrorIs(t, err, dedupe.ErrResultTooLarge)
	require.Equal(t, dedupe.StateFree, w.row("C").State)

	_, _, err = dedupe.Call(context.Background(), newWorld(t, dedupe.Transactional).Guard, delivery("A"), price)
	require.ErrorIs(t, err, dedupe.ErrWrongMode)
}

func TestOriginal_OfAHashedID_IsKeptForPeopleOrDropped(t *testing.T) {
	long := strings.Repeat("o", 2000)
	for _, drop := range []bool{false, true} {
		inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
			w := newWorld(t, mode, func(c *dedupe.Config) { c.DropOriginal = drop })
			_, err := w.deliver(long)
			require.NoError(t, err)
			rec := w.authority(long)
			require.True(t, rec.Key.Hashed())
			if drop {
				require.Empty(t, rec.Original)
			} else {
				require.Equal(t, long[:dedupe.MaxOriginalBytes], rec.Original)
			}
			_, err = w.deliver("short")
			require.NoError(t, err)
			require.Empty(t, w.authority("short").Original)
		})
	}
}

func TestClaim_TellsItsHandlerWhatItHolds(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		var last int64
		for n := range 3 {
			_, err := w.Do(context.Background(), delivery("A"), func(ctx context.Context, c *dedupe.Claim) error {
				from, ok := dedupe.ClaimFrom(ctx)
				require.True(t, ok)
				require.Same(t, c, from)
				require.Equal(t, w.key("A"), c.Key())
				require.NotEmpty(t, c.Owner())
				require.Equal(t, n+1, c.Attempt())
				require.False(t, c.Redriven())
				require.False(t, c.Degraded())
				if mode == dedupe.Transactional {
					require.Zero(t, c.Fence())
				} else {
					require.Greater(t, c.Fence(), last)
					last = c.Fence()
				}
				return errHandler
			})
			require.ErrorIs(t, err, errHandler)
		}
		_, ok := dedupe.ClaimFrom(context.Background())
		require.False(t, ok)
	})
}

// panicky is a hook whose every method panics.
type panicky struct{}

func (panicky) OnVerdict(context.Context, dedupe.VerdictEvent) { panic("verdict") }
func (panicky) OnStoreCall(context.Context, string, string, int, time.Duration, error) {
	panic("call")
}
func (panicky) OnLeaseLost(context.Context, dedupe.Key)              { panic("lost") }
func (panicky) OnAnomaly(context.Context, string, dedupe.Key, error) { panic("anomaly") }

func TestHooks_ThatPanic_AreLoggedAndDropped(t *testing.T) {
	var logged strings.Builder
	w := newWorld(t, dedupe.Transactional)
	g := w.process(func(c *dedupe.Config) {
		c.Hooks, c.Logger = []dedupe.Hook{panicky{}}, slog.New(slog.NewTextHandler(&logged, nil))
	})
	out, err := g.Do(context.Background(), delivery("A"), func(ctx context.Context, c *dedupe.Claim) error {
		require.NoError(t, w.apply(ctx, c))
		return errHandler
	})
	require.NoError(t, err)
	require.Equal(t, dedupe.Done, out.Verdict)
	for _, what := range []string{"panic=verdict", "panic=call", "panic=anomaly"} {
		require.Contains(t, logged.String(), what)
	}
	require.NotContains(t, logged.String(), "key=A", "ids stay out of logs")
}

func TestHooks_SeeVerdictsAndStoreCalls(t *testing.T) {
	w := newWorld(t, dedupe.Logged)
	_, err := w.deliver("A")
	require.NoError(t, err)
	_, err = w.deliver("A")
	require.NoError(t, err)
	w.log.fails(refused)
	_, err = w.deliver("B")
	require.Error(t, err)
	require.Len(t, w.hooks.verdicts, 3)
	require.Equal(t, dedupe.Claimed, w.hooks.verdicts[0].Verdict)
	require.Equal(t, dedupe.Done, w.hooks.verdicts[1].Verdict)
	require.Equal(t, w.key("A"), w.hooks.verdicts[1].Key)
	require.Zero(t, w.hooks.verdicts[2].Verdict)
	require.ErrorIs(t, w.hooks.verdicts[2].Err, dedupe.ErrUnavailable)
	for _, call := range []string{"redis claim", "log claim", "log complete", "redis learn", "redis release"} {
		require.Contains(t, w.hooks.calls, call)
	}
}

func TestMode_HasOneNameEverywhere(t *testing.T) {
	for _, m := range allModes {
		b, err := m.MarshalText()
		require.NoError(t, err)
		var read dedupe.Mode
		require.NoError(t, read.UnmarshalText(b))
		require.Equal(t, m, read)
	}
	for _, bad := range []string{"", "Logged", "redis"} {
		_, err := dedupe.ParseMode(bad)
		require.Error(t, err)
	}
	_, err := dedupe.Mode(0).MarshalText()
	require.Error(t, err)
	require.Equal(t, "verdict(9)", dedupe.Verdict(9).String())
	require.Equal(t, "state(9)", dedupe.State(9).String())
	require.Equal(t, "mode(9)", dedupe.Mode(9).String())
}

func TestErrors_NameOperationAndKeyButNoID(t *testing.T) {
	w := newWorld(t, dedupe.Logged)
	require.NoError(t, w.Ready(context.Background()))
	w.log.fails(refused)
	_, err := w.deliver("ann@example.org")
	require.ErrorContains(t, err, "dedupe: claim inventory/")
	require.NotContains(t, err.Error(), "ann@")
	busy := &dedupe.BusyError{Key: w.key("A"), RetryIn: 1500 * time.Millisecond}
	require.EqualError(t, busy, "dedupe: claim "+w.key("A").String()+": another owner holds the claim, for 1.5s unless renewed")
	require.EqualError(t, dedupe.Bury("no stock"), "dedupe: bury: no stock")
}
