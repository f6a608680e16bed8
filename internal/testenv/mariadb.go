package testenv

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
)

var mariadbService = &service{
	name: "mariadb", env: "IDEMQ_TEST_MARIADB",
	container: mariadbContainer,
	local:     func() (string, error) { return launchURL(newMariaDB()) },
}

// MariaDB returns the URL (mysql://user:password@host:port/database) of an empty database in the shared MariaDB, which is dropped
// when the test ends. The user has all rights where testenv starts the server, and needs CREATE and DROP where it is given by URL.
func MariaDB(t testing.TB) string {
	t.Helper()
	server := mariadbService.need(t)
	name := "t_" + random()
	u, err := withDatabase(server, name)
	got(t, "mariadb", u, err)
	got(t, "mariadb", u, mysqlExec(server, "CREATE DATABASE "+name))
	t.Cleanup(func() {
		if err := mysqlExec(server, "DROP DATABASE "+name); err != nil {
			t.Errorf("testenv: drop the test's database: %v", err)
		}
	})
	return u
}

// OwnMariaDB starts a MariaDB. Settings are options of the server, such as "--max-connections=5". Its URL names a user with all
// rights and an empty database.
func OwnMariaDB(t testing.TB, settings ...string) *Server {
	t.Helper()
	p, err := newMariaDB(settings...)
	return own(t, "mariadb", p, err)
}

type mariadbProgram struct {
	binary   string
	install  string
	settings []string
	user     string // "" is our own
}

func newMariaDB(settings ...string) (program, error) {
	install, err := exec.LookPath("mariadb-install-db")
	if err != nil {
		return nil, missing("mariadb-install-db is not installed")
	}
	binary, err := exec.LookPath("mariadbd")
	if err != nil {
		if binary, err = exec.LookPath("/usr/sbin/mariadbd"); err != nil { // not on every user's PATH
			return nil, missing("mariadbd is not installed")
		}
	}
	return &mariadbProgram{binary: binary, install: install, settings: settings}, nil
}

func (*mariadbProgram) name() string { return "mariadb" }

// prepare copies a data directory that mariadb-install-db made once for all test runs.
func (p *mariadbProgram) prepare(dir string, _ int) error {
	version, err := exec.Command(p.binary, "--version").Output()
	if err != nil {
		return err
	}
	template, err := cached(fmt.Sprintf("mariadb-%x", sha256.Sum256(version))[:24], func(template string) error {
		cmd := exec.Command(p.install, "--no-defaults", "--datadir="+template, "--skip-test-db", "--skip-name-resolve",
			"--auth-root-authentication-method=normal", "--innodb-log-file-size=16M")
		cmd.Args = append(cmd.Args, p.asRoot()...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
		}
		return nil
	})
	if err != nil {
		return err
	}
	user := "CREATE DATABASE IF NOT EXISTS idemq;\n" +
		"CREATE USER IF NOT EXISTS 'idemq'@'%' IDENTIFIED BY 'idemq';\n" +
		"GRANT ALL ON *.* TO 'idemq'@'%' WITH GRANT OPTION;\n"
	if err := os.WriteFile(filepath.Join(dir, "init.sql"), []byte(user), 0o644); err != nil {
		return err
	}
	return copyTree(template, filepath.Join(dir, "data"), nil)
}

// asRoot is the option without which MariaDB refuses to run as root.
func (*mariadbProgram) asRoot() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

func (p *mariadbProgram) command(dir string, port int) *exec.Cmd {
	cmd := exec.Command(p.binary, "--no-defaults", "--datadir="+filepath.Join(dir, "data"), "--init-file="+filepath.Join(dir, "init.sql"),
		"--bind-address=127.0.0.1", "--port="+strconv.Itoa(port), "--socket="+filepath.Join(dir, "socket"),
		"--pid-file="+filepath.Join(dir, "pid"), "--skip-name-resolve", "--skip-log-bin", "--max-connections=300",
		"--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=1")
	cmd.Args = append(cmd.Args, p.asRoot()...)
	cmd.Args = append(cmd.Args, p.settings...)
	return cmd
}

func (p *mariadbProgram) ping(ctx context.Context, addr string, _ int) error {
	db, err := mysqlOpen(p.url(addr))
	if err != nil {
		return err
	}
	defer db.Close()
	return db.PingContext(ctx)
}

func (p *mariadbProgram) url(addr string) string {
	return "mysql://" + cmp.Or(p.user, "idemq") + ":idemq@" + addr + "/idemq"
}
func (*mariadbProgram) stopSignal() syscall.Signal { return syscall.SIGTERM }
func (*mariadbProgram) killSignal() syscall.Signal { return syscall.SIGKILL }

func mysqlExec(server, statement string) error {
	db, err := mysqlOpen(server)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := background()
	defer cancel()
	_, err = db.ExecContext(ctx, statement)
	return err
}

func mysqlOpen(server string) (*sql.DB, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, ""
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Logger = &mysql.NopLogger{} // failed pings of a server that is starting are not news
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}
