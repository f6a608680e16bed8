package testenv

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

var kafkaService = &service{
	name: "kafka", env: "IDEMQ_TEST_KAFKA",
	container: kafkaContainer,
	local:     func() (string, error) { return launchURL(newKafka()) },
}

// Kafka returns the brokers of the shared Kafka. Topics are not made by themselves there.
func Kafka(t testing.TB) []string {
	t.Helper()
	brokers, err := kafkaService.find()
	got(t, "kafka", brokers, err)
	return strings.Split(brokers, ",")
}

func newKafka() (program, error) { return nil, missing("kafka: not yet") }

type kafkaProgram struct{}

func (*kafkaProgram) name() string                           { return "kafka" }
func (*kafkaProgram) prepare(dir string, port int) error     { return errors.ErrUnsupported }
func (*kafkaProgram) command(dir string, port int) *exec.Cmd { return nil }
func (*kafkaProgram) ping(ctx context.Context, addr string, pid int) error {
	return errors.ErrUnsupported
}
func (*kafkaProgram) url(addr string) string                    { return addr }
func (*kafkaProgram) stopSignal() syscall.Signal                { return syscall.SIGTERM }
func (*kafkaProgram) killSignal() syscall.Signal                { return syscall.SIGKILL }
func kafkaContainerEnv(host string, port int) map[string]string { return nil }
