package testenv

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const redisDatabases = 4096

var redisService = &service{
	name: "redis", env: "IDEMQ_TEST_REDIS",
	container: redisContainer,
	local:     func() (string, error) { return launchURL(newRedis()) },
}

// Redis returns the URL of an empty database in the shared Redis. It is the test's own until the test ends, as long as the test
// keeps to it: no FLUSHALL, SCRIPT FLUSH or CONFIG SET (see OwnRedis).
func Redis(t testing.TB) string {
	t.Helper()
	server := redisService.need(t)
	u, err := leaseDatabase(t, server)
	return got(t, "redis", u, err)
}

// OwnRedis starts a Redis without persistence, which holds no data until its test writes some. SAVE writes a snapshot that the
// next Start loads. Settings are lines of redis.conf, such as "maxmemory 2mb".
func OwnRedis(t testing.TB, settings ...string) *Server {
	t.Helper()
	p, err := newRedis(settings...)
	return own(t, "redis", p, err)
}

// OwnRedisReplica starts a replica of master and returns when it has caught up. REPLICAOF NO ONE promotes it.
func OwnRedisReplica(t testing.TB, master *Server, settings ...string) *Server {
	t.Helper()
	host, port, _ := strings.Cut(master.Addr, ":")
	s := OwnRedis(t, append([]string{"replicaof " + host + " " + port}, settings...)...)
	ctx, cancel := background()
	defer cancel()
	client := redisClient(s.Addr)
	defer client.Close()
	got(t, "redis", s, poll(ctx, func() error { return infoHas(ctx, client, "replication", "master_link_status:up") }))
	return s
}

type redisProgram struct {
	binary   string
	args     []string
	settings []string
}

func newRedis(settings ...string) (program, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, missing("redis-server is not installed")
	}
	return &redisProgram{binary: binary, settings: settings}, nil
}

func (*redisProgram) name() string { return "redis" }

func (p *redisProgram) prepare(dir string, port int) error {
	conf := []string{
		"bind 127.0.0.1", fmt.Sprint("port ", port), "dir " + strconv.Quote(dir),
		`save ""`, "appendonly no", fmt.Sprint("databases ", redisDatabases),
		"repl-diskless-sync-delay 0", "enable-debug-command local",
	}
	conf = append(conf, p.settings...)
	return os.WriteFile(filepath.Join(dir, "redis.conf"), []byte(strings.Join(conf, "\n")+"\n"), 0o644)
}

func (p *redisProgram) command(dir string, _ int) *exec.Cmd {
	return exec.Command(p.binary, append([]string{filepath.Join(dir, "redis.conf")}, p.args...)...)
}

func (p *redisProgram) ping(ctx context.Context, addr string, pid int) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr) // go-redis would log that nobody listens yet
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	client := redisClient(addr)
	defer client.Close()
	err = client.Ping(ctx).Err() // an error while it loads a snapshot
	if err != nil && !strings.HasPrefix(err.Error(), "NOAUTH") {
		return err
	}
	if err != nil { // requirepass among the settings: that is an answer
		return nil
	}
	return infoHas(ctx, client, "server", fmt.Sprint("process_id:", pid)) // and not another server that took the port
}

func (*redisProgram) url(addr string) string     { return "redis://" + addr }
func (*redisProgram) stopSignal() syscall.Signal { return syscall.SIGTERM }
func (*redisProgram) killSignal() syscall.Signal { return syscall.SIGKILL }

// redisClient fails at once when the server is away.
func redisClient(addr string) *redis.Client {
	return redis.NewClient(quick(&redis.Options{Addr: addr}))
}

func quick(o *redis.Options) *redis.Options {
	o.MaxRetries, o.DialerRetries, o.DialTimeout = -1, 1, 2*time.Second
	o.ContextTimeoutEnabled, o.DisableIdentity = true, true
	return o
}

func infoHas(ctx context.Context, client *redis.Client, section, line string) error {
	info, err := client.Info(ctx, section).Result()
	if err == nil && !strings.Contains(info, line+"\r\n") {
		err = fmt.Errorf("INFO %s lacks %s", section, line)
	}
	return err
}

// leaseDatabase finds a database that no test uses, also none of another process: the free ones are known in database 0.
func leaseDatabase(t testing.TB, server string) (string, error) {
	options, err := redis.ParseURL(server)
	if err != nil {
		return "", err
	}
	ctx, cancel := background()
	defer cancel()
	root := redis.NewClient(quick(options))
	t.Cleanup(func() { root.Close() })
	config, err := root.ConfigGet(ctx, "databases").Result()
	if err != nil {
		return "", fmt.Errorf("CONFIG GET databases: %w", err)
	}
	databases := atoi(config["databases"])
	for db := 1; db < databases; db++ {
		key := fmt.Sprint("idemq-testenv:database:", db)
		// The time to live is for test processes that are killed; it is longer than any test.
		free, err := root.SetNX(ctx, key, t.Name(), time.Hour).Result()
		if err != nil {
			return "", err
		}
		if !free {
			continue
		}
		its := *options
		its.DB = db
		client := redis.NewClient(&its)
		if err := client.FlushDB(ctx).Err(); err != nil {
			client.Close()
			return "", err
		}
		t.Cleanup(func() {
			ctx, cancel := background()
			defer cancel()
			defer client.Close()
			if client.FlushDB(ctx).Err() == nil { // else it is leased until its time is up
				root.Del(ctx, key)
			}
		})
		u, err := url.Parse(server)
		if err != nil {
			return "", err
		}
		u.Path = "/" + strconv.Itoa(db)
		return u.String(), nil
	}
	return "", fmt.Errorf("all of its %d databases are in use by tests", databases)
}
