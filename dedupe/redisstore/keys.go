package redisstore

import (
	"hash/fnv"
	"strconv"

	"github.com/idemq/idemq/dedupe"
)

// shardOf is the same in every process and every version: a change would make every key be forgotten.
func (s *Store) shardOf(k dedupe.Key) int {
	h := fnv.New64a()
	h.Write([]byte(k.Namespace())) //nolint:errcheck // a hash.Hash never returns an error
	h.Write([]byte{0})             //nolint:errcheck
	h.Write([]byte(k.ID()))        //nolint:errcheck
	return int(h.Sum64() % uint64(s.cfg.Shards))
}

// markKey is the key of a shard's mark, and what the keys of the shard begin with. Neither prefix nor scope can hold a brace, so the
// hash tag is what is in these ones, whatever follows.
func (s *Store) markKey(scope string, shard int) string {
	return s.cfg.Prefix + ":{" + scope + ":" + strconv.Itoa(shard) + "}"
}

// modeKey is the key of the note in which mode the scope runs. It is in the slot of shard 0, which every number of shards has, and no key of a
// message: after the brace and a colon those have a digit.
func (s *Store) modeKey(scope string) string { return s.markKey(scope, 0) + ":mode" }

func (s *Store) redisKey(k dedupe.Key, shard int) string {
	return s.markKey(k.Scope(), shard) + ":" + strconv.Itoa(len(k.Namespace())) + ":" + k.Namespace() + ":" + k.ID()
}
