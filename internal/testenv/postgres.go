package testenv

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

var postgresService = &service{
	name: "postgres", env: "IDEMQ_TEST_POSTGRES",
	container: postgresContainer,
	local:     func() (string, error) { return launchURL(newPostgres()) },
}

// Postgres returns the URL of an empty database in the shared PostgreSQL, which is dropped when the test ends. The user is a
// superuser where testenv starts the server, and needs CREATEDB where it is given by URL.
func Postgres(t testing.TB) string {
	t.Helper()
	server := postgresService.need(t)
	name := "t_" + random()
	admin := func(statement string) error {
		ctx, cancel := background()
		defer cancel()
		conn, err := pgx.Connect(ctx, server)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, statement)
		return err
	}
	u, err := withDatabase(server, name)
	got(t, "postgres", u, err)
	got(t, "postgres", u, admin("CREATE DATABASE "+name))
	t.Cleanup(func() {
		if err := admin("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Errorf("testenv: drop the test's database: %v", err)
		}
	})
	return u
}

func withDatabase(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

// OwnPostgres starts a PostgreSQL. Settings are as in postgresql.conf, such as "max_connections=5". Its URL names a superuser
// and an empty database.
func OwnPostgres(t testing.TB, settings ...string) *Server {
	t.Helper()
	p, err := newPostgres(settings...)
	return own(t, "postgres", p, err)
}

type postgresProgram struct {
	bin      string   // the directory of the programs
	runAs    *account // PostgreSQL refuses to run as root
	settings []string
}

func newPostgres(settings ...string) (program, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	runAs, err := unprivileged("postgres")
	if err != nil {
		return nil, missingf("no user to run it as: %v", err)
	}
	return &postgresProgram{bin: bin, runAs: runAs, settings: settings}, nil
}

// postgresBin looks on the PATH and where Debian, which keeps several versions, puts them.
func postgresBin() (string, error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(initdb), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", missing("initdb is not installed")
	}
	version := func(path string) int { return atoi(strings.Split(path, "/")[4]) }
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}

func (*postgresProgram) name() string { return "postgres" }

// prepare copies a data directory that initdb made once for all test runs.
func (p *postgresProgram) prepare(dir string, _ int) error {
	version, err := exec.Command(filepath.Join(p.bin, "initdb"), "--version").Output()
	if err != nil {
		return err
	}
	template, err := cached(fmt.Sprintf("postgres-%x", sha256.Sum256(version))[:25], p.initdb)
	if err != nil {
		return err
	}
	return copyTree(template, filepath.Join(dir, "data"), p.runAs)
}

func (p *postgresProgram) initdb(template string) error {
	work, err := tempDir("initdb") // the cache may lie where p.runAs cannot go
	if err != nil {
		return err
	}
	if err := p.runAs.chown(work); err != nil {
		return err
	}
	password := filepath.Join(work, "password")
	if err := os.WriteFile(password, []byte("idemq\n"), 0o644); err != nil {
		return err
	}
	data := filepath.Join(work, "data")
	cmd := exec.Command(filepath.Join(p.bin, "initdb"), "--pgdata", data, "--username", "idemq", "--pwfile", password,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync")
	cmd.Dir = work
	p.runAs.run(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return copyTree(data, template, nil)
}

func (p *postgresProgram) command(dir string, port int) *exec.Cmd {
	settings := append([]string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(port), "unix_socket_directories=",
		"max_connections=300", "shared_buffers=64MB",
	}, p.settings...)
	cmd := exec.Command(filepath.Join(p.bin, "postgres"), "-D", filepath.Join(dir, "data"))
	for _, setting := range settings {
		cmd.Args = append(cmd.Args, "-c", setting)
	}
	p.runAs.run(cmd)
	return cmd
}

func (p *postgresProgram) ping(ctx context.Context, addr string, _ int) error {
	conn, err := pgx.Connect(ctx, p.url(addr))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func (*postgresProgram) url(addr string) string {
	return "postgres://idemq:idemq@" + addr + "/postgres?sslmode=disable"
}
func (*postgresProgram) stopSignal() syscall.Signal { return syscall.SIGINT }  // "fast": does not wait for clients
func (*postgresProgram) killSignal() syscall.Signal { return syscall.SIGQUIT } // "immediate": recovers at the next start
