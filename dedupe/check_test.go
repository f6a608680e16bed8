package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

// checkedStore and checkedLog say what they find.
type checkedStore struct {
	wiredStore
	found []dedupe.Finding
	err   error
}

func (s checkedStore) Check(context.Context, dedupe.CheckEnv) ([]dedupe.Finding, error) {
	return s.found, s.err
}

type checkedLog struct {
	wiredLog
	check func(dedupe.CheckEnv) ([]dedupe.Finding, error)
}

func (l checkedLog) Check(_ context.Context, env dedupe.CheckEnv) ([]dedupe.Finding, error) {
	return l.check(env)
}

func codes(r dedupe.Report) (cs []string) {
	for _, f := range r.Findings {
		cs = append(cs, fmt.Sprintf("%s %v", f.Code, f.Refuse))
	}
	return cs
}

func TestCheck_Settings_AreComparedWithTheEnvironment(t *testing.T) {
	day := 24 * time.Hour
	for _, c := range []struct {
		env  dedupe.Environment
		want []string
	}{
		{dedupe.Environment{}, nil},
		{dedupe.Environment{RedeliveryHorizon: 15 * day, LongestDelay: 15 * day, DrainTimeout: 25 * time.Second, RebalanceTimeout: 30 * time.Second}, nil},
		{dedupe.Environment{RedeliveryHorizon: 15*day + 1}, []string{"retention-below-horizon true"}},
		{dedupe.Environment{HorizonUnlimited: true}, []string{"horizon-unlimited false"}},
		{dedupe.Environment{LongestDelay: 16 * day}, []string{"retention-below-delay true"}},
		{dedupe.Environment{DrainTimeout: 26 * time.Second, RebalanceTimeout: 30 * time.Second}, []string{"drain-above-rebalance true"}},
	} {
		inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
			rep, err := newWorld(t, mode).Check(context.Background(), c.env)
			require.Equal(t, c.want, codes(rep))
			refused := c.want != nil && c.want[0] != "horizon-unlimited false"
			require.Equal(t, refused, err != nil)
			if refused {
				require.ErrorContains(t, err, rep.Findings[0].Remedy)
			}
		})
	}
}

func TestCheck_FindingsOfTheStores_AreJoinedAndRefused(t *testing.T) {
	w := newWorld(t, dedupe.Logged)
	var got dedupe.CheckEnv
	g := w.process(func(c *dedupe.Config) {
		c.Store = checkedStore{wiredStore: w.redis, found: []dedupe.Finding{{Code: "redis-evicts", What: "allkeys-lru", Remedy: "noeviction"}}}
		c.Log = checkedLog{w.log, func(env dedupe.CheckEnv) ([]dedupe.Finding, error) {
			got = env
			return []dedupe.Finding{{Refuse: true, Code: "id-column-folds", What: "utf8mb4_general_ci", Remedy: "VARBINARY"}}, nil
		}}
	})
	rep, err := g.Check(context.Background(), dedupe.Environment{Concurrency: 9})
	require.Equal(t, []string{"redis-evicts false", "id-column-folds true"}, codes(rep))
	require.EqualError(t, err, "id-column-folds: utf8mb4_general_ci; VARBINARY")
	require.Equal(t, dedupe.CheckEnv{Scope: scope, Mode: dedupe.Logged, Lease: lease, Retention: g.Retention(), Concurrency: 9}, got)
	require.Zero(t, w.log.calls("enter"), "a refused process leaves no row")
}

func TestCheck_RedisAway_IsAWarning_AndRefusedByRedisIsAnError(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		away := w.process(func(c *dedupe.Config) {
			c.Store = checkedStore{wiredStore: w.redis, err: fmt.Errorf("dial: %w", dedupe.ErrUnavailable)}
		})
		rep, err := away.Check(context.Background(), dedupe.Environment{})
		require.NoError(t, err)
		require.Equal(t, []string{"redis-away false"}, codes(rep))
		require.Equal(t, "redis does not answer (dial: store unavailable)", rep.Findings[0].What)
		if mode == dedupe.RedisOnly {
			require.Contains(t, rep.Findings[0].Remedy, "messages wait")
		}
		wrong := w.process(func(c *dedupe.Config) { c.Store = checkedStore{wiredStore: w.redis, err: errors.New("WRONGPASS")} })
		_, err = wrong.Check(context.Background(), dedupe.Environment{})
		require.ErrorContains(t, err, "dedupe: check redis: WRONGPASS")
	})
}

func TestCheck_DatabaseAway_IsAskedForHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged)
		start := time.Now()
		back := 20 * time.Second
		g := w.process(func(c *dedupe.Config) {
			c.Log = checkedLog{w.log, func(dedupe.CheckEnv) ([]dedupe.Finding, error) {
				if time.Since(start) < back {
					return nil, dedupe.ErrUnavailable
				}
				return nil, nil
			}}
		})
		_, err := g.Check(context.Background(), dedupe.Environment{})
		require.NoError(t, err)
		start, back = time.Now(), time.Hour
		_, err = g.Check(context.Background(), dedupe.Environment{})
		require.ErrorIs(t, err, dedupe.ErrUnavailable)
		require.ErrorContains(t, err, "dedupe: check the log: the database has not answered for 30s: see that it runs and can be reached from here, and start this process again: ")
		require.Equal(t, 30*time.Second, time.Since(start))

		g = w.process(func(c *dedupe.Config) {
			c.Log = checkedLog{w.log, func(dedupe.CheckEnv) ([]dedupe.Finding, error) { return nil, errors.New("not migrated") }}
		})
		start = time.Now()
		_, err = g.Check(context.Background(), dedupe.Environment{})
		require.ErrorContains(t, err, "check the log: not migrated")
		require.Zero(t, time.Since(start), "what repeating cannot mend is not repeated")
	})
}

func TestCheck_Promise_SaysWhatTheModeDoesNotCover(t *testing.T) {
	for _, c := range []struct {
		mode   dedupe.Mode
		change func(*dedupe.Config)
		want   string
	}{
		{dedupe.Transactional, func(*dedupe.Config) {}, `scope "inventory", transactional: effects in the log's database happen once, whatever happens to redis, broker and process; redis asked first; lease 12s, remembered for 360h0m0s`},
		{dedupe.Transactional, withoutRedis, `; no redis (deaths-uncounted); `},
		{dedupe.Logged, func(*dedupe.Config) {}, `repeats only if its process dies between effect and completion, or freezes or is cut off from the log while it works, or its handler ignores a cancelled context; redis asked first`},
		{dedupe.Logged, withoutRedis, `; no redis; `},
		{dedupe.RedisOnly, func(*dedupe.Config) {}, `once as far as redis remembers: after a flush, an eviction or a failover with lost writes, effects repeat; while redis is away messages wait; lease`},
		{dedupe.RedisOnly, func(c *dedupe.Config) { c.OnMemoryLoss = dedupe.ContinueOnMemoryLoss }, `; a lost memory is named and not waited for; `},
	} {
		rep, err := newWorld(t, c.mode, c.change).Check(context.Background(), dedupe.Environment{})
		require.NoError(t, err)
		require.Contains(t, rep.Promise, c.want)
	}
}
