package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// How a loss of memory is noticed. A scope of which Redis is the authority has a mark in each shard (lua/remember.lua). A claim tests the
// mark in the same script, so a server that lost everything is noticed by the first claim. A server that lost only its last writes
// still has the mark: a replica that was promoted too early, or one that was started again with an old file. Those are other servers, which
// INFO says: run_id changes with the process, master_replid with each promotion (a server that was demoted and promoted keeps its
// run_id and its connections). It is asked at most once a second, and whenever the client has made a connection since; the answer of a
// claim is believed only after that.
//
// What is a false alarm, and refused all the same, because it cannot be told from a loss: a server that was started again and lost
// nothing, a slot of a cluster that moved to another master, the first replica that is attached to a server, or the last one gone for
// an hour (Redis then renames its history).

// memory is what this process knows about a scope of which Redis is the authority. Immutable.
type memory struct {
	token      string
	identities []string // of the server of each shard, when Remember accepted it
}

const (
	unknownIdentity = "?"
	identityAge     = time.Second
)

func (s *Store) memoryOf(scope string) *memory {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.memories[scope]
}

// Remember implements dedupe.Memory: it writes the mark of every shard of scope, accepts the servers as they are now, and makes Redis
// the authority of scope for this Store. lost says that there were marks of another memory or of another server. Marks that are gone
// are not a loss that it can see, unless other shards still have theirs: it looks like a scope that is new. It is an error if scope is
// spread over another number of shards; the error of a Redis that is away is ErrUnavailable, and Remember may be called again.
func (s *Store) Remember(ctx context.Context, scope string) (lost bool, err error) {
	lost, err = s.remember(ctx, scope)
	if err != nil {
		return false, opError("remember scope", strconv.Quote(scope), readOnly(err))
	}
	return lost, nil
}

func (s *Store) remember(ctx context.Context, scope string) (lost bool, err error) {
	if s.invalid != nil {
		return false, s.invalid
	}
	identities, err := s.identities(ctx, scope)
	if err != nil {
		return false, err
	}
	// Shard 0 first: it says over how many shards the scope is spread, and gives the token.
	first := s.newMark(scope, 0, rand.Text(), identities[0], true, false)
	if err := s.runMarks(ctx, first); err != nil {
		return false, err
	}
	token, whole := first.token, first.value == "1"
	var others []*call
	for shard := 1; shard < s.cfg.Shards; shard++ {
		others = append(others, s.newMark(scope, shard, token, identities[shard], false, false))
	}
	err = s.runMarks(ctx, others...)
	s.noteLoss(scope, whole, append(others, first)...) // the marks are written anew: who asks again would not see it
	if err != nil {
		return false, err
	}
	if err := s.runMarks(ctx, s.newMark(scope, 0, token, identities[0], false, true)); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lost = s.losses[scope]
	delete(s.losses, scope)
	s.memories[scope] = &memory{token, identities}
	return lost, nil
}

// noteLoss remembers, until Remember has succeeded, that a mark was another memory's, or gone though all had been written.
func (s *Store) noteLoss(scope string, whole bool, marks ...*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range marks {
		if c.code == "lost" || c.code == "new" && whole {
			s.losses[scope] = true
		}
	}
}

func (s *Store) newMark(scope string, shard int, token, identity string, adopt, whole bool) *call {
	return &call{
		script: rememberScript, keys: []string{s.markKey(scope, shard)}, shard: shard, decide: true,
		args: []any{strconv.Itoa(s.cfg.Shards), token, identity, flag(adopt), flag(whole)},
	}
}

func (s *Store) runMarks(ctx context.Context, calls ...*call) error {
	s.run(ctx, calls)
	for _, c := range calls {
		switch {
		case c.err != nil:
			return fmt.Errorf("mark %q: %w", c.keys[0], c.err)
		case c.code == "shards":
			return s.otherShards(c.token)
		}
	}
	return nil
}

func (s *Store) otherShards(n string) error {
	return fmt.Errorf("it is spread over %s shards, and Config.Shards is %d: set it to %s, or stop all processes of the scope and remove its marks, whose keys end with a brace; what Redis knows about it is then forgotten", n, s.cfg.Shards, n)
}

// expectMark makes a claim test the mark of its shard.
func (s *Store) expectMark(c *call) {
	if m := c.memory; m != nil {
		c.keys = append(c.keys, s.markKey(c.about.Scope(), c.shard))
		c.args = append(c.args, strconv.Itoa(s.cfg.Shards), m.token)
	}
}

// confirmMemory looks whether the claims were answered by the memory that Remember accepted.
func (s *Store) confirmMemory(ctx context.Context, calls []*call) {
	for _, c := range calls {
		if c.err != nil || c.memory == nil {
			continue
		}
		switch c.code {
		case "lost":
			c.err = fmt.Errorf("%w: its mark is gone or another's", dedupe.ErrMemoryLost)
			continue
		case "shards":
			c.err = s.otherShards(c.value)
			continue
		}
		is, err := c.on.whoIs(ctx, s.cfg.Timeout, identityAge)
		was := c.memory.identities[c.shard]
		switch {
		case err != nil: // the claim may be there
			c.err = fmt.Errorf("%w: claimed, but the server cannot be asked who it is: %w", dedupe.ErrOutcomeUnknown, err)
		case is != was && is != unknownIdentity && was != unknownIdentity:
			c.err = fmt.Errorf("%w: another server answers (run_id/master_replid %s, was %s)", dedupe.ErrMemoryLost, is, was)
		}
	}
}

// identities asks the server of each shard who it is.
func (s *Store) identities(ctx context.Context, scope string) ([]string, error) {
	timed, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	ids := make([]string, s.cfg.Shards)
	asked := map[*node]string{}
	for shard := range ids {
		on, err := s.nodes.of(ctx, timed, s.markKey(scope, shard))
		if err != nil {
			return nil, err
		}
		if _, known := asked[on]; !known {
			if asked[on], err = on.whoIs(ctx, s.cfg.Timeout, 0); err != nil {
				return nil, classify(err)
			}
		}
		ids[shard] = asked[on]
	}
	return ids, nil
}

// identity is who a server said it is.
type identity struct {
	mu      sync.Mutex
	text    string
	err     error
	asked   time.Time // when the answer, or the error, came
	changes uint32    // of the client's connections, before it was asked
}

// whoIs returns the server's run_id and master_replid, or unknownIdentity if it does not tell. An answer is kept for age, and until
// the client makes or loses a connection: the next one may be to another server.
func (n *node) whoIs(ctx context.Context, timeout, age time.Duration) (string, error) {
	id, began := &n.identity, time.Now()
	id.mu.Lock() // while one asks, the others wait for the answer
	defer id.mu.Unlock()
	if id.err != nil && id.asked.After(began) {
		return "", id.err
	}
	changes := connectionChanges(n.client)
	if id.err == nil && time.Since(id.asked) < age && changes == id.changes {
		return id.text, nil
	}
	timed, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	id.text, id.err = readIdentity(timed, n.client)
	id.asked, id.changes = time.Now(), changes
	return id.text, id.err
}

// connectionChanges counts the connections that the client has made and lost, in the pool that pipelines go by and in the other.
func connectionChanges(client commands) uint32 {
	stats := client.PoolStats()
	n := stats.Misses + stats.StaleConns
	if p := stats.PipelineStats; p != nil {
		n += p.Misses + p.StaleConns
	}
	return n
}

// readIdentity asks in a pipeline, as the scripts are run.
func readIdentity(ctx context.Context, client commands) (string, error) {
	pipe := client.Pipeline()
	server, replication := pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, err := range []error{server.Err(), replication.Err()} {
		if !answered(err) {
			return "", err
		}
	}
	runID, replID := infoField(server.Val(), "run_id"), infoField(replication.Val(), "master_replid")
	if runID == "" || replID == "" { // not permitted, or no real Redis
		return unknownIdentity, nil
	}
	return runID + "/" + replID, nil
}

// infoField is the value of a line "field:value" of INFO; empty if there is none.
func infoField(info, field string) string {
	for line := range strings.SplitSeq(info, "\n") {
		if value, found := strings.CutPrefix(line, field+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
