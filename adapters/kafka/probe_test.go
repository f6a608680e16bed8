package kafka_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/testenv"
)

// refused runs a consumer that cannot start, and returns the one line that says why.
func refused(t *testing.T, cfg kafka.Config) string {
	t.Helper()
	var e effects
	begun := time.Now()
	err := kafka.Run(context.Background(), cfg, newPipe(t, newGuard(t, "shop", nil), e.apply))
	require.Error(t, err)
	require.Less(t, time.Since(begun), 15*time.Second)
	require.NotContains(t, err.Error(), "\n", "one line")
	require.Zero(t, e.len())
	return err.Error()
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestStart_NoBroker_SaysThatItIsNotReachable(t *testing.T) {
	at := closedPort(t)
	got := refused(t, config(t, []string{at}, "orders"))
	require.Contains(t, got, "kafka: connect to "+at+": broker is not reachable")
	require.Contains(t, got, "check Config.Brokers")
}

func TestStart_FirstBrokerAway_UsesTheNext(t *testing.T) {
	c := fake(t)
	produce(t, c.ListenAddrs(), "orders", numbered(3, 3)...)
	var e effects
	start(t, config(t, append([]string{closedPort(t)}, c.ListenAddrs()...), "orders"), newPipe(t, newGuard(t, "shop", nil), e.apply))
	eventually(t, "effects", func() bool { return e.len() == 3 })
}

func TestTrap11_MissingTopic_IsRefusedBeforeTheGroupIsJoined(t *testing.T) {
	c := fake(t)
	joins := observe(c, kmsg.JoinGroup)
	got := refused(t, config(t, c.ListenAddrs(), "orders", "payments"))
	require.Contains(t, got, `kafka: topic "payments" does not exist`)
	require.Contains(t, got, "kafka-topics.sh --bootstrap-server "+c.ListenAddrs()[0]+" --create --topic payments")
	require.Zero(t, joins())
}

func TestTrap13_MissingTopic_IsNotCreatedBySubscribing(t *testing.T) {
	c := fake(t, kfake.AllowAutoTopicCreation())
	require.Contains(t, refused(t, config(t, c.ListenAddrs(), "payments")), "does not exist")
	require.Nil(t, c.TopicInfo("payments"))
}

// observe counts requests of a kind.
func observe(c *kfake.Cluster, key kmsg.Key) func() int {
	n := make(chan int, 1)
	n <- 0
	c.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		n <- <-n + 1
		return nil, nil, false
	})
	return func() int {
		x := <-n
		n <- x
		return x
	}
}

func TestTrap22_Authentication(t *testing.T) {
	c := fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "shop", "secret"))
	cfg := config(t, c.ListenAddrs(), "orders")

	t.Run("no SASL on a SASL port", func(t *testing.T) {
		require.Contains(t, refused(t, cfg), "the port expects SASL or TLS; set Config.SASL or Config.TLS")
	})
	t.Run("wrong password", func(t *testing.T) {
		cfg := cfg
		cfg.SASL = plain.Mechanism{Username: "shop", Password: "guess"}
		got := refused(t, cfg)
		require.Contains(t, got, "authentication failed")
		require.Contains(t, got, "check user and password in Config.SASL")
		require.NotContains(t, got, "guess")
	})
	t.Run("group, fetches and writes use it", func(t *testing.T) {
		cfg := cfg
		cfg.SASL = plain.Mechanism{Username: "shop", Password: "secret"}
		r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), new(effects).apply))
		r.assigned(3)
		require.NoError(t, r.stop())
	})
}

// otherMechanism is one that the broker does not offer.
type otherMechanism struct{ sasl.Mechanism }

func (otherMechanism) Name() string { return "SCRAM-SHA-512" }

func TestStart_TLS(t *testing.T) {
	cert, roots, _ := certificate(t)
	secure := fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
	cfg := config(t, secure.ListenAddrs(), "orders")

	t.Run("no TLS on a TLS port", func(t *testing.T) {
		require.Contains(t, refused(t, cfg), "set Config.SASL or Config.TLS")
	})
	t.Run("unknown authority", func(t *testing.T) {
		cfg := cfg
		cfg.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		require.Contains(t, refused(t, cfg), "put the broker's authority into Config.TLS.RootCAs")
	})
	t.Run("wrong name", func(t *testing.T) {
		cfg := cfg
		cfg.TLS = &tls.Config{RootCAs: roots, ServerName: "kafka.example"}
		require.Contains(t, refused(t, cfg), "set Config.TLS.ServerName")
	})
	t.Run("TLS on a plain port", func(t *testing.T) {
		cfg := config(t, fake(t).ListenAddrs(), "orders")
		cfg.TLS = &tls.Config{RootCAs: roots}
		require.Contains(t, refused(t, cfg), "whether the port speaks TLS") // it waits for the rest of what it takes for a long request
	})
	t.Run("with the authority it runs", func(t *testing.T) {
		cfg := cfg
		cfg.TLS = &tls.Config{RootCAs: roots}
		r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), new(effects).apply))
		r.assigned(3)
		require.NoError(t, r.stop())
	})
}

func TestTrap55_SessionOutsideOfTheBrokersBounds_IsRefusedByName(t *testing.T) {
	c := fake(t, kfake.GroupMinSessionTimeout(6*time.Second), kfake.GroupMaxSessionTimeout(30*time.Minute))
	bounds := "the broker takes group.min.session.timeout.ms (default 6s) to group.max.session.timeout.ms (default 30m); "
	require.Contains(t, refused(t, config(t, c.ListenAddrs(), "orders")), "Config.Session 1s: "+bounds+"use 6s or more, or lower group.min.session.timeout.ms")
	long := config(t, c.ListenAddrs(), "orders")
	long.Session = time.Hour
	require.Contains(t, refused(t, long), "Config.Session 1h0m0s: "+bounds+"use 30m or less, or raise group.max.session.timeout.ms")
	c = fake(t, kfake.GroupMinSessionTimeout(10*time.Second))
	between := config(t, c.ListenAddrs(), "orders")
	between.Session = 8 * time.Second
	require.Contains(t, refused(t, between), bounds+"look them up")
}

func TestTrap21_GroupOfAnotherClientKind_IsRefusedByName(t *testing.T) {
	c := fake(t)
	c.ControlKey(kmsg.JoinGroup.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		res := req.ResponseKind().(*kmsg.JoinGroupResponse)
		res.ErrorCode = int16(kafkago.InconsistentGroupProtocol)
		return res, nil, true
	})
	require.Contains(t, refused(t, config(t, c.ListenAddrs(), "orders")), "consumers of another kind are in this group")
}

func TestStart_Cancelled_ReturnsNil(t *testing.T) {
	c := fake(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, kafka.Run(ctx, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), new(effects).apply)))
}

func TestRun_Twice_IsRefusedWhileUnderWayAndAllowedAfter(t *testing.T) {
	c := fake(t)
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), new(effects).apply))
	r.assigned(3)
	require.ErrorIs(t, r.Run(context.Background()), kafka.ErrRunning)
	require.NoError(t, r.stop())
	require.Equal(t, consumer.PhaseStopped, r.State().Phase)
	again := startThis(t, r.Consumer)
	again.assigned(3)
	require.NoError(t, again.stop())
}

// The same on a real broker with listeners for SASL and TLS.
func TestTrap22_RealListeners(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real Kafka; not with -short")
	}
	_, roots, keystore := certificate(t)
	file := filepath.Join(t.TempDir(), "keystore.pem")
	require.NoError(t, os.WriteFile(file, keystore, 0o644))
	jaas := `.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_shop="secret";`
	s := testenv.OwnKafka(t, testenv.KafkaOptions{
		Listeners: map[string]string{"LOGIN": "SASL_PLAINTEXT", "SECURE": "SASL_SSL"},
		Extra: strings.Join([]string{
			"sasl.enabled.mechanisms=PLAIN",
			"listener.name.login" + jaas, "listener.name.secure" + jaas,
			"listener.name.secure.ssl.keystore.type=PEM", "listener.name.secure.ssl.keystore.location=" + file,
		}, "\n"),
	})
	topic := newTopic(t, []string{s.Addr}, testenv.Name(t), 1)
	recs := numbered(10, 3)
	produce(t, []string{s.Addr}, topic, recs...)
	login := func(password string) sasl.Mechanism { return plain.Mechanism{Username: "shop", Password: password} }

	t.Run("no SASL", func(t *testing.T) {
		require.Contains(t, refused(t, config(t, []string{s.Listeners["LOGIN"]}, topic)), "the port expects SASL or TLS")
	})
	t.Run("wrong password", func(t *testing.T) {
		cfg := config(t, []string{s.Listeners["LOGIN"]}, topic)
		cfg.SASL = login("guess")
		require.Contains(t, refused(t, cfg), "check user and password")
	})
	t.Run("no TLS", func(t *testing.T) {
		cfg := config(t, []string{s.Listeners["SECURE"]}, topic)
		cfg.SASL = login("secret")
		require.Contains(t, refused(t, cfg), "the port expects TLS or no SASL")
	})
	t.Run("TLS on a plain port", func(t *testing.T) {
		cfg := config(t, []string{s.Addr}, topic)
		cfg.TLS = &tls.Config{RootCAs: roots}
		require.Contains(t, refused(t, cfg), "the port does not speak TLS; leave Config.TLS nil")
	})
	t.Run("unknown mechanism", func(t *testing.T) {
		cfg := config(t, []string{s.Listeners["LOGIN"]}, topic)
		cfg.SASL = otherMechanism{login("secret")}
		require.Contains(t, refused(t, cfg), "does not offer the mechanism of Config.SASL (SCRAM-SHA-512)")
	})
	t.Run("SASL and TLS", func(t *testing.T) {
		cfg := config(t, []string{s.Listeners["SECURE"]}, topic)
		cfg.SASL, cfg.TLS = login("secret"), &tls.Config{RootCAs: roots}
		var e effects
		r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), e.apply))
		eventually(t, "effects", func() bool { return e.len() == len(recs) })
		require.NoError(t, r.stop())
		e.once(t, recs)
	})
}
