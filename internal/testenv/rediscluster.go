package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

var redisClusterService = &service{
	name: "redis-cluster", env: "IDEMQ_TEST_REDIS_CLUSTER",
	local: func() (string, error) {
		nodes, err := launchCluster()
		return clusterURL(nodes), err
	},
}

// RedisCluster returns the URL, redis+cluster://host:port,host:port,host:port, of the shared cluster of three masters. Keys have to
// be told apart by Name.
func RedisCluster(t testing.TB) string {
	t.Helper()
	return redisClusterService.need(t)
}

// OwnRedisCluster starts three masters without replicas. The cluster answers while all of them are up.
func OwnRedisCluster(t testing.TB) (url string, nodes []*Server) {
	t.Helper()
	notShort(t, "redis-cluster")
	nodes, err := launchCluster()
	got(t, "redis-cluster", nodes, err)
	for _, node := range nodes {
		t.Cleanup(func() {
			if err := errors.Join(node.Kill(), os.RemoveAll(node.dir)); err != nil {
				t.Error(err)
			}
		})
	}
	return clusterURL(nodes), nodes
}

func clusterURL(nodes []*Server) string {
	var addrs []string
	for _, node := range nodes {
		addrs = append(addrs, node.Addr)
	}
	return "redis+cluster://" + strings.Join(addrs, ",")
}

const slots = 16384

func launchCluster() ([]*Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var nodes []*Server
	for range 3 {
		p, err := newRedis("cluster-enabled yes", "cluster-node-timeout 2000", "databases 1",
			fmt.Sprint("cluster-port ", freePort())) // by default ten thousand above, among the ports of outgoing connections
		if err != nil {
			return nil, err
		}
		node, err := launch(p)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	clients := make([]*redis.Client, len(nodes))
	for i, node := range nodes {
		clients[i] = redisClient(node.Addr)
		defer clients[i].Close()
	}
	for i, client := range clients {
		first, last := slots*i/len(nodes), slots*(i+1)/len(nodes)-1
		err := errors.Join(
			client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(),
			client.ClusterAddSlotsRange(ctx, first, last).Err(),
		)
		if err != nil {
			return nil, fmt.Errorf("testenv: make the cluster: %w", err)
		}
	}
	for _, node := range nodes[1:] {
		bus, err := clients[0].ConfigGet(ctx, "cluster-port").Result()
		if err != nil {
			return nil, fmt.Errorf("testenv: make the cluster: %w", err)
		}
		_, port, err := net.SplitHostPort(nodes[0].Addr)
		if err != nil {
			return nil, err
		}
		meeter := redisClient(node.Addr)
		err = meeter.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", port, bus["cluster-port"]).Err()
		if err = errors.Join(err, meeter.Close()); err != nil {
			return nil, fmt.Errorf("testenv: make the cluster: %w", err)
		}
	}
	for _, client := range clients {
		err := poll(ctx, func() error {
			info, err := client.ClusterInfo(ctx).Result()
			if err == nil && !(strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_size:3\r")) {
				err = fmt.Errorf("the nodes have not found each other:\n%s", info)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("testenv: make the cluster: %w", err)
		}
	}
	return nodes, nil
}

// Sentinels is a master with one replica, watched by one sentinel. When the master has been away for half a second, the sentinel
// promotes the replica.
type Sentinels struct {
	URL                       string // redis+sentinel://host:port/mymaster
	Sentinel, Master, Replica *Server
}

// OwnRedisSentinel starts Sentinels.
func OwnRedisSentinel(t testing.TB) *Sentinels {
	t.Helper()
	master := OwnRedis(t)
	replica := OwnRedisReplica(t, master)
	binary, err := exec.LookPath("redis-server")
	got(t, "redis", binary, err)
	sentinel := own(t, "redis", &sentinelProgram{redisProgram{binary: binary, args: []string{"--sentinel"}}, master.port}, nil)
	client := redis.NewSentinelClient(quick(&redis.Options{Addr: sentinel.Addr}))
	defer client.Close()
	ctx, cancel := background()
	defer cancel()
	got(t, "redis", sentinel, poll(ctx, func() error {
		replicas, err := client.Replicas(ctx, "mymaster").Result()
		if err == nil && (len(replicas) != 1 || replicas[0]["master-link-status"] != "ok") {
			err = errors.New("the sentinel has not found the replica")
		}
		return err
	}))
	return &Sentinels{URL: "redis+sentinel://" + sentinel.Addr + "/mymaster", Sentinel: sentinel, Master: master, Replica: replica}
}

type sentinelProgram struct {
	redisProgram
	master int // its port
}

func (p *sentinelProgram) prepare(dir string, port int) error {
	conf := []string{
		"bind 127.0.0.1", fmt.Sprint("port ", port), "dir " + strconv.Quote(dir),
		fmt.Sprintf("sentinel monitor mymaster 127.0.0.1 %d 1", p.master),
		"sentinel down-after-milliseconds mymaster 500",
		"sentinel failover-timeout mymaster 3000",
	}
	return os.WriteFile(filepath.Join(dir, "redis.conf"), []byte(strings.Join(conf, "\n")+"\n"), 0o644)
}
