// Package redisstore keeps claims in Redis, by the scripts of package lua.
//
// In modes with a log a Store answers earlier what the log knows already, and decides nothing: Redis may be down, flushed, evicted or
// rolled back, and only speed changes. In RedisOnly it is the authority, as far as Redis remembers: Remember and Claim notice when it
// does not (see memory.go for how).
//
// # Keys
//
// A key is "idemq:{SCOPE:SHARD}:LEN:NAMESPACE:ID", where LEN is the length of NAMESPACE in bytes, so that no two keys meet whatever
// bytes their parts hold. SHARD is a hash of namespace and id; the hash tag in braces puts a shard into one slot of a cluster. All
// processes and tools of a scope use the same Config.Prefix and Config.Shards: with others they do not see its keys, which RedisOnly
// refuses by name. "idemq:{SCOPE:0}:mode" is the note of the scope's mode, and in RedisOnly "idemq:{SCOPE:SHARD}" the mark by which a loss is
// noticed; both stay. To delete a scope is to delete all keys that begin with "idemq:{SCOPE:", while none of its processes runs.
//
// # What an error means
//
// dedupe.ErrUnavailable: surely not done; nothing was sent, or the server said that it did nothing. dedupe.ErrOutcomeUnknown: the
// command may have been sent, and the script may have run; ask again with the same owner, which is answered the same. ErrForeign: the
// value at the key is not ours to read.
//
// # Breaker
//
// Three calls in a row without an answer (Config.Breaker), and messages are refused at once instead of each waiting for its
// timeout. From then on a PING of our own, never a message, tries the server, at most one each Breaker.Probe and only while messages
// come. There is one breaker a server: on a cluster a dead master costs its own keys only, and a replica that takes over starts with
// a closed one. A server that answers with an error does not open it, since that costs nobody time; neither does a caller who gave up.
//
// # What is logged
//
// A breaker that opens is one WARN "redis does not answer" with the server's address, and one that closes an INFO "redis answers again".
// Nothing else is logged here: errors are returned. go-redis has a log of its own, one for the process, which tells each refused
// connection on stderr; redis.SetLogger brings it to slog, as an example of this package shows.
package redisstore
