package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// startTimeout bounds every wait for a server that was started or stopped. It is generous: two cores may be shared by many.
const startTimeout = 90 * time.Second

// A program is a kind of server that can be installed on a machine.
type program interface {
	name() string
	// prepare fills the empty directory dir with what the server needs for its first start.
	prepare(dir string, port int) error
	// command runs the server in the foreground, on dir as the last run left it.
	command(dir string, port int) *exec.Cmd
	// ping is nil once process pid serves clients at addr.
	ping(ctx context.Context, addr string, pid int) error
	url(addr string) string
	// stopSignal ends the server in order, killSignal at once and without a word to its clients.
	stopSignal() syscall.Signal
	killSignal() syscall.Signal
}

// Server is a real server that belongs to one test. Its methods may be called from any goroutine; they return when the effect
// is there.
type Server struct {
	// URL is what our own programs are configured with: redis://, postgres:// or mysql://; the bare address for Kafka.
	URL string
	// Addr is host:port; it stays the same over restarts.
	Addr string

	program  program
	dir      string
	port     int
	detached bool // it outlives this process

	mu      sync.Mutex
	process *process // nil while the server is down
}

type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed once the process is gone
}

// launch starts a new server in an empty directory on a free port.
func launch(p program) (*Server, error) {
	for {
		dir, err := tempDir(p.name())
		if err != nil {
			return nil, err
		}
		s, err := launchIn(p, dir, freePort())
		if err == nil || !taken(s.port) {
			return s, err
		}
		// Somebody else bound the port between our look and the server's start.
	}
}

// launchIn returns the server that it could not start with the error.
func launchIn(p program, dir string, port int) (*Server, error) {
	addr := loopback(port)
	s := &Server{URL: p.url(addr), Addr: addr, program: p, dir: dir, port: port}
	if err := p.prepare(dir, port); err != nil {
		return s, fmt.Errorf("testenv: prepare %s: %w", p.name(), err)
	}
	return s, s.Start()
}

// Start starts the server again, with the data it left, on the same address, and returns when it answers. A server that runs
// is left alone.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil && !s.process.gone() {
		return nil
	}
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.program.command(s.dir, s.port)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	ownSession(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("testenv: start %s: %w", s.program.name(), err)
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	s.process = p
	if !s.detached {
		if err := theReaper.tell("signal %d %d", cmd.Process.Pid, s.program.killSignal()); err != nil {
			return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
	}
	go func() {
		_ = cmd.Wait() // how it ended is in its log; that it ended is what is waited for
		if !s.detached {
			_ = theReaper.tell("forget %d", cmd.Process.Pid)
		}
		close(p.ended)
	}()
	if err := s.waitReady(p); err != nil {
		return fmt.Errorf("testenv: start %s: %w\n%s", s.program.name(), err, s.logTail())
	}
	return nil
}

func (s *Server) waitReady(p *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return poll(ctx, func() error {
		if p.gone() {
			cancel()
			return errors.New("it ended by itself")
		}
		once, cancelOnce := context.WithTimeout(ctx, 2*time.Second)
		defer cancelOnce()
		return s.program.ping(once, s.Addr, p.cmd.Process.Pid)
	})
}

// Kill ends the server at once: clients see broken connections, and data not yet durable is lost. (PostgreSQL is told to quit
// immediately, which is the same to clients and data, because its children outlive a SIGKILL.)
func (s *Server) Kill() error { return s.end(s.program.killSignal()) }

// Stop ends the server in order.
func (s *Server) Stop() error { return s.end(s.program.stopSignal()) }

// Restart is Kill and Start.
func (s *Server) Restart() error { return errors.Join(s.Kill(), s.Start()) }

// Pause freezes the server: connections stay open and nothing answers. Resume ends that. PostgreSQL freezes for new
// connections only, since each open one has a process of its own.
func (s *Server) Pause() error { return s.signal(pauseSignal) }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.signal(resumeSignal) }

// Wipe kills the server and removes its data; Start then starts an empty one.
func (s *Server) Wipe() error {
	if err := s.Kill(); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if path := filepath.Join(s.dir, entry.Name()); path != s.logFile() {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return s.program.prepare(s.dir, s.port)
}

// Pid is the process id of the running server, 0 while it is down.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil || s.process.gone() {
		return 0
	}
	return s.process.cmd.Process.Pid
}

func (s *Server) signal(sig syscall.Signal) error {
	pid := s.Pid()
	if pid == 0 {
		return fmt.Errorf("testenv: %s is not running", s.program.name())
	}
	return signalPid(pid, sig)
}

func (s *Server) end(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	pid := s.process.cmd.Process.Pid
	for _, sig := range []syscall.Signal{resumeSignal, sig} {
		if err := signalPid(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("testenv: %v to %s: %w", sig, s.program.name(), err)
		}
	}
	select {
	case <-s.process.ended:
		s.process = nil
		return nil
	case <-time.After(startTimeout):
		return fmt.Errorf("testenv: %s goes on after %v", s.program.name(), sig)
	}
}

func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "server.log") }

// logTail is the end of what the server wrote, for error messages.
func (s *Server) logTail() string {
	text, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
}

// poll calls f until it returns nil or ctx ends, and then returns its last error; one that says more than that time ran out, if
// there was one.
func poll(ctx context.Context, f func() error) error {
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	var last error
	for {
		err := f()
		if err == nil {
			return nil
		}
		if last == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-pause.C:
		}
	}
}

var tempRoot = sync.OnceValues(func() (string, error) {
	root, err := os.MkdirTemp("", "idemq-test-")
	if err != nil {
		return "", err
	}
	if err := theReaper.tell("remove %s", root); err != nil {
		return "", err
	}
	return root, os.Chmod(root, 0o755) // PostgreSQL may run as another user
})

// tempDir makes a directory that is removed when this process has ended.
func tempDir(name string) (string, error) {
	root, err := tempRoot()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(root, name+"-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// freePort is a loopback port that nobody listens on. It is below the range that systems take the ports of outgoing
// connections from: there, a client that dials a dead server can take the server's port, or even connect to itself.
func freePort() int {
	for {
		if port := 15000 + rand.IntN(15000); !taken(port) && !taken(port+1) && !taken(port-2) { // Kafka needs two, RocketMQ all three
			return port
		}
	}
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func taken(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return true
	}
	return l.Close() != nil
}
