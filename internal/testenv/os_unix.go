//go:build unix

package testenv

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

const (
	pauseSignal  = syscall.SIGSTOP
	resumeSignal = syscall.SIGCONT
)

// ownSession keeps signals meant for the terminal's processes, such as that of ctrl-C, from the child.
func ownSession(cmd *exec.Cmd) { attr(cmd).Setsid = true }

func attr(cmd *exec.Cmd) *syscall.SysProcAttr {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	return cmd.SysProcAttr
}

func lockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }

func signalPid(pid int, sig syscall.Signal) error { return syscall.Kill(pid, sig) }

// An account is the user that a program runs as; nil is our own.
type account struct{ uid, gid int }

// unprivileged is for programs that refuse to run as root: nil unless we are root, else the first of the users that exists.
func unprivileged(names ...string) (*account, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	var err error
	for _, name := range append(names, "nobody") {
		var u *user.User
		if u, err = user.Lookup(name); err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil {
			return &account{uid, gid}, nil
		}
	}
	return nil, err
}

func (a *account) chown(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, a.uid, a.gid)
}

func (a *account) run(cmd *exec.Cmd) {
	if a != nil {
		attr(cmd).Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
}
