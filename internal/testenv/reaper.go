package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// reaperEnv makes this program, started once more, the reaper.
const reaperEnv = "IDEMQ_TESTENV_REAPER"

// A test process can end in ways that run none of its clean-up: a panic, os.Exit, the timeout of go test, SIGKILL. So the
// clean-up is done by another process, which learns through a pipe what there is to clean up, and begins when the pipe closes.
// It is the same program, started again: nothing has to be installed, and the pipe closes however its writer ends.
func init() {
	if os.Getenv(reaperEnv) != "" {
		reap(os.Stdin)
		os.Exit(0)
	}
}

type reaper struct {
	mu   sync.Mutex
	pipe io.WriteCloser
	cmd  *exec.Cmd
}

var theReaper reaper

// tell notes something for the end: "signal PID NUMBER", "forget PID", "remove DIR", "container ID".
func (r *reaper) tell(format string, args ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		if err := r.start(); err != nil {
			return fmt.Errorf("testenv: start the reaper: %w", err)
		}
	}
	_, err := fmt.Fprintf(r.pipe, format+"\n", args...)
	return err
}

func (r *reaper) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), reaperEnv+"=1")
	cmd.Dir = os.TempDir()
	ownSession(cmd)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r.cmd, r.pipe = cmd, pipe
	return nil
}

// finish cleans up now, and returns when it is done.
func (r *reaper) finish() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return nil
	}
	err := errors.Join(r.pipe.Close(), r.cmd.Wait())
	r.cmd = nil
	return err
}

func reap(orders io.Reader) {
	signals := map[int]syscall.Signal{}
	var dirs, containers []string
	for lines := bufio.NewScanner(orders); lines.Scan(); {
		verb, arg, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "signal":
			pid, number, _ := strings.Cut(arg, " ")
			signals[atoi(pid)] = syscall.Signal(atoi(number))
		case "forget":
			delete(signals, atoi(arg))
		case "remove":
			dirs = append(dirs, arg)
		case "container":
			containers = append(containers, arg)
		}
	}
	for pid, sig := range signals {
		if pid > 0 {
			_ = signalPid(pid, resumeSignal) // nobody is left to be told; the loop below sees the effect
			_ = signalPid(pid, sig)
		}
	}
	// Backends of a killed database may go on writing for a moment, so a directory may need more than one try.
	deadline := time.Now().Add(20 * time.Second)
	for _, dir := range dirs {
		for os.RemoveAll(dir) != nil && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, id := range containers {
		_ = removeContainer(ctx, id)
	}
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// Shutdown stops every service that this process started and removes their files. It is for commands; a test process needs
// not call it.
func Shutdown() error { return theReaper.finish() }
