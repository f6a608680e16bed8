package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// fleet runs this program again and again as consume processes. Its methods are for one goroutine; the counters are for all.
type fleet struct {
	exe     string
	logs    string // folder of the workers' logs
	workers map[string]*worker
	died    chan error // a worker that nobody killed or stopped
}

// counters of what workers said they have settled.
type counters struct{ settled, duplicates atomic.Int64 }

// worker is one process. It lives no longer than the demo: when the demo dies, its stdin ends.
type worker struct {
	name     string
	cmd      *exec.Cmd
	stdin    io.Closer
	expected atomic.Bool   // its end is
	done     chan struct{} // closed when it has ended and its last line is counted
}

// stopTimeout is how long a worker may drain before it is killed.
const stopTimeout = 20 * time.Second

func newFleet(logs string) (*fleet, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("demo: find my own program: %w", err)
	}
	return &fleet{exe: exe, logs: logs, workers: map[string]*worker{}, died: make(chan error, 1)}, nil
}

// start runs a worker with these flags. A name is free again after kill or stop.
func (f *fleet) start(name string, count *counters, flags ...string) error {
	w := &worker{name: name, done: make(chan struct{})}
	w.cmd = exec.Command(f.exe, append([]string{"consume", "--supervised"}, flags...)...)
	w.cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "INVENTORY_") })
	logFile, err := os.OpenFile(f.logOf(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("demo: start %s: %w", name, err)
	}
	defer logFile.Close() //nolint:errcheck // the worker has its own handle
	w.cmd.Stderr = logFile
	stdout, err := w.cmd.StdoutPipe()
	if err == nil {
		w.stdin, err = w.cmd.StdinPipe()
	}
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("demo: start %s: %w", name, err)
	}
	f.workers[name] = w
	go f.watch(w, stdout, count)
	return nil
}

// watch counts the worker's lines and reports an end that nobody asked for.
func (f *fleet) watch(w *worker, stdout io.Reader, count *counters) {
	defer close(w.done)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue // the line in which it was killed
		}
		if l.Verdict == "done" {
			count.duplicates.Add(1)
		}
		count.settled.Add(1)
	}
	err := w.cmd.Wait()
	if w.expected.Load() {
		return
	}
	select {
	case f.died <- fmt.Errorf("demo: worker %s ended by itself: %v\n%s", w.name, err, f.tail(w.name)):
	default: // one is enough
	}
}

// kill ends workers as a power cut would, all at the same moment.
func (f *fleet) kill(names ...string) {
	var killed []*worker
	for _, name := range names {
		w := f.workers[name]
		w.expected.Store(true)
		w.cmd.Process.Kill() //nolint:errcheck // it has ended already
		killed = append(killed, w)
	}
	f.await(killed)
}

// stop ends workers in good order, all at the same time: they drain and leave.
func (f *fleet) stop(names ...string) {
	var stopped []*worker
	for _, name := range names {
		w := f.workers[name]
		w.expected.Store(true)
		w.stdin.Close() //nolint:errcheck // it has ended already
		stopped = append(stopped, w)
	}
	f.await(stopped)
}

func (f *fleet) await(ws []*worker) {
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	var once sync.Once
	for _, w := range ws {
		select {
		case <-w.done:
		case <-timeout.C:
			once.Do(func() {
				for _, w := range ws {
					w.cmd.Process.Kill() //nolint:errcheck // it has ended already
				}
			})
			timeout.Reset(stopTimeout)
			<-w.done
		}
		delete(f.workers, w.name)
	}
}

// names of the workers that run.
func (f *fleet) names() []string {
	var names []string
	for name := range f.workers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (f *fleet) logOf(name string) string { return filepath.Join(f.logs, name+".log") }

// tails are the ends of all logs.
func (f *fleet) tails() string {
	var b strings.Builder
	for _, name := range f.names() {
		fmt.Fprintf(&b, "--- %s\n%s\n", name, f.tail(name))
	}
	return b.String()
}

// tail is the end of a worker's log.
func (f *fleet) tail(name string) string {
	text, err := os.ReadFile(f.logOf(name))
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-10):], []byte("\n")))
}
