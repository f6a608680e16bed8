package testenv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

var kafkaService = &service{
	name: "kafka", env: "IDEMQ_TEST_KAFKA",
	container: kafkaContainer,
	local:     func() (string, error) { return launchURL(newKafka(KafkaOptions{})) },
}

// Kafka returns the brokers of the shared Kafka, which makes no topics by itself and accepts group sessions from one second on.
// Topics and groups have to be told apart by Name.
func Kafka(t testing.TB) []string {
	t.Helper()
	brokers := kafkaService.need(t)
	return strings.Split(brokers, ",")
}

// KafkaOptions are for a broker that differs from the usual one.
type KafkaOptions struct {
	// Listeners are wanted besides the plain one: the security protocol (SASL_PLAINTEXT, SSL, SASL_SSL) by the listener's name.
	Listeners map[string]string
	// Extra is more of server.properties; it wins over what testenv writes.
	Extra string
}

// KafkaServer is a broker of one node.
type KafkaServer struct {
	*Server
	// Listeners has the address of each listener of KafkaOptions, by its name.
	Listeners map[string]string
}

// OwnKafka starts a broker. When it is killed and started again it is back after some seconds, since the cluster's controller, it
// itself, waits for the session of the dead broker to end.
func OwnKafka(t testing.TB, options KafkaOptions) *KafkaServer {
	t.Helper()
	notShort(t, "kafka") // before anything is fetched
	p, err := newKafka(options)
	s := &KafkaServer{Server: own(t, "kafka", p, err), Listeners: map[string]string{}}
	for name, port := range p.(*kafkaProgram).ports {
		s.Listeners[name] = fmt.Sprint("127.0.0.1:", port)
	}
	return s
}

func kafkaVersion() string { return versionOf("IDEMQ_KAFKA_VERSION", "4.4.0") }

type kafkaProgram struct {
	java    string
	jars    string // a class path
	options KafkaOptions
	ports   map[string]int // of the options' listeners
	flags   []string       // for the JVM
}

func newKafka(options KafkaOptions) (program, error) {
	java, javaVersion, err := findJava()
	if err != nil {
		return nil, err
	}
	lib, err := mavenJars("kafka-"+kafkaVersion(),
		"org.apache.kafka:kafka_2.13:"+kafkaVersion(), "org.slf4j:slf4j-simple:1.7.36")
	if err != nil {
		return nil, err
	}
	p := &kafkaProgram{java: java, jars: filepath.Join(lib, "*"), options: options, ports: map[string]int{}}
	archive, err := p.archive(javaVersion)
	if err != nil {
		return nil, err
	}
	p.flags = []string{"-XX:SharedArchiveFile=" + archive, "-Xlog:disable"}
	for name := range options.Listeners {
		p.ports[name] = freePort()
	}
	return p, nil
}

// archive is what makes the JVM start in half the time: the loaded classes of an earlier run.
func (p *kafkaProgram) archive(javaVersion string) (string, error) {
	dir, err := cached(fmt.Sprintf("kafka-%s-java-%s", kafkaVersion(), javaVersion), func(dir string) error {
		s, err := launch(&kafkaProgram{
			java: p.java, jars: p.jars,
			flags: []string{"-XX:ArchiveClassesAtExit=" + filepath.Join(dir, "kafka.jsa"), "-Xlog:disable"},
		})
		if err != nil {
			return err
		}
		return s.Stop()
	})
	return filepath.Join(dir, "kafka.jsa"), err
}

func (*kafkaProgram) name() string { return "kafka" }

// prepare copies log directories that the storage tool made once for all test runs.
func (p *kafkaProgram) prepare(dir string, port int) error {
	template, err := cached("kafka-"+kafkaVersion()+"-data", func(template string) error {
		file := filepath.Join(template, "format.properties")
		usual := &kafkaProgram{}
		if err := usual.writeProperties(file, filepath.Join(template, "data"), 1); err != nil {
			return err
		}
		cmd := exec.Command(p.java, "-cp", p.jars, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQACAAAAAAAAAAQ", "-c", file)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("format: %w\n%s", err, out)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := copyTree(filepath.Join(template, "data"), filepath.Join(dir, "data"), nil); err != nil {
		return err
	}
	return p.writeProperties(filepath.Join(dir, "server.properties"), filepath.Join(dir, "data"), port)
}

func (p *kafkaProgram) writeProperties(file, data string, port int) error {
	properties := kafkaProperties("127.0.0.1", "127.0.0.1", port)
	properties["log.dirs"] = data
	for name, protocol := range p.options.Listeners {
		at := fmt.Sprintf(",%s://127.0.0.1:%d", name, p.ports[name])
		properties["listeners"] += at
		properties["advertised.listeners"] += at
		properties["listener.security.protocol.map"] += "," + name + ":" + protocol
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&text, "%s=%s\n", key, properties[key])
	}
	text.WriteString(p.options.Extra + "\n") // of two lines with one key the later counts
	return os.WriteFile(file, []byte(text.String()), 0o644)
}

// kafkaProperties is the configuration of a small broker that is its own controller and listens on port and port+1.
func kafkaProperties(bind, advertised string, port int) map[string]string {
	const small = "1"
	return map[string]string{
		"process.roles":                                    "broker,controller",
		"node.id":                                          "1",
		"controller.quorum.voters":                         fmt.Sprintf("1@127.0.0.1:%d", port+1),
		"listeners":                                        fmt.Sprintf("PLAINTEXT://%s:%d,CONTROLLER://127.0.0.1:%d", bind, port, port+1),
		"advertised.listeners":                             fmt.Sprintf("PLAINTEXT://%s:%d", advertised, port),
		"controller.listener.names":                        "CONTROLLER",
		"inter.broker.listener.name":                       "PLAINTEXT",
		"listener.security.protocol.map":                   "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		"auto.create.topics.enable":                        "false",
		"num.partitions":                                   "3",
		"default.replication.factor":                       small,
		"min.insync.replicas":                              small,
		"offsets.topic.replication.factor":                 small,
		"offsets.topic.num.partitions":                     "4",
		"transaction.state.log.replication.factor":         small,
		"transaction.state.log.min.isr":                    small,
		"transaction.state.log.num.partitions":             "4",
		"share.coordinator.state.topic.replication.factor": small,
		"share.coordinator.state.topic.min.isr":            small,
		"group.initial.rebalance.delay.ms":                 "0",
		"group.min.session.timeout.ms":                     "1000",
		"broker.session.timeout.ms":                        "2000", // how long a broker that was killed is waited for
		"broker.heartbeat.interval.ms":                     "500",
		"log.cleaner.dedupe.buffer.size":                   "4194304", // the usual one takes half of the small heap
		"log.segment.bytes":                                "67108864",
		"num.network.threads":                              "2",
		"num.io.threads":                                   "2",
	}
}

// kafkaContainerEnv is the same for the official image, whose start script turns KAFKA_A_B into a.b.
func kafkaContainerEnv(host string, port int) map[string]string {
	env := map[string]string{}
	for key, value := range kafkaProperties("0.0.0.0", host, port) {
		env["KAFKA_"+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))] = value
	}
	return env
}

func (p *kafkaProgram) command(dir string, _ int) *exec.Cmd {
	args := append([]string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}, p.flags...)
	return exec.Command(p.java, append(args, "-cp", p.jars, "kafka.Kafka", filepath.Join(dir, "server.properties"))...)
}

func (p *kafkaProgram) ping(ctx context.Context, addr string, _ int) error {
	transport := &kafka.Transport{MetadataTopics: []string{}, DialTimeout: 2 * time.Second}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(addr), Transport: transport}
	metadata, err := client.Metadata(ctx, &kafka.MetadataRequest{})
	if err == nil && len(metadata.Brokers) == 0 {
		err = errors.New("the broker has not joined its cluster yet")
	}
	return err
}

func (*kafkaProgram) url(addr string) string     { return addr }
func (*kafkaProgram) stopSignal() syscall.Signal { return syscall.SIGTERM }
func (*kafkaProgram) killSignal() syscall.Signal { return syscall.SIGKILL }
