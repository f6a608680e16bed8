package testenv_test

import (
	"context"
	"database/sql"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

func TestRedis_EachTestHasADatabaseOfItsOwn(t *testing.T) {
	one, two := testenv.Redis(t), testenv.Redis(t)
	require.NotEqual(t, one, two)
	set(t, one, "k", "one")
	require.Equal(t, "", get(t, two, "k"))
	require.Equal(t, "one", get(t, one, "k"))
}

func TestOwnRedis_LosesItsDataWhenKilled(t *testing.T) {
	s := testenv.OwnRedis(t)
	set(t, s.URL, "k", "v")
	first := s.Pid()
	require.NoError(t, s.Kill())
	require.Zero(t, s.Pid())
	requireRefused(t, s.Addr)
	require.NoError(t, s.Start())
	require.NotEqual(t, first, s.Pid())
	require.Equal(t, "", get(t, s.URL, "k"))
}

func TestOwnRedis_StartsFromASnapshotUnlessWiped(t *testing.T) {
	s := testenv.OwnRedis(t)
	set(t, s.URL, "k", "saved")
	require.NoError(t, redisAt(t, s.URL).Save(t.Context()).Err())
	set(t, s.URL, "k", "newer")
	require.NoError(t, s.Restart())
	require.Equal(t, "saved", get(t, s.URL, "k"))
	require.NoError(t, s.Wipe())
	require.NoError(t, s.Start())
	require.Equal(t, "", get(t, s.URL, "k"))
}

func TestOwnRedis_PausedServerDoesNotAnswer(t *testing.T) {
	s := testenv.OwnRedis(t, "maxmemory 2mb")
	client := redisAt(t, s.URL)
	require.NoError(t, s.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, client.Ping(ctx).Err(), context.DeadlineExceeded)
	require.NoError(t, s.Resume())
	require.NoError(t, client.Ping(t.Context()).Err())
}

func TestOwnRedisReplica_CanBePromoted(t *testing.T) {
	master := testenv.OwnRedis(t)
	set(t, master.URL, "k", "v")
	replica := testenv.OwnRedisReplica(t, master)
	require.Equal(t, "v", get(t, replica.URL, "k"))
	require.NoError(t, master.Kill())
	require.NoError(t, redisAt(t, replica.URL).ReplicaOf(t.Context(), "no", "one").Err())
	set(t, replica.URL, "k", "w")
}

func TestRedisCluster_ServesEverySlot(t *testing.T) {
	addrs := strings.Split(strings.TrimPrefix(testenv.RedisCluster(t), "redis+cluster://"), ",")
	require.Len(t, addrs, 3)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer client.Close()
	prefix := testenv.Name(t)
	for _, key := range strings.Fields("a b c d e f g h") {
		require.NoError(t, client.Set(t.Context(), prefix+key, key, time.Minute).Err())
	}
}

func TestOwnRedisCluster_ComesBackAfterANodeDied(t *testing.T) {
	_, nodes := testenv.OwnRedisCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes[1].Addr}})
	defer client.Close()
	require.NoError(t, nodes[0].Restart())
	require.Eventually(t, func() bool { return client.Set(t.Context(), "b", 1, 0).Err() == nil }, 30*time.Second, 50*time.Millisecond)
}

func TestOwnRedisSentinel_PromotesTheReplica(t *testing.T) {
	s := testenv.OwnRedisSentinel(t)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: []string{s.Sentinel.Addr}})
	defer client.Close()
	require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())
	require.NoError(t, s.Master.Kill())
	require.Eventually(t, func() bool {
		return client.Set(t.Context(), "k", "w", 0).Err() == nil && get(t, s.Replica.URL, "k") == "w"
	}, 30*time.Second, 50*time.Millisecond)
}

func TestPostgres_EachTestHasADatabaseOfItsOwn(t *testing.T) {
	for range 2 {
		conn := postgresAt(t, testenv.Postgres(t))
		_, err := conn.Exec(t.Context(), "CREATE TABLE t (n int)")
		require.NoError(t, err)
	}
}

func TestOwnPostgres_KeepsWhatWasCommittedWhenKilled(t *testing.T) {
	s := testenv.OwnPostgres(t)
	conn := postgresAt(t, s.URL)
	_, err := conn.Exec(t.Context(), "CREATE TABLE t AS SELECT 7 AS n")
	require.NoError(t, err)
	require.NoError(t, s.Kill())
	requireRefused(t, s.Addr)
	require.Error(t, conn.Ping(t.Context()))
	require.NoError(t, s.Start())
	var n int
	require.NoError(t, postgresAt(t, s.URL).QueryRow(t.Context(), "SELECT n FROM t").Scan(&n))
	require.Equal(t, 7, n)
}

func TestMariaDB_EachTestHasADatabaseOfItsOwn(t *testing.T) {
	for range 2 {
		_, err := mariadbAt(t, testenv.MariaDB(t)).Exec("CREATE TABLE t (n int)")
		require.NoError(t, err)
	}
}

func TestOwnMariaDB_KeepsWhatWasCommittedWhenKilled(t *testing.T) {
	s := testenv.OwnMariaDB(t)
	db := mariadbAt(t, s.URL)
	_, err := db.Exec("CREATE TABLE t AS SELECT 7 AS n")
	require.NoError(t, err)
	require.NoError(t, s.Kill())
	requireRefused(t, s.Addr)
	require.Error(t, db.Ping())
	require.NoError(t, s.Start())
	var n int
	require.NoError(t, db.QueryRow("SELECT n FROM t").Scan(&n))
	require.Equal(t, 7, n)
}

func redisAt(t *testing.T, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}

func set(t *testing.T, url, key, value string) {
	t.Helper()
	require.NoError(t, redisAt(t, url).Set(t.Context(), key, value, 0).Err())
}

func get(t *testing.T, url, key string) string {
	t.Helper()
	value, err := redisAt(t, url).Get(t.Context(), key).Result()
	if err != redis.Nil {
		require.NoError(t, err)
	}
	return value
}

func postgresAt(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func mariadbAt(t *testing.T, server string) *sql.DB {
	t.Helper()
	u, err := url.Parse(server)
	require.NoError(t, err)
	config := mysql.NewConfig()
	config.Net, config.Addr, config.User, config.DBName = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
	config.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func requireRefused(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		conn.Close()
	}
	require.Error(t, err)
}
