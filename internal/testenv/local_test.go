package testenv_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/internal/testenv"
)

func TestLocal_ServicesComeUpDieComeBackAndGo(t *testing.T) {
	testenv.OwnRedis(t) // skips
	t.Setenv("IDEMQ_TEST_VIA", "local")
	dir := filepath.Join(t.TempDir(), ".local")
	local, err := testenv.NewLocal(dir)
	require.NoError(t, err)
	local.Attach()
	_, err = local.Up()
	require.NoError(t, err)

	text, err := os.ReadFile(local.EnvFile())
	require.NoError(t, err)
	env := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		name, value, _ := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		env[name] = strings.Trim(value, "'")
	}
	redisURL := env["INVENTORY_REDIS"]
	set(t, redisURL, "k", "v")
	if db, ok := env["INVENTORY_DB"]; ok {
		require.Contains(t, db, "/inventory?")
		require.NoError(t, postgresAt(t, db).Ping(t.Context()))
	}
	if db, ok := env["INVENTORY_DB_MYSQL"]; ok {
		require.NoError(t, mariadbAt(t, db).Ping())
	}

	if names, ok := env["INVENTORY_ROCKETMQ"]; ok {
		sendRocketMQ(t, brokerOf(t, names), "orders")
	}

	addr := regexp.MustCompile(`[\d.]+:\d+`).FindString(redisURL)
	require.NoError(t, local.Kill("redis"))
	require.True(t, refused(addr))
	require.NoError(t, local.Start("redis"))
	require.Equal(t, "", get(t, redisURL, "k"))
	require.ErrorContains(t, local.Start("reddis"), `no service "reddis"`)
	require.ErrorContains(t, local.Kill(""), "name a service, as in SERVICE=redis; there are redis, postgres,")

	require.NoError(t, local.Kill("redis"))
	missed, err := local.Up() // again: only what is down is started
	require.NoError(t, err)
	require.NotContains(t, missed, "redis")
	require.False(t, refused(addr))

	require.NoError(t, local.Down())
	require.Eventually(t, func() bool { return refused(addr) }, 10*time.Second, 10*time.Millisecond)
	require.NoDirExists(t, dir)
	require.ErrorContains(t, local.Kill("redis"), "redis is not up; make local-up starts it")
	require.ErrorContains(t, local.Start("redis"), "redis is not up")
}
