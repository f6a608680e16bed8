package redisstore

import (
	"context"
	"crypto/sha1" // what EVALSHA names scripts by
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idemq/idemq/dedupe"
)

// script is a Lua script and its digest.
type script struct{ source, digest string }

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source, hex.EncodeToString(sum[:])}
}

// call is one run of a script on one key, and perhaps the mark of its shard.
type call struct {
	script *script
	keys   []string // as Redis knows them; their shard's slot
	args   []any
	about  dedupe.Key
	shard  int
	memory *memory // nil unless Redis is the authority of the scope
	decide bool    // Redis is the authority of the scope, or is becoming it

	// The answer: {code, now, value}, or {code, token, value} for a mark.
	err    error // classified, and then nothing else is set
	code   string
	now    int64 // the server's clock, in milliseconds
	token  string
	value  string
	record dedupe.Record
	on     *node
}

// newCall is a call about k. bad is what is wrong with the request, nil if nothing is: such a call is answered already.
func (s *Store) newCall(sc *script, k dedupe.Key, bad error, args ...any) *call {
	shard, m := s.shardOf(k), s.memoryOf(k.Scope())
	return &call{
		script: sc, keys: []string{s.redisKey(k, shard)}, args: args, about: k, shard: shard,
		memory: m, decide: m != nil, err: bad,
	}
}

// onceCmd is never sent twice by the client. A command that was sent, got no answer, and was then sent to a server that refuses
// connections would look as if it had never been sent.
type onceCmd struct{ *redis.Cmd }

// NoRetry is asked by go-redis. Redirections of a cluster are followed all the same: a server that redirects did nothing.
func (onceCmd) NoRetry() bool { return true }

// run makes the calls that have no error yet, in one pipeline. Each call is answered.
func (s *Store) run(ctx context.Context, calls []*call) {
	for len(calls) > 0 {
		if len(calls) == 1 && calls[0].err == nil {
			s.runDistinct(ctx, calls)
			return
		}
		// The same key twice is decided in order whatever has to be sent again: the second waits for the first.
		var now, later []*call
		taken := make(map[string]bool, len(calls))
		for _, c := range calls {
			switch {
			case c.err != nil:
			case taken[c.keys[0]]:
				later = append(later, c)
			default:
				taken[c.keys[0]] = true
				now = append(now, c)
			}
		}
		s.runDistinct(ctx, now)
		calls = later
	}
}

// runDistinct runs calls of distinct keys, and those again that did nothing for a passing reason.
func (s *Store) runDistinct(ctx context.Context, calls []*call) {
	start := time.Now()
	for pause := 10 * time.Millisecond; ; pause *= 2 {
		s.send(ctx, calls, false)
		calls = slices.DeleteFunc(slices.Clone(calls), func(c *call) bool {
			return !c.decide || !slices.Contains(passing, codeOf(c.err))
		})
		if len(calls) == 0 || time.Since(start)+pause > s.cfg.RetryFor || wait(ctx, pause) != nil {
			return
		}
		for _, c := range calls {
			c.err = nil
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send sends calls in one pipeline, by the digest of their scripts or in full text. What a server does not have the script for is sent
// again in full, each of them, so that it does not matter which server or when the scripts were flushed. Never in MULTI, where the
// other commands would take effect without it.
func (s *Store) send(ctx context.Context, calls []*call, inFull bool) {
	if err := ended(ctx); err != nil {
		for _, c := range calls {
			c.err = err
		}
		return
	}
	timed, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	calls, reports := s.admit(ctx, timed, calls)
	if len(calls) == 0 {
		return
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]onceCmd, len(calls))
	for i, c := range calls {
		cmds[i] = onceCmd{redis.NewCmd(timed, c.command(inFull)...)}
		cmds[i].SetFirstKeyPos(3)
		_ = pipe.Process(timed, cmds[i]) // a pipeline collects; it cannot fail
	}
	_, whole := pipe.Exec(timed)

	var unknown []*call
	for i, c := range calls {
		err := cmds[i].Err()
		if err == nil && cmds[i].Val() == nil {
			err = whole // no reply was read: go-redis does not tell the commands when a new connection was refused by the server
		}
		switch {
		case codeOf(err) == "NOSCRIPT" && !inFull:
			unknown = append(unknown, c)
		case err != nil:
			c.fail(classify(err))
		default:
			c.read(cmds[i].Val())
		}
		if !answered(err) {
			reports[c.on].err = unlessGivenUp(ctx, err)
		}
	}
	for _, r := range reports {
		r.done(r.err)
	}
	if len(unknown) > 0 {
		s.send(ctx, unknown, true)
	}
}

// report is what a breaker is told about its part of a pipeline.
type report struct {
	done func(error)
	err  error
}

// admit returns the calls whose nodes may be asked. The others are answered.
func (s *Store) admit(ctx, timed context.Context, calls []*call) ([]*call, map[*node]*report) {
	admitted := make([]*call, 0, len(calls))
	reports := map[*node]*report{}
	for _, c := range calls {
		on, err := s.nodes.of(ctx, timed, c.keys[0])
		if err == nil && reports[on] == nil {
			if done, ok := on.breaker.allow(); ok {
				reports[on] = &report{done: done}
			} else {
				err = fmt.Errorf("%w: %w", dedupe.ErrUnavailable, errOpen)
			}
		}
		if err != nil {
			c.err = err
			continue
		}
		c.on = on
		admitted = append(admitted, c)
	}
	return admitted, reports
}

func (c *call) command(inFull bool) []any {
	cmd := make([]any, 0, 3+len(c.keys)+len(c.args))
	if inFull {
		cmd = append(cmd, "eval", c.script.source)
	} else {
		cmd = append(cmd, "evalsha", c.script.digest)
	}
	cmd = append(cmd, strconv.Itoa(len(c.keys)))
	for _, k := range c.keys {
		cmd = append(cmd, k)
	}
	return append(cmd, c.args...)
}

var errReply = errors.New("a script replied in a shape that its header does not describe")

// read takes in the reply of a script.
func (c *call) read(val any) {
	c.err = errReply
	parts, _ := val.([]any)
	if len(parts) != 3 {
		return
	}
	code, isCode := parts[0].(string)
	value, isValue := parts[2].(string)
	if !isCode || !isValue {
		return
	}
	c.code, c.value = code, value
	switch second := parts[1].(type) {
	case string:
		c.token, c.err = second, nil
	case int64:
		c.now, c.err = second, nil
		if code != "shards" { // there VALUE is their number
			c.record, c.err = decode(c.about, value, second)
		}
	}
	if code == "foreign" {
		c.fail(ErrForeign)
	}
}

// fail sets the error. Where there is a log, a foreign value is one that Redis has no answer to.
func (c *call) fail(err error) {
	if errors.Is(err, ErrForeign) && !c.decide {
		err = fmt.Errorf("%w: %w", dedupe.ErrUnavailable, err)
	}
	c.err = err
}
