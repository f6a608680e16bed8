//go:build !unix

package testenv

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// Services are not started on this system: they have to be given by environment variable, or by Docker.
const (
	pauseSignal  = syscall.Signal(0)
	resumeSignal = syscall.Signal(0)
)

var errUnsupported = errors.New("testenv: not supported on this system")

type account struct{}

func ownSession(*exec.Cmd)                     {}
func lockFile(*os.File) error                  { return errUnsupported }
func signalPid(int, syscall.Signal) error      { return errUnsupported }
func unprivileged(...string) (*account, error) { return nil, errUnsupported }
func (*account) chown(string) error            { return nil }
func (*account) run(*exec.Cmd)                 {}
