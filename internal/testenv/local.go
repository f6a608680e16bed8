package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Local is a Redis, a PostgreSQL, a MariaDB, a Kafka and a RocketMQ to try the examples on. They outlive the process that starts them: what
// there is to know about them is in files in its directory.
type Local struct {
	dir string
	// Compose is a file for docker compose with the same services, used where a Docker daemon answers.
	Compose string

	attached bool // for tests: the services end with this process
}

// localServices in the order in which they are started; their ports if nobody has them.
var localServices = []struct {
	name string
	port int
	make func(*Local) (program, error)
}{
	{"redis", 6379, func(*Local) (program, error) { return newRedis() }},
	{"postgres", 5432, func(*Local) (program, error) { return newPostgres() }},
	{"mariadb", 3306, func(*Local) (program, error) { return newMariaDB() }},
	{"kafka", 9092, func(*Local) (program, error) { return newKafka(KafkaOptions{}) }},
	{"rocketmq-namesrv", 9876, func(*Local) (program, error) { return newNameServer(RocketMQOptions{}) }},
	{"rocketmq", 10911, func(l *Local) (program, error) {
		port, err := l.noted("rocketmq-namesrv", "port")
		if err != nil {
			return nil, missing("its name server is missing")
		}
		return newBroker(loopback(port), RocketMQOptions{})
	}},
}

// NewLocal returns the services whose files are in dir.
func NewLocal(dir string) (*Local, error) {
	dir, err := filepath.Abs(dir)
	return &Local{dir: dir, Compose: filepath.Join(filepath.Dir(dir), "docker-compose.yml")}, err
}

// Up starts what does not run yet, and writes the file env for shells. What cannot be had is returned by name, with the reason.
func (l *Local) Up() (missed map[string]error, err error) {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return nil, err
	}
	missed = map[string]error{}
	inDocker, err := l.composeUp()
	if err != nil {
		return nil, err
	}
	for _, service := range localServices {
		if inDocker || l.runs(service.name) {
			continue
		}
		p, err := service.make(l)
		if err == nil && l.wasUp(service.name) {
			err = l.Start(service.name)
		} else if err == nil {
			err = l.launch(p, service.port)
		}
		var why missing
		if errors.As(err, &why) {
			missed[service.name] = why
		} else if err != nil {
			return missed, err
		}
	}
	return missed, l.writeEnv()
}

func (l *Local) launch(p program, port int) error {
	dir, err := l.dataDir(p)
	if err != nil {
		return err
	}
	for taken(port) || p.name() == "kafka" && taken(port+1) || p.name() == "rocketmq" && (taken(port+1) || taken(port-2)) {
		port = freePort()
	}
	s := &Server{program: p, dir: dir, port: port, Addr: loopback(port), detached: !l.attached}
	if err := l.note(p.name(), "port", port); err != nil {
		return err
	}
	if err := p.prepare(dir, port); err != nil {
		return err
	}
	if err := s.Start(); err != nil {
		return err
	}
	pid := s.Pid()
	if err := makeInventory(p, s.Addr); err != nil {
		return errors.Join(err, s.Kill())
	}
	return l.note(p.name(), "pid", pid)
}

// dataDir makes the directory of the service. PostgreSQL, where it runs as another user, may have no access to ours: there, the
// directory is elsewhere and ours is a link to it.
func (l *Local) dataDir(p program) (string, error) {
	dir := filepath.Join(l.dir, p.name())
	if err := l.remove(p.name()); err != nil {
		return "", err
	}
	if pg, ok := p.(*postgresProgram); ok && pg.runAs != nil && !openToAll(l.dir) {
		elsewhere, err := os.MkdirTemp("", "idemq-local-")
		if err != nil {
			return "", err
		}
		return elsewhere, errors.Join(os.Chmod(elsewhere, 0o755), os.Symlink(elsewhere, dir))
	}
	return dir, os.Mkdir(dir, 0o755)
}

func openToAll(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// makeInventory makes the database that the example uses.
func makeInventory(p program, addr string) error {
	ctx, cancel := background()
	defer cancel()
	switch p.(type) {
	case *postgresProgram:
		conn, err := pgx.Connect(ctx, p.url(addr))
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, "CREATE DATABASE inventory")
		return errors.Join(err, conn.Close(ctx))
	case *mariadbProgram:
		return mysqlExec(p.url(addr), "CREATE DATABASE inventory")
	}
	return nil
}

// Kill ends a service at once, and Start brings it back with the data it had. An error where the service is not up, and nil where it
// was killed already.
func (l *Local) Kill(name string) error {
	if err := l.known(name); err != nil {
		return err
	}
	if l.inDocker() {
		return l.compose("kill", name)
	}
	if !l.wasUp(name) {
		return notUp(name)
	}
	p, err := l.program(name)
	if err != nil {
		return err
	}
	return l.kill(p)
}

func notUp(name string) error { return fmt.Errorf("%s is not up; make local-up starts it", name) }

// Start starts a service that was up before and was killed.
func (l *Local) Start(name string) error {
	if err := l.known(name); err != nil {
		return err
	}
	if l.inDocker() {
		return l.compose("start", name)
	}
	if !l.wasUp(name) {
		return notUp(name)
	}
	p, err := l.program(name)
	if err != nil {
		return err
	}
	if l.runs(name) {
		return nil
	}
	port, err := l.noted(name, "port")
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(l.dir, name))
	if err != nil {
		return err
	}
	s := &Server{program: p, dir: dir, port: port, Addr: loopback(port), detached: !l.attached}
	if err := s.Start(); err != nil {
		return err
	}
	return l.note(name, "pid", s.Pid())
}

// Down stops all services and removes their data.
func (l *Local) Down() error {
	var errs []error
	if l.inDocker() {
		errs = append(errs, l.compose("down", "--volumes"))
	}
	for _, service := range localServices {
		if l.runs(service.name) {
			p, err := l.program(service.name)
			if err == nil {
				err = l.kill(p)
			}
			errs = append(errs, err)
		}
		errs = append(errs, l.remove(service.name))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(l.dir)
}

func (l *Local) kill(p program) error {
	if !l.runs(p.name()) {
		return nil
	}
	pid, err := l.noted(p.name(), "pid")
	if err != nil {
		return err
	}
	port, err := l.noted(p.name(), "port")
	if err != nil {
		return err
	}
	if err := signalPid(pid, p.killSignal()); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	ctx, cancel := background()
	defer cancel()
	return poll(ctx, func() error {
		if taken(port) {
			return fmt.Errorf("%s still listens on port %d", p.name(), port)
		}
		return nil
	})
}

// remove removes the data of a service. A database that was just killed may write for a moment.
func (l *Local) remove(name string) error {
	dir := filepath.Join(l.dir, name)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return poll(ctx, func() error {
		if elsewhere, err := os.Readlink(dir); err == nil {
			if err := os.RemoveAll(elsewhere); err != nil {
				return err
			}
		}
		return os.RemoveAll(dir)
	})
}

// wasUp reports whether the service has started once, so that its data are complete.
func (l *Local) wasUp(name string) bool {
	_, err := l.noted(name, "pid")
	return err == nil
}

// runs reports whether the service is up. A process id alone would not do: after a reboot it may be somebody else's.
func (l *Local) runs(name string) bool {
	pid, err := l.noted(name, "pid")
	if err != nil || signalPid(pid, 0) != nil {
		return false
	}
	port, err := l.noted(name, "port")
	return err == nil && taken(port)
}

func (l *Local) note(name, what string, n int) error {
	return os.WriteFile(filepath.Join(l.dir, name+"."+what), []byte(strconv.Itoa(n)+"\n"), 0o644)
}

func (l *Local) noted(name, what string) (int, error) {
	text, err := os.ReadFile(filepath.Join(l.dir, name+"."+what))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// EnvFile is what a shell reads to use the services.
func (l *Local) EnvFile() string { return filepath.Join(l.dir, "env") }

func (l *Local) writeEnv() error {
	variables := map[string]string{
		"redis":    "INVENTORY_REDIS=redis://%s",
		"postgres": "INVENTORY_DB='postgres://idemq:idemq@%s/inventory?sslmode=disable'",
		"mariadb":  "INVENTORY_DB_MYSQL=mysql://idemq:idemq@%s/inventory",
		"kafka":    "INVENTORY_BROKERS=%s",

		"rocketmq-namesrv": "INVENTORY_ROCKETMQ=%s",
	}
	var text strings.Builder
	for _, service := range localServices {
		variable, told := variables[service.name]
		port, err := l.noted(service.name, "port")
		if told && err == nil {
			fmt.Fprintf(&text, "export "+variable+"\n", loopback(port))
		}
	}
	return os.WriteFile(l.EnvFile(), []byte(text.String()), 0o644)
}

func (l *Local) program(name string) (program, error) {
	for _, service := range localServices {
		if service.name == name {
			return service.make(l)
		}
	}
	return nil, l.known(name)
}

// known is an error for a name that no service has.
func (l *Local) known(name string) error {
	var names []string
	for _, service := range localServices {
		if service.name == name {
			return nil
		}
		names = append(names, service.name)
	}
	there := strings.Join(names, ", ")
	if name == "" {
		return fmt.Errorf("name a service, as in SERVICE=redis; there are %s", there)
	}
	return fmt.Errorf("no service %q; there are %s", name, there)
}

// With docker compose.

func (l *Local) inDocker() bool {
	_, err := os.Stat(filepath.Join(l.dir, "compose"))
	return err == nil
}

// composeUp reports whether the services are in Docker, and waits until they answer.
func (l *Local) composeUp() (bool, error) {
	via := os.Getenv("IDEMQ_TEST_VIA")
	if !l.inDocker() {
		if via == "local" || dockerAnswers() != nil || exec.Command("docker", "compose", "version").Run() != nil {
			return false, nil
		}
		for _, service := range localServices {
			port := service.port
			for taken(port) {
				port = freePort()
			}
			if err := l.note(service.name, "port", port); err != nil {
				return false, err
			}
		}
		if err := os.WriteFile(filepath.Join(l.dir, "compose"), nil, 0o644); err != nil {
			return false, err
		}
	}
	if err := l.compose("up", "--detach"); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	names, err := l.noted("rocketmq-namesrv", "port")
	if err != nil {
		return false, err
	}
	pings := map[string]program{
		"redis": &redisProgram{}, "postgres": &postgresProgram{}, "mariadb": &mariadbProgram{}, "kafka": &kafkaProgram{},
		"rocketmq-namesrv": nameServer{}, "rocketmq": rocketmqBroker{names: loopback(names)},
	}
	for name, p := range pings {
		port, err := l.noted(name, "port")
		if err != nil {
			return false, err
		}
		if err := poll(ctx, func() error { return p.ping(ctx, loopback(port), inContainer) }); err != nil {
			return false, fmt.Errorf("%s in docker compose: %w", name, err)
		}
	}
	return true, nil
}

func (l *Local) compose(args ...string) error {
	cmd := exec.Command("docker", append([]string{"compose", "--file", l.Compose, "--project-name", "idemq-local"}, args...)...)
	cmd.Env = os.Environ()
	for _, service := range localServices {
		port, err := l.noted(service.name, "port")
		if err != nil {
			return err
		}
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s_PORT=%d", strings.ToUpper(strings.ReplaceAll(service.name, "-", "_")), port))
	}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}
