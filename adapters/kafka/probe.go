package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/idemq/idemq/internal/lanes"
	"github.com/idemq/idemq/internal/retrytopic"
)

// connect proves that a broker answers us, and says in one line what is wrong if none does: kafka-go's group would try for ever.
func (c *cluster) connect(ctx context.Context, cfg Config) error {
	var worst error
	for _, b := range c.brokers {
		err := c.greet(ctx, b)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if worst == nil || unreachable(worst) { // a broker that refuses us says more than one that is away
			worst = explain(b, cfg, err)
		}
	}
	return worst
}

// greet asks for the list of brokers: the first request that a broker with SASL refuses to a stranger.
func (c *cluster) greet(ctx context.Context, broker string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := c.dialer.DialContext(ctx, "tcp", broker)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreClosed(conn.Close())) }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	_, err = conn.Brokers()
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// errUnreachable: nobody listens there.
var errUnreachable = errors.New("broker is not reachable")

func unreachable(err error) bool { return errors.Is(err, errUnreachable) }

// explain turns what kafka-go says about a first contact into a cause and a remedy.
func explain(broker string, cfg Config, err error) error {
	say := func(format string, args ...any) error {
		return fmt.Errorf("kafka: connect to %s: "+format, append([]any{broker}, args...)...)
	}
	var record tls.RecordHeaderError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var dns *net.DNSError
	switch {
	case errors.Is(err, kafkago.SASLAuthenticationFailed):
		return say("authentication failed: %w; check user and password in Config.SASL", err)
	case errors.Is(err, kafkago.UnsupportedSASLMechanism):
		return say("%w; the broker does not offer the mechanism of Config.SASL (%s)", err, cfg.SASL.Name())
	case errors.As(err, &record):
		return say("%w; the port does not speak TLS; leave Config.TLS nil or use the TLS port", err)
	case errors.As(err, &unknown):
		return say("%w; put the broker's authority into Config.TLS.RootCAs", err)
	case errors.As(err, &host):
		return say("%w; set Config.TLS.ServerName or use the name in the certificate", err)
	case errors.As(err, &dns), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return say("%w: %w; check Config.Brokers and whether it runs", errUnreachable, err)
	case hungUp(err) && cfg.TLS != nil && strings.Contains(err.Error(), "failed to dial"): // kafka-go's word for all that comes before SASL
		return say("the broker hung up in the TLS handshake (%w): the port does not speak TLS; leave Config.TLS nil or use the TLS port", err)
	case hungUp(err) && cfg.TLS == nil && cfg.SASL == nil:
		return say("the broker hung up (%w): the port expects SASL or TLS; set Config.SASL or Config.TLS, or use the plain port", err)
	case hungUp(err) && cfg.TLS == nil:
		return say("the broker hung up (%w): the port expects TLS or no SASL; set Config.TLS or leave Config.SASL nil", err)
	case hungUp(err) && cfg.SASL == nil:
		return say("the broker hung up (%w): the port expects SASL; set Config.SASL", err)
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return say("%w: no answer within %v: %w; check Config.Brokers, the firewall, and whether the port speaks TLS", errUnreachable, dialTimeout, err)
	}
	return say("%w", err)
}

// hungUp: the other end closed the connection instead of answering. A TLS port answers plain text with an alert, which kafka-go reads as
// an absurd length.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		strings.Contains(err.Error(), "expecting TLS")
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// topicPatience is how long a topic may be missing from the metadata, or be without leaders, before it is said to be: metadata follows
// the creation of a topic with a delay.
const topicPatience = 3 * time.Second

// partitions counts the partitions of topics, once each has a leader. A missing topic is an error that says how to make it: subscribing
// would create it by accident where the broker allows that, and where not, kafka-go would begin hundreds of generations a second.
func (c *cluster) partitions(ctx context.Context, topics []string) (map[string]int, error) {
	end := time.Now().Add(topicPatience)
	for {
		counts, wrong, err := c.countPartitions(ctx, topics)
		if err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
		if wrong == nil {
			return counts, nil
		}
		if time.Now().After(end) || errors.Is(wrong, kafkago.TopicAuthorizationFailed) {
			return nil, wrong
		}
		if err := lanes.Sleep(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func (c *cluster) countPartitions(ctx context.Context, topics []string) (counts map[string]int, wrong, err error) {
	meta, err := c.metadata(ctx, topics...)
	if err != nil {
		return nil, nil, err
	}
	counts = map[string]int{}
	var problems []error
	for _, t := range meta.Topics {
		if err := topicProblem(t, c.brokers); err != nil {
			problems = append(problems, err)
		}
		counts[t.Name] = len(t.Partitions)
	}
	return counts, errors.Join(problems...), nil
}

func topicProblem(t kafkago.Topic, brokers []string) error {
	switch {
	case errors.Is(t.Error, kafkago.UnknownTopicOrPartition):
		return fmt.Errorf("kafka: topic %q does not exist (%w); create it: kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions 12", t.Name, t.Error, brokers[0], t.Name)
	case errors.Is(t.Error, kafkago.TopicAuthorizationFailed):
		return fmt.Errorf("kafka: topic %q: %w; allow this user to Describe and Read it", t.Name, t.Error)
	case t.Error != nil && !errors.Is(t.Error, kafkago.LeaderNotAvailable):
		return fmt.Errorf("kafka: topic %q: %w", t.Name, t.Error)
	}
	for _, p := range t.Partitions {
		if p.Leader.Host == "" {
			return fmt.Errorf("kafka: topic %q: partition %d has no leader; its brokers are down", t.Name, p.ID)
		}
	}
	if len(t.Partitions) == 0 {
		return fmt.Errorf("kafka: topic %q has no partitions yet", t.Name)
	}
	return nil
}

// retryTopics lists those of group.
func (c *cluster) retryTopics(ctx context.Context, group string) ([]string, error) {
	meta, err := c.metadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("kafka: list topics: %w", err)
	}
	var names []string
	for _, t := range meta.Topics {
		if _, retry := retrytopic.Delay(group, t.Name); retry && t.Error == nil {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
