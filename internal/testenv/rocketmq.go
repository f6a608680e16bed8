package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/idemq/idemq/internal/remoting"
)

var rocketmqService = &service{
	name: "rocketmq", env: "IDEMQ_TEST_ROCKETMQ",
	local: func() (string, error) {
		names, err := launchURL(newNameServer(RocketMQOptions{}))
		if err != nil {
			return "", err
		}
		_, err = launchURL(newBroker(names, RocketMQOptions{}))
		return names, err
	},
}

// RocketMQ returns the address of the name server of the shared RocketMQ, whose one broker makes topics and groups by itself and has the delay
// levels 1s 1s 2s 3s 5s 10s.
func RocketMQ(t testing.TB) (nameServer string) {
	t.Helper()
	return rocketmqService.need(t)
}

// RocketMQOptions are for a broker that differs from the usual one.
type RocketMQOptions struct {
	// Extra is more of broker.conf; it wins over what testenv writes.
	Extra string
	// TLS: the servers offer it, with a certificate that they make up, beside plain text. They start some seconds later.
	TLS bool
	// LockLife is how long a queue that is consumed in order stays with a dead member; 0: a minute, as usual. A client refreshes its locks
	// every 20 s.
	LockLife time.Duration
}

// RocketMQServer is a broker, and the name server that clients are configured with.
type RocketMQServer struct {
	*Server    // the broker: what a test kills and starts again
	NameServer *Server
}

// OwnRocketMQ starts a name server and a broker. Its URL is the name server's address.
func OwnRocketMQ(t testing.TB, options RocketMQOptions) *RocketMQServer {
	t.Helper()
	notShort(t, "rocketmq") // before anything is fetched
	names, err := newNameServer(options)
	s := &RocketMQServer{NameServer: own(t, "rocketmq", names, err)}
	broker, err := newBroker(s.NameServer.Addr, options)
	s.Server = own(t, "rocketmq", broker, err)
	return s
}

func rocketmqVersion() string { return versionOf("IDEMQ_ROCKETMQ_VERSION", "5.5.0") }

// rocketmqJava is what a name server and a broker have in common.
type rocketmqJava struct {
	java    string
	jars    string // a class path
	options RocketMQOptions
}

func newRocketMQJava(options RocketMQOptions) (rocketmqJava, error) {
	java, _, err := findJava()
	if err != nil {
		return rocketmqJava{}, err
	}
	version := rocketmqVersion()
	lib, err := mavenJars("rocketmq-"+version,
		"org.apache.rocketmq:rocketmq-namesrv:"+version, "org.apache.rocketmq:rocketmq-broker:"+version)
	return rocketmqJava{java: java, jars: filepath.Join(lib, "*"), options: options}, err
}

// prepare writes the configuration as it is before a start: a broker rewrites the file that it reads.
func (j rocketmqJava) prepare(dir string, conf string) error {
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "logback.xml"), []byte(logback), 0o644),
		os.WriteFile(filepath.Join(dir, "server.conf.first"), []byte(conf), 0o644),
	)
}

const logback = `<configuration>
  <appender name="console" class="org.apache.rocketmq.logging.ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %c %m%n</pattern></encoder>
  </appender>
  <logger name="RocketmqPop" level="ERROR"/>
  <root level="WARN"><appender-ref ref="console"/></root>
</configuration>
`

// command runs main in a JVM.
func (j rocketmqJava) command(dir, main string, flags ...string) *exec.Cmd {
	args := append([]string{
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Drmq.logback.configurationFile=" + filepath.Join(dir, "logback.xml"),
		"-Drocketmq.home.dir=" + dir, "-Duser.home=" + dir, "-cp", j.jars,
	}, flags...)
	if !j.options.TLS {
		args = append(args, "-Dtls.server.mode=disabled") // the key of the certificate that it makes up takes seconds
	}
	args = append(args, main, "-c", "server.conf")
	return exec.Command("sh", append([]string{"-c", `cp server.conf.first server.conf && exec "$@"`, "sh", j.java}, args...)...)
}

// stopSignal kills: an orderly end takes up to 18 s, and nothing is lost without it, as the data are in the system's cache.
func (rocketmqJava) stopSignal() syscall.Signal { return syscall.SIGKILL }
func (rocketmqJava) killSignal() syscall.Signal { return syscall.SIGKILL }

// A nameServer knows which broker has which topic.
type nameServer struct{ rocketmqJava }

func newNameServer(options RocketMQOptions) (program, error) {
	j, err := newRocketMQJava(options)
	return nameServer{j}, err
}

func (nameServer) name() string           { return "rocketmq-namesrv" }
func (nameServer) url(addr string) string { return addr }

func (p nameServer) prepare(dir string, port int) error {
	return p.rocketmqJava.prepare(dir, fmt.Sprintf("listenPort=%d\n", port))
}

func (p nameServer) command(dir string, _ int) *exec.Cmd {
	return p.rocketmqJava.command(dir, "org.apache.rocketmq.namesrv.NamesrvStartup", "-Xms32m", "-Xmx64m")
}

func (nameServer) ping(ctx context.Context, addr string, _ int) error {
	err := rocketmqCall(ctx, addr, remoting.RouteOfTopic, map[string]string{"topic": anyTopic}, "")
	if remoting.IsCode(err, remoting.TopicNotExist) { // no broker yet
		return nil
	}
	return err
}

// anyTopic is there as soon as a broker that makes topics by itself has registered.
const anyTopic = "TBW102"

type rocketmqBroker struct {
	rocketmqJava
	names string // address of the name server
}

func newBroker(names string, options RocketMQOptions) (program, error) {
	j, err := newRocketMQJava(options)
	return rocketmqBroker{j, names}, err
}

func (rocketmqBroker) name() string        { return "rocketmq" }
func (p rocketmqBroker) url(string) string { return p.names }

func (p rocketmqBroker) prepare(dir string, port int) error {
	conf := []string{
		"namesrvAddr=" + p.names,
		"brokerClusterName=c1",
		"brokerName=b0",
		"brokerId=0",
		"brokerIP1=127.0.0.1",
		fmt.Sprint("listenPort=", port), // and port-2 and port+1
		"storePathRootDir=" + filepath.Join(dir, "store"),
		"autoCreateTopicEnable=true",
		"autoCreateSubscriptionGroup=true",
		"enablePropertyFilter=true", // SQL filters
		"messageDelayLevel=1s 1s 2s 3s 5s 10s",
		"brokerFastFailureEnable=false", // a busy machine is no reason to refuse
		"enableSingleTopicRegister=false",
		"timerWheelEnable=false", // 38 MB
		"mappedFileSizeCommitLog=16777216",
		"mappedFileSizeConsumeQueue=300000",
		"maxHashSlotNum=10000",
		"maxIndexNum=40000",
		p.options.Extra, // of two lines with one key the later counts
	}
	return p.rocketmqJava.prepare(dir, strings.Join(conf, "\n")+"\n")
}

func (p rocketmqBroker) command(dir string, _ int) *exec.Cmd {
	flags := []string{"-Xms64m", "-Xmx128m", "-XX:MaxDirectMemorySize=64m"}
	if life := p.options.LockLife; life > 0 {
		flags = append(flags, fmt.Sprint("-Drocketmq.broker.rebalance.lockMaxLiveTime=", life.Milliseconds()))
	}
	return p.rocketmqJava.command(dir, "org.apache.rocketmq.broker.BrokerStartup", flags...)
}

// ping is nil once clients find the broker. By itself it might register with the name server only after ten seconds: a change of its
// configuration makes it do so at once.
func (p rocketmqBroker) ping(ctx context.Context, addr string, _ int) error {
	if err := rocketmqCall(ctx, addr, remoting.GetBrokerConfig, nil, ""); err != nil {
		return err
	}
	route := func() error {
		return rocketmqCall(ctx, p.names, remoting.RouteOfTopic, map[string]string{"topic": anyTopic}, "")
	}
	if route() == nil {
		return nil
	}
	if err := rocketmqCall(ctx, addr, remoting.UpdateBrokerConfig, nil, "brokerPermission=6\n"); err != nil {
		return err
	}
	once, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	return poll(once, route)
}

func rocketmqCall(ctx context.Context, addr string, code int, fields map[string]string, body string) error {
	conn, err := remoting.Dial(ctx, addr, remoting.Options{})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Call(ctx, code, fields, []byte(body))
	return err
}
