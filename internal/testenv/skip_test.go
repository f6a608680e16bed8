package testenv_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/internal/testenv"
)

func TestSkip_IsAFailureWhereTheServiceIsRequired(t *testing.T) {
	unrequired(t)
	t.Setenv("IDEMQ_TEST_REQUIRE", "redis-cluster,postgres")
	for service, want := range map[string]outcome{
		"postgres": {failed: "postgres is required by IDEMQ_TEST_REQUIRE: no luck"},
		"redis":    {skipped: "redis: no luck"},
	} {
		require.Equal(t, want, try(t, func(tb testing.TB) { testenv.Skip(tb, service, "no luck") }))
	}
}

func TestSkip_NotesTheReason(t *testing.T) {
	unrequired(t)
	notes := filepath.Join(t.TempDir(), "skips")
	t.Setenv("IDEMQ_TEST_SKIPS", notes)
	for range 2 {
		try(t, func(tb testing.TB) { testenv.Skip(tb, "redis", "no luck\nat all") })
	}
	text, err := os.ReadFile(notes)
	require.NoError(t, err)
	require.Equal(t, "redis: no luck\nredis: no luck\n", string(text))
}

func TestDocker_ThatDoesNotAnswerIsGivenUpFast(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	unrequired(t)
	for _, host := range []string{"unix:///no/such/socket", "tcp://" + silent.Addr().String()} {
		t.Setenv("DOCKER_HOST", host)
		begin := time.Now()
		require.Contains(t, try(t, func(tb testing.TB) { testenv.Docker(tb) }).skipped, "no Docker daemon answers")
		require.Less(t, time.Since(begin), 5*time.Second)
	}
}

func TestOwnServers_TakeThePlaceOfMissingProgramsByASkip(t *testing.T) {
	if testing.Short() {
		t.Skip("-short skips them all")
	}
	t.Setenv("PATH", t.TempDir())
	unrequired(t)
	require.Equal(t, "redis: redis-server is not installed", try(t, func(tb testing.TB) { testenv.OwnRedis(tb) }).skipped)
}

func TestOwnServers_LeftOutByTheRun_AreSkipped(t *testing.T) {
	if testing.Short() {
		t.Skip("-short skips them all")
	}
	t.Setenv("IDEMQ_TEST_WITHOUT", "kafka,redis")
	unrequired(t)
	require.Equal(t, "redis: left out by IDEMQ_TEST_WITHOUT", try(t, func(tb testing.TB) { testenv.OwnRedis(tb) }).skipped)
}

func TestName_IsUniqueAndFitForTopics(t *testing.T) {
	t.Run("with / strange & überlong characters, more than there is room for", func(t *testing.T) {
		one, two := testenv.Name(t), testenv.Name(t)
		require.NotEqual(t, one, two)
		require.Regexp(t, `^[A-Za-z0-9.-]{1,48}$`, one)
	})
}

// unrequired makes skips of this test neither failures nor news.
func unrequired(t *testing.T) {
	t.Setenv("IDEMQ_TEST_REQUIRE", "")
	t.Setenv("IDEMQ_TEST_SKIPS", "")
}

type outcome struct{ skipped, failed string }

// try runs f with a test of its own, which may skip or fail without consequences.
func try(t *testing.T, f func(testing.TB)) outcome {
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(r)
	}()
	<-ended
	return r.outcome
}

type recorder struct {
	testing.TB
	outcome
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
