// Command services starts the real services that tests and examples run against, in the ways of package testenv.
//
//	services check            start each shared service once, and say what there is and what is missing
//	services run COMMAND...   start the shared services, run the command with their URLs in its environment, stop them; the
//	                          command's exit status is ours; at the end say which tests were skipped and why
//	services up               start services that stay, with their data in .local, and write .local/env
//	services down             stop those and remove their data
//	services kill NAME        kill one of those (redis, postgres, mariadb, kafka, rocketmq, rocketmq-namesrv)
//	services start NAME       bring it back
package main

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/idemq/idemq/internal/testenv"
)

func main() {
	status, err := run(os.Args[1:])
	if err = errors.Join(err, testenv.Shutdown()); err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

func run(args []string) (status int, err error) {
	local, err := testenv.NewLocal(".local")
	if err != nil {
		return 1, err
	}
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	switch {
	case verb == "check" && len(args) == 1:
		tryAll()
		return 0, nil
	case verb == "run" && len(args) > 1:
		return runWith(args[1:])
	case verb == "up" && len(args) == 1:
		return 0, up(local)
	case verb == "down" && len(args) == 1:
		return 0, local.Down()
	case verb == "kill" && len(args) <= 2:
		return 0, local.Kill(strings.Join(args[1:], ""))
	case verb == "start" && len(args) <= 2:
		return 0, local.Start(strings.Join(args[1:], ""))
	}
	return 2, errors.New("usage: services check | run COMMAND... | up | down | kill NAME | start NAME")
}

// tryAll starts the shared services, which end with this process, and says which there are.
func tryAll() {
	for _, service := range testenv.Shared() {
		if service.Err != nil {
			fmt.Printf("services: %-14s missing: %v\n", service.Name, service.Err)
			continue
		}
		fmt.Printf("services: %-14s ok, tried and stopped\n", service.Name)
	}
}

// startAll starts the shared services and returns their environment. Missing ones are only told.
func startAll() (env []string) {
	for _, service := range testenv.Shared() {
		if service.Err != nil {
			fmt.Printf("services: %-14s missing: %v\n", service.Name, service.Err)
			continue
		}
		fmt.Printf("services: %-14s %s=%s\n", service.Name, service.Env, service.URL)
		env = append(env, service.Env+"="+service.URL)
	}
	return env
}

// runWith outlives an interrupt, which the command gets as well, so that services are stopped after the command.
func runWith(command []string) (status int, err error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	env := startAll()
	skips, err := os.CreateTemp("", "idemq-skips-")
	if err != nil {
		return 1, err
	}
	defer os.Remove(skips.Name())
	defer skips.Close()

	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(append(os.Environ(), env...), "IDEMQ_TEST_SKIPS="+skips.Name())
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return 1, err
			}
		case err := <-ended:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 1, err
			}
			return cmd.ProcessState.ExitCode(), tellSkips(skips)
		}
	}
}

func tellSkips(file *os.File) error {
	times := map[string]int{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		times[lines.Text()]++
	}
	if len(times) == 0 {
		fmt.Println("\nNo test was skipped for want of a service.")
	} else {
		fmt.Println("\nSkipped for want of a service (make services installs what it can):")
	}
	for _, reason := range slices.Sorted(maps.Keys(times)) {
		fmt.Printf("  %3d x %s\n", times[reason], reason)
	}
	return lines.Err()
}

func up(local *testenv.Local) error {
	missed, err := local.Up()
	for _, name := range slices.Sorted(maps.Keys(missed)) {
		fmt.Printf("%s is missing: %v\n", name, missed[name])
	}
	if err != nil {
		return err
	}
	env, err := os.ReadFile(local.EnvFile())
	if err != nil {
		return err
	}
	fmt.Printf(`%s
The services run on loopback only. To use them:

  source .local/env
  go run ./examples/inventory reset      then: produce, consume (as often as you like), check
  go run ./examples/inventory reset --db "$INVENTORY_DB_MYSQL"      the same on MariaDB

make local-kill SERVICE=redis kills one, make local-start SERVICE=redis brings it back, make local-down ends all.
`, env)
	return nil
}
