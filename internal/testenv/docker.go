package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// Docker skips the test where no Docker daemon answers.
func Docker(t testing.TB) {
	t.Helper()
	if err := dockerAnswers(); err != nil {
		Skip(t, "docker", err.Error())
	}
}

// startContainer starts a container by start, or says why not: fast if no daemon answers.
func startContainer(start func(ctx context.Context) (string, error)) (string, error) {
	if err := dockerAnswers(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // the image may have to be pulled
	defer cancel()
	return start(ctx)
}

// dockerAnswers asks the daemon itself: testcontainers takes its time to find out that there is none.
func dockerAnswers() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	response, err := dockerCall(ctx, http.MethodGet, "/_ping")
	if err != nil {
		return fmt.Errorf("no Docker daemon answers: %w", err)
	}
	return response.Body.Close()
}

func removeContainer(ctx context.Context, id string) error {
	response, err := dockerCall(ctx, http.MethodDelete, "/containers/"+id+"?force=true&v=true")
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func dockerCall(ctx context.Context, method, path string) (*http.Response, error) {
	network, addr, err := dockerAddr()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	}
	return transport.RoundTrip(request)
}

// dockerAddr is where the daemon listens: DOCKER_HOST, or the first of the usual sockets.
func dockerAddr() (network, addr string, err error) {
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		u, err := url.Parse(host)
		if err != nil {
			return "", "", fmt.Errorf("DOCKER_HOST: %w", err)
		}
		if u.Scheme == "unix" {
			return "unix", u.Path, nil
		}
		return "tcp", u.Host, nil
	}
	sockets := []string{"/var/run/docker.sock"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		sockets = append(sockets, filepath.Join(dir, "docker.sock"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		sockets = append(sockets, filepath.Join(home, ".docker/run/docker.sock"))
	}
	for _, socket := range sockets {
		if _, err := os.Stat(socket); err == nil {
			return "unix", socket, nil
		}
	}
	return "", "", errors.New("no socket")
}

// runContainer starts image and returns the URL at which the host reaches port, once p answers there.
func runContainer(ctx context.Context, p program, image string, port int, options ...testcontainers.ContainerCustomizer) (string, error) {
	host, err := daemonHost(ctx)
	if err != nil {
		return "", err
	}
	exposed := strconv.Itoa(port) + "/tcp"
	inside, err := network.ParsePort(exposed)
	if err != nil {
		return "", err
	}
	outside := network.PortBinding{} // any port of any interface, for a daemon elsewhere
	if host == "localhost" || host == "127.0.0.1" {
		outside.HostIP = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if p.name() == "kafka" { // a broker tells its clients where it is, so its port has to be the same on both sides
		outside.HostPort = strconv.Itoa(port)
	}
	options = append([]testcontainers.ContainerCustomizer{
		testcontainers.WithLogger(log.NewNoopLogger()),
		testcontainers.WithExposedPorts(exposed),
		testcontainers.WithHostConfigModifier(func(c *container.HostConfig) {
			c.PortBindings = network.PortMap{inside: {outside}}
		}),
	}, options...)
	c, err := testcontainers.Run(ctx, image, options...)
	if c != nil && c.GetContainerID() != "" {
		if err := theReaper.tell("container %s", c.GetContainerID()); err != nil {
			return "", err
		}
	}
	if err != nil {
		return "", fmt.Errorf("container of %s: %w", image, err)
	}
	addr, err := c.PortEndpoint(ctx, exposed, "")
	if err != nil {
		return "", fmt.Errorf("container of %s: %w", image, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = poll(ctx, func() error {
		if state, err := c.State(ctx); err == nil && !state.Running {
			cancel()
			return fmt.Errorf("it ended by itself with status %d (docker logs %.12s)", state.ExitCode, c.GetContainerID())
		}
		once, cancelOnce := context.WithTimeout(ctx, 2*time.Second)
		defer cancelOnce()
		return p.ping(once, addr, inContainer)
	})
	if err != nil {
		return "", fmt.Errorf("container of %s: %w", image, err)
	}
	return p.url(addr), nil
}

// daemonHost is where the ports of containers are reached.
func daemonHost(ctx context.Context) (string, error) {
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return "", err
	}
	host, err := provider.DaemonHost(ctx)
	return host, errors.Join(err, provider.Close())
}

// inContainer is the pid of the first process of a container.
const inContainer = 1

func imageOf(env, official string) string {
	if image := os.Getenv(env); image != "" {
		return image
	}
	return official
}

func redisContainer(ctx context.Context) (string, error) {
	return runContainer(ctx, &redisProgram{}, imageOf("IDEMQ_IMAGE_REDIS", "redis:7"), 6379,
		testcontainers.WithCmd("redis-server", "--save", "", "--databases", strconv.Itoa(redisDatabases), "--protected-mode", "no"))
}

func postgresContainer(ctx context.Context) (string, error) {
	return runContainer(ctx, &postgresProgram{}, imageOf("IDEMQ_IMAGE_POSTGRES", "postgres:17"), 5432,
		testcontainers.WithEnv(map[string]string{"POSTGRES_USER": "idemq", "POSTGRES_PASSWORD": "idemq", "POSTGRES_DB": "postgres"}),
		testcontainers.WithCmd("postgres", "-c", "max_connections=300"))
}

func mariadbContainer(ctx context.Context) (string, error) {
	return runContainer(ctx, &mariadbProgram{user: "root"}, imageOf("IDEMQ_IMAGE_MARIADB", "mariadb:11"), 3306,
		testcontainers.WithEnv(map[string]string{"MARIADB_ROOT_PASSWORD": "idemq", "MARIADB_DATABASE": "idemq"}),
		testcontainers.WithCmd("mariadbd", "--max-connections=300", "--skip-name-resolve"))
}

func kafkaContainer(ctx context.Context) (string, error) {
	host, err := daemonHost(ctx)
	if err != nil {
		return "", err
	}
	port := freePort()
	return runContainer(ctx, &kafkaProgram{}, imageOf("IDEMQ_IMAGE_KAFKA", "apache/kafka:"+kafkaVersion()), port,
		testcontainers.WithEnv(kafkaContainerEnv(host, port)))
}
