package redisstore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// probed is a breaker whose pings end as it is told.
type probed struct {
	*breaker
	pings atomic.Int32
	down  atomic.Bool
	takes atomic.Int64 // nanoseconds
	log   bytes.Buffer // a handler locks it
}

func newProbed() *probed {
	p := &probed{}
	var cfg Config
	if err := cfg.setDefaults(); err != nil {
		panic(err)
	}
	cfg.Logger = slog.New(slog.NewTextHandler(&p.log, nil))
	p.breaker = newBreaker(cfg, "redis.example:6379", func(ctx context.Context) error {
		p.pings.Add(1)
		select {
		case <-time.After(time.Duration(p.takes.Load())):
		case <-ctx.Done():
			return ctx.Err()
		}
		if p.down.Load() {
			return errors.New("down")
		}
		return nil
	})
	return p
}

// call is one message: whether it was let through, and what it reported.
func (p *probed) call(err error) bool {
	done, ok := p.allow()
	if ok {
		done(err)
	}
	return ok
}

var errDown = errors.New("no answer")

func (p *probed) open(t *testing.T) {
	t.Helper()
	for range defaultFailures {
		require.True(t, p.call(errDown))
	}
	require.False(t, p.call(nil))
}

func TestBreaker_OpensAfterFailuresInARow_NotInSum(t *testing.T) {
	p := newProbed()
	for range 10 {
		require.True(t, p.call(errDown))
		require.True(t, p.call(errDown))
		require.True(t, p.call(nil))
	}
	p.open(t)
}

func TestBreaker_GivenUp_CountsAsNothing(t *testing.T) {
	p := newProbed()
	for range 10 {
		require.True(t, p.call(errDown))
		require.True(t, p.call(errDown))
		require.True(t, p.call(errGivenUp))
		require.True(t, p.call(nil))
	}
	require.True(t, p.call(errDown))
	require.True(t, p.call(errGivenUp))
	require.True(t, p.call(errDown))
	require.True(t, p.call(errDown))
	require.False(t, p.call(nil), "a caller who gave up between them does not make failures forgotten")
}

func TestBreaker_Open_IsProbedByOnePingAndNeverByAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbed()
		p.down.Store(true)
		p.open(t)
		const seconds = 10
		for range seconds * 100 {
			require.False(t, p.call(nil), "no message goes through")
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		require.InDelta(t, seconds*time.Second/defaultProbe, p.pings.Load(), 2)
		p.down.Store(false)
		start := time.Now()
		for !p.call(nil) {
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(start), defaultProbe+30*time.Millisecond)
	})
}

func TestBreaker_Open_WithoutMessages_NothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbed()
		p.open(t)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, p.pings.Load())
		require.False(t, p.call(nil), "the first message after the hour pays for the probe")
		synctest.Wait()
		require.EqualValues(t, 1, p.pings.Load())
		require.True(t, p.call(nil))
	})
}

func TestBreaker_SlowPing_IsOneAtATimeAndEndsWithItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbed()
		p.takes.Store(int64(time.Hour))
		p.open(t)
		time.Sleep(2 * defaultProbe)
		for range 100 {
			require.False(t, p.call(nil))
		}
		synctest.Wait()
		require.EqualValues(t, 1, p.pings.Load())
		time.Sleep(defaultTimeout)
		synctest.Wait() // synctest fails if the goroutine is left
		require.False(t, p.call(nil))
	})
}

// A call that was let through before the breaker opened, and ends after it closed again, says nothing about now.
func TestBreaker_LateFailure_DoesNotOpenItAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbed()
		var late []func(error)
		for range 5 {
			done, ok := p.allow()
			require.True(t, ok)
			late = append(late, done)
		}
		p.open(t)
		time.Sleep(2 * defaultProbe)
		p.call(nil)
		synctest.Wait()
		for _, done := range late {
			done(errDown)
		}
		require.True(t, p.call(nil))
	})
}

// An outage is told when it begins and when it ends, not once a message and not once a probe.
func TestBreaker_AnOutage_IsLoggedOnceWhenItBeginsAndOnceWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbed()
		for range 2 {
			p.log.Reset()
			p.down.Store(true)
			p.open(t)
			for range 100 {
				require.False(t, p.call(nil))
				time.Sleep(defaultProbe / 5)
				synctest.Wait()
			}
			lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
			require.Len(t, lines, 1)
			require.Contains(t, lines[0], `level=WARN msg="redis does not answer" addr=redis.example:6379 failures=3 err="no answer"`)

			p.down.Store(false)
			for !p.call(nil) {
				time.Sleep(defaultProbe / 5)
				synctest.Wait()
			}
			lines = strings.Split(strings.TrimSpace(p.log.String()), "\n")
			require.Len(t, lines, 2)
			require.Contains(t, lines[1], `level=INFO msg="redis answers again" addr=redis.example:6379`)
		}
	})
}

func TestAddrOf_NamesTheServerAndNoCredentials(t *testing.T) {
	for url, want := range map[string]string{
		"redis://ann:secret@10.0.0.1:6379/2":                            "10.0.0.1:6379",
		"redis+cluster://ann:secret@10.0.0.1:6379,10.0.0.2:6379":        "10.0.0.1:6379,10.0.0.2:6379",
		"redis+sentinel://ann:secret@10.0.0.1:26379,10.0.0.2:26379/one": "the sentinels' master",
	} {
		rdb, err := NewClient(url)
		require.NoError(t, err)
		require.Equal(t, want, addrOf(rdb))
		require.NoError(t, rdb.Close())
	}
}
