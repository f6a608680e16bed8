package testenv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Main runs the tests of a package, and has stopped all services when it returns. A package need not use it, since what was
// started ends with the process in any case, a moment later.
//
//	func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }
func Main(m interface{ Run() int }) (status int) {
	status = m.Run()
	if err := Shutdown(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv: clean up:", err)
		status = max(status, 1)
	}
	return status
}

// Name returns a name that no other test uses, made of [A-Za-z0-9.-] and at most 48 bytes long: for topics, groups, scopes and
// keys in a service that is shared.
func Name(t testing.TB) string {
	t.Helper()
	name := strings.Trim(notName.ReplaceAllString(t.Name(), "-"), "-")
	return name[:min(len(name), 39)] + "-" + random()
}

var notName = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// random is eight letters and digits, fit for any service's names.
func random() string { return strings.ToLower(rand.Text()[:8]) }

// Skip skips the test because service cannot be had, or fails it where IDEMQ_TEST_REQUIRE names the service.
func Skip(t testing.TB, service, reason string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("IDEMQ_TEST_REQUIRE"), ","), service) {
		t.Fatalf("%s is required by IDEMQ_TEST_REQUIRE: %s", service, reason)
	}
	if file := os.Getenv("IDEMQ_TEST_SKIPS"); file != "" {
		if err := appendLine(file, service+": "+firstLine(reason)); err != nil {
			t.Errorf("note the skip: %v", err)
		}
	}
	t.Skipf("%s: %s", service, reason)
}

func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n") // one write: lines of several processes do not mix
	return errors.Join(err, f.Close())
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// missing says that a service cannot be had on this machine, and why. Any other error is a failure of one that should work.
type missing string

func (m missing) Error() string { return string(m) }

func missingf(format string, args ...any) error { return missing(fmt.Sprintf(format, args...)) }

// got returns v; on an error the test ends here, skipped if the service is missing.
func got[T any](t testing.TB, service string, v T, err error) T {
	t.Helper()
	var why missing
	if errors.As(err, &why) {
		Skip(t, service, err.Error())
	}
	if err != nil {
		t.Fatalf("testenv: %s: %v", service, err)
	}
	return v
}

// own starts a server for one test. It ends with the test; if the test failed, the test's log has the server's last words.
func own(t testing.TB, service string, p program, err error) *Server {
	t.Helper()
	notShort(t, service)
	got(t, service, p, err)
	s, err := launch(p)
	got(t, service, s, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", service, s.logTail())
		}
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(s.dir); err != nil && service != "postgres" { // its children may write for a moment; the reaper removes it
			t.Error(err)
		}
	})
	return s
}

// notShort keeps tests with servers of their own out of a run with -short, which is for what is quick, and those of services that the
// run is told to do without.
func notShort(t testing.TB, service string) {
	t.Helper()
	if testing.Short() {
		Skip(t, service, "not started with -short")
	}
	if leftOut(service) {
		Skip(t, service, "left out by IDEMQ_TEST_WITHOUT")
	}
}

func leftOut(service string) bool {
	return slices.Contains(strings.Split(os.Getenv("IDEMQ_TEST_WITHOUT"), ","), service)
}

// background is a context for the short conversations with a service that testenv itself has.
func background() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}
